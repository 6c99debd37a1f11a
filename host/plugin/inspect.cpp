#include "plugin/inspect.h"

#include "plugin/abi_version.h"
#include "plugin/library.h"
#include "plugin/options.h"

namespace mantissa {

const AbiVersion kAbiVersion{MTS_ABI_MAJOR, MTS_ABI_MINOR};

PluginDescription inspect_plugin(const std::filesystem::path& file) {
  const PluginLibrary library = load_plugin(file);
  const bool norm = library.understands(MTS_CLIP_NORM), value = library.understands(MTS_CLIP_VALUE);
  const char* clips_by = norm && value ? "norm and value" : norm ? "norm" : value ? "value" : "nothing";
  return {library.identity(), clips_by, describe_options(library.option_specs())};
}

void check_plugin(const std::filesystem::path& file, const Config& config) { load_configured_plugin(file, config); }

}  // namespace mantissa
