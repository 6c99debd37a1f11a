# Finds LibTorch in a pip-installed torch or an unzipped libtorch, CPU or CUDA build, without TorchConfig.cmake: that
# one wants a complete CUDA toolkit as soon as the torch at hand is a CUDA build.
#
# Inputs, the first that is set wins, cache variables before environment variables:
#   LIBTORCH_ROOT    the `torch` package folder (the one with lib/ and include/)
#   LIBTORCH_PYTHON  a Python interpreter that has torch installed
#   otherwise        python3 of $VIRTUAL_ENV, then python3 on the PATH
# Targets:
#   LibTorch::LibTorch    headers, libtorch with its CPU (and CUDA) kernels, c10d with Gloo where its headers are there
# Variables:
#   LibTorch_FOUND  LibTorch_VERSION  LibTorch_ROOT_DIR  LibTorch_LIBRARY_DIR
#   LibTorch_CUDA_FOUND   the library is a CUDA build
#   LibTorch_GLOO_FOUND   Gloo's headers are there (USE_C10D_GLOO is then defined)

set(LIBTORCH_ROOT "" CACHE PATH "The torch package folder or an unzipped libtorch")
set(LIBTORCH_PYTHON "" CACHE FILEPATH "A Python interpreter that has torch installed")

# --- where is it ------------------------------------------------------------------------------------------------------
# CMake runs again by itself, perhaps in a shell with another environment: what was found stays until a cache variable
# is set to something else or the folder is gone.
set(_lt_inputs "${LIBTORCH_ROOT}|${LIBTORCH_PYTHON}")
set(_lt_first_time TRUE)
set(_lt_reason "")

