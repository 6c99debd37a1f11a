# mantissa_add_precision_plugin(NAME source...)
# Builds libmantissa-NAME.so into <build>/plugins, as target mantissa_plugin_NAME. It exports mts_precision_entry_v1 and
# nothing else, leaves no symbol open, and shares no static with another plugin in the process:
#   - hidden visibility: RTLD_LOCAL alone does not keep the statics of two C++ plugins apart
#   - no STB_GNU_UNIQUE symbols: glibc never unloads a library that has one
#   - an anonymous version script: a named one would add a symbol
if(NOT TARGET mantissa_plugin_api)  # included from a project of its own
  add_library(mantissa_plugin_api INTERFACE)
  target_include_directories(mantissa_plugin_api INTERFACE "${CMAKE_CURRENT_LIST_DIR}/../include")
endif()

function(mantissa_add_precision_plugin name)
  set(target mantissa_plugin_${name})
  set(version_script "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/entry.map")
  add_library(${target} MODULE ${ARGN})
  target_link_libraries(${target} PRIVATE mantissa_plugin_api)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  target_link_options(${target} PRIVATE "-Wl,--version-script=${version_script}" -Wl,-z,defs -Wl,--as-needed)
  set_target_properties(${target} PROPERTIES
    PREFIX "lib" OUTPUT_NAME "mantissa-${name}" SUFFIX ".so"
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS "${version_script}"
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/plugins")
endfunction()
