// A vetted plugin in this process: loaded, its entry called and its table negotiated. The only file that knows
// Boost.DLL.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "mantissa/precision.h"
#include "plugin/identity.h"
#include "plugin/options.h"
#include "plugin/vet.h"

namespace mantissa {

/// Owns the mapping: tables, contexts and spec texts of the plugin end with it, so it is destroyed last.
class PluginLibrary {
 public:
  /// Loads a private copy of the bytes that were vetted; the file may change or vanish afterwards.
  /// Throws PluginRefused: load-failed, no-entry, abi-major, bad-table, id-mismatch.
  explicit PluginLibrary(const VettedPlugin& vetted);
  PluginLibrary(PluginLibrary&&) noexcept;
  PluginLibrary& operator=(PluginLibrary&&) noexcept;
  ~PluginLibrary();

  /// All that minor 0 has is there; for later fields use MTS_KNOWS and MTS_HAS.
  const mts_precision& table() const { return *table_; }
  const PluginIdentity& identity() const { return identity_; }
  const std::vector<OptionSpec>& option_specs() const { return option_specs_; }
  bool understands(mts_clip_kind kind) const;

 private:
  struct Mapping;

  std::unique_ptr<Mapping> mapping_;
  const mts_precision* table_ = nullptr;
  PluginIdentity identity_;
  std::vector<OptionSpec> option_specs_;
};

/// A plugin that fits a config.
struct ConfiguredPlugin {
  PluginLibrary library;
  std::vector<CheckedOption> options;
};

/// Vets and loads `file` as [precision] and [plugins] of `config` say, and checks [precision.options] and [clip]
/// against what the plugin declares; none of its slots is called. Throws PluginRefused; ConfigError for a clip kind
/// that the plugin does not understand.
ConfiguredPlugin load_configured_plugin(const std::filesystem::path& file, const Config& config);

/// find, vet and load have their own calls; this is what most callers want after find_plugin.
PluginLibrary load_plugin(const std::filesystem::path& file, const VetOptions& options = {});

}  // namespace mantissa