# Sets `LibTorch_ROOT_DIR`, or `_lt_reason` where `python` has no torch.
function(_lt_ask_python python)
  # find_spec does not import torch: quick, and it works where `import torch` fails.
  execute_process(
    COMMAND "${python}" -c "import importlib.util as u, sys
sys.path = [p for p in sys.path if p]
s = u.find_spec('torch')
print(s.submodule_search_locations[0] if s and s.origin else '')"
    OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_VARIABLE error ERROR_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    set(root "")
    set(_lt_reason "${python} failed (${result}): ${error}" PARENT_SCOPE)
  elseif(NOT root)
    set(_lt_reason "${python} has no torch package." PARENT_SCOPE)
  endif()
  set(LibTorch_ROOT_DIR "${root}" PARENT_SCOPE)
endfunction()

if(_lt_inputs STREQUAL "${LibTorch_LAST_INPUTS}" AND EXISTS "${LibTorch_LAST_ROOT}/lib")
  set(LibTorch_ROOT_DIR "${LibTorch_LAST_ROOT}")
  set(_lt_first_time FALSE)
elseif(LIBTORCH_ROOT)
  set(LibTorch_ROOT_DIR "${LIBTORCH_ROOT}")
elseif(LIBTORCH_PYTHON)
  _lt_ask_python("${LIBTORCH_PYTHON}")
elseif(NOT "$ENV{LIBTORCH_ROOT}" STREQUAL "")
  set(LibTorch_ROOT_DIR "$ENV{LIBTORCH_ROOT}")
elseif(NOT "$ENV{LIBTORCH_PYTHON}" STREQUAL "")
  _lt_ask_python("$ENV{LIBTORCH_PYTHON}")
elseif(EXISTS "$ENV{VIRTUAL_ENV}/bin/python3")
  _lt_ask_python("$ENV{VIRTUAL_ENV}/bin/python3")
else()
  find_program(LibTorch_PYTHON3 python3)
  mark_as_advanced(LibTorch_PYTHON3)
  if(LibTorch_PYTHON3)
    _lt_ask_python("${LibTorch_PYTHON3}")
  else()
    set(LibTorch_ROOT_DIR "")
    set(_lt_reason "no python3 was found to ask for its torch package.")
  endif()
endif()

# --- what is it -------------------------------------------------------------------------------------------------------
set(LibTorch_LIBRARY_DIR "")
set(LibTorch_INCLUDE_DIRS "")
set(LibTorch_VERSION "")
set(LibTorch_CUDA_FOUND FALSE)
set(LibTorch_GLOO_FOUND FALSE)
if(LibTorch_ROOT_DIR)
  get_filename_component(LibTorch_ROOT_DIR "${LibTorch_ROOT_DIR}" ABSOLUTE)
  foreach(_lt_file IN ITEMS lib/libtorch.so lib/libtorch_cpu.so lib/libc10.so include/ATen/ATen.h
                            include/torch/csrc/api/include/torch/torch.h)
    if(NOT EXISTS "${LibTorch_ROOT_DIR}/${_lt_file}")
      string(APPEND _lt_reason "${LibTorch_ROOT_DIR} lacks ${_lt_file}. ")
    endif()
  endforeach()
  set(LibTorch_INCLUDE_DIRS "${LibTorch_ROOT_DIR}/include" "${LibTorch_ROOT_DIR}/include/torch/csrc/api/include")
  # From 2.13 on torch/version.h only includes torch/headeronly/version.h.
  foreach(_lt_file IN ITEMS include/torch/headeronly/version.h include/torch/csrc/api/include/torch/version.h)
    if(NOT LibTorch_VERSION AND EXISTS "${LibTorch_ROOT_DIR}/${_lt_file}")
      file(STRINGS "${LibTorch_ROOT_DIR}/${_lt_file}" _lt_lines
           REGEX "^#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
      string(REGEX MATCHALL "[0-9]+" _lt_numbers "${_lt_lines}")
      list(JOIN _lt_numbers "." LibTorch_VERSION)
    endif()
  endforeach()
  if(EXISTS "${LibTorch_ROOT_DIR}/lib/libtorch_cuda.so")
    set(LibTorch_CUDA_FOUND TRUE)
  endif()
  # Wheels ship ProcessGroupGloo.hpp, but not the Gloo headers that it includes.
  find_path(LibTorch_GLOO_INCLUDE_DIR gloo/rendezvous/store.h HINTS "${LibTorch_ROOT_DIR}/include")
  mark_as_advanced(LibTorch_GLOO_INCLUDE_DIR)
  if(LibTorch_GLOO_INCLUDE_DIR)
    set(LibTorch_GLOO_FOUND TRUE)
  endif()
  if(NOT _lt_reason)
    set(LibTorch_LIBRARY_DIR "${LibTorch_ROOT_DIR}/lib")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_ROOT_DIR LibTorch_LIBRARY_DIR LibTorch_VERSION
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "${_lt_reason}
  Run ./dev setup, or set LIBTORCH_ROOT to a torch package folder, or LIBTORCH_PYTHON to a Python that has torch.")
if(NOT LibTorch_FOUND)
  return()
endif()
set(LibTorch_LAST_INPUTS "${_lt_inputs}" CACHE INTERNAL "")
set(LibTorch_LAST_ROOT "${LibTorch_ROOT_DIR}" CACHE INTERNAL "")

# --- LibTorch::LibTorch -----------------------------------------------------------------------------------------------
# A shared library with its full path: CMake then puts its folder in the build rpath, and in the install rpath where
# CMAKE_INSTALL_RPATH_USE_LINK_PATH is on. The libraries themselves find each other and NVIDIA's
# (site-packages/nvidia/*/lib) by their own $ORIGIN rpath.
function(_lt_add_shared name path)
  if(NOT TARGET LibTorch::${name})
    add_library(LibTorch::${name} SHARED IMPORTED)
    set_target_properties(LibTorch::${name} PROPERTIES IMPORTED_LOCATION "${path}")
  endif()
endfunction()
_lt_add_shared(c10 "${LibTorch_LIBRARY_DIR}/libc10.so")
_lt_add_shared(torch_cpu "${LibTorch_LIBRARY_DIR}/libtorch_cpu.so")

if(NOT TARGET LibTorch::LibTorch)
  find_package(Threads REQUIRED)
  # libtorch.so has no symbols, it only pulls in libtorch_cpu.so and libtorch_cuda.so. A program that names no CUDA
  # symbol still needs it, so it must survive a linker run with --as-needed.
  set(_lt_link_all "-Wl,--push-state,--no-as-needed,\"${LibTorch_LIBRARY_DIR}/libtorch.so\",--pop-state")
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  set_target_properties(LibTorch::LibTorch PROPERTIES
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIRS}"
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIRS}"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;$<$<BOOL:${LibTorch_GLOO_FOUND}>:USE_C10D_GLOO>"
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_LINK_LIBRARIES "LibTorch::torch_cpu;LibTorch::c10;${_lt_link_all};Threads::Threads")
  if(LibTorch_GLOO_FOUND)
    # Behind torch's own folders; CMake drops /usr/include, which is searched anyway.
    set_property(TARGET LibTorch::LibTorch APPEND PROPERTY
                 INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_GLOO_INCLUDE_DIR}")
    set_property(TARGET LibTorch::LibTorch APPEND PROPERTY
                 INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LibTorch_GLOO_INCLUDE_DIR}")
  endif()
endif()

# What another back end of c10d needs beyond that goes into a target of its own, so that only the source file which
# includes that back end's header sees it.

if(_lt_first_time AND NOT LibTorch_FIND_QUIETLY)
  message(STATUS "LibTorch ${LibTorch_VERSION}: CUDA ${LibTorch_CUDA_FOUND}, Gloo ${LibTorch_GLOO_FOUND}")
  if(NOT LibTorch_GLOO_FOUND)
    message(STATUS "LibTorch: Gloo's headers not found (Debian: apt-get install libgloo-dev); "
                   "sources that include ProcessGroupGloo.hpp cannot be compiled")
  endif()
endif()
