#include "plugin/library.h"

#define BOOST_DLL_USE_STD_FS
#include <dlfcn.h>
#include <boost/dll/shared_library.hpp>

#include <system_error>

#include "base/error.h"
#include "plugin/private_copy.h"

namespace mantissa {
namespace {

constexpr const char* kEntry = "mts_precision_entry_v1";
constexpr uint64_t kMinor0Size = MTS_END_OF(mts_precision, extension);
constexpr uint64_t kMaxTableSize = 1 << 16;  // far above any later minor: more is not a size

// "plugin "fsdp_norm" (/path/libmantissa-fsdp_norm.so)"
std::string subject(const VettedPlugin& vetted) {
  return "plugin \"" + vetted.note.id + "\" (" + vetted.file.string() + ")";
}

[[noreturn]] void refuse(std::string_view kind, const VettedPlugin& vetted, const std::string& why) {
  throw PluginRefused(kind, subject(vetted) + ": " + why);
}

std::string text(const char* string) { return string == nullptr ? "" : string; }

PrivateCopy copy_of(const VettedPlugin& vetted) {
  try {
    return PrivateCopy::of(vetted.bytes, vetted.file.filename().string());
  } catch (const std::system_error& error) {
    refuse("load-failed", vetted, std::string("no private copy of it can be made: ") + error.what());
  }
}

// Boost says "... (dlerror system message: COPY: reason): error"; people know the file, not the copy.
std::string loader_text(const std::string& what, const std::string& copy) {
  const size_t start = what.find(copy + ": ");
  if (start == std::string::npos) return what;
  const std::string reason = what.substr(start + copy.size() + 2);
  return reason.substr(0, reason.rfind("): "));
}

// Only the throwing overload of Boost.DLL carries the loader's text.
boost::dll::shared_library load(const std::filesystem::path& copy, const VettedPlugin& vetted) {
  try {
    return boost::dll::shared_library(copy, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
  } catch (const std::system_error& error) {
    refuse("load-failed", vetted,
           "the system's loader says: " + loader_text(error.what(), copy.string()) +
               "; link the plugin with -Wl,-z,defs, and install what it needs");
  }
}

void check_clip_kind(const PluginLibrary& library, const ClipConfig& clip) {
  if (clip.kind == ClipKind::none) return;
  const bool norm = clip.kind == ClipKind::norm;
  if (library.understands(norm ? MTS_CLIP_NORM : MTS_CLIP_VALUE)) return;
  throw ConfigError({clip.where + ": clip." + (norm ? "max_norm" : "value") + ": plugin " + library.identity().id +
                     " does not clip by " +
                     (norm ? "norm; fsdp_norm does" : "value; use max_norm, or a plugin that clips by value")});
}

}  // namespace

struct PluginLibrary::Mapping {
  PrivateCopy copy;
  boost::dll::shared_library library;

  explicit Mapping(const VettedPlugin& vetted);
  ~Mapping();
  const mts_precision* call_entry(const VettedPlugin& vetted) const;
};

PluginLibrary::Mapping::Mapping(const VettedPlugin& vetted)
    : copy(copy_of(vetted)), library(load(copy.path(), vetted)) {}

PluginLibrary::Mapping::~Mapping() {
  library.unload();
  // Thread-local destructors or a unique symbol keep it mapped.
  if (void* const still_mapped = ::dlopen(copy.path().c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
    ::dlclose(still_mapped);
    copy.keep_open();
  }
}

const mts_precision* PluginLibrary::Mapping::call_entry(const VettedPlugin& vetted) const {
  if (!library.has(kEntry))
    refuse("no-entry", vetted, std::string("the loader finds no ") + kEntry + "; export that function");
  const auto entry = library.get<const mts_precision*()>(kEntry);
  try {
    return entry();
  } catch (...) {
    refuse("bad-table", vetted, std::string(kEntry) + " threw an exception; need a function that only returns a table");
  }
}

namespace {

void require_header(const mts_precision* table, const VettedPlugin& vetted) {
  if (table == nullptr) refuse("bad-table", vetted, std::string(kEntry) + " returned NULL; need a table");
  const mts_header header = table->header;
  if (header.abi_major != MTS_ABI_MAJOR) {
    refuse("abi-major", vetted,
           "its table is of major " + std::to_string(header.abi_major) + "; this program speaks " +
               std::to_string(MTS_ABI_MAJOR) + ": set the header by MTS_HEADER(mts_precision)");
  }
  if (header.struct_size < kMinor0Size || header.struct_size > kMaxTableSize || header.struct_size % 8 != 0) {
    refuse("bad-table", vetted,
           "its table says struct_size " + std::to_string(header.struct_size) + "; need " +
               std::to_string(kMinor0Size) + " or more: set the header by MTS_HEADER(mts_precision)");
  }
}

void require_slots(const mts_precision& table, const VettedPlugin& vetted) {
  const auto require = [&](bool filled, const char* slot) {
    if (!filled)
      refuse("bad-table", vetted, std::string("its slot ") + slot + " is NULL; create, destroy and plan are required");
  };
  require(table.create != nullptr, "create");
  require(table.destroy != nullptr, "destroy");
  require(table.plan != nullptr, "plan");
}

void require_id(const mts_precision& table, const VettedPlugin& vetted) {
  const std::string id = text(table.id);
  if (!is_legal_plugin_id(id)) {
    refuse("bad-table", vetted, "its table has the id \"" + id + "\"; need 1 to 63 characters of a-z, 0-9 and _");
  }
  if (id != vetted.note.id) {
    refuse("id-mismatch", vetted,
           "its table has the id \"" + id + "\", its note \"" + vetted.note.id + "\"; need the same in both");
  }
}

std::vector<OptionSpec> require_option_specs(const mts_precision& table, const VettedPlugin& vetted) {
  try {
    return read_option_specs(table);
  } catch (const BadOptionSpec& bad) {
    refuse("bad-table", vetted, bad.what());
  }
}

PluginIdentity identify(const mts_precision& table, const VettedPlugin& vetted) {
  return {.id = text(table.id),
          .version = text(table.version),
          .vendor = text(table.vendor),
          .summary = text(table.summary),
          .sha256 = vetted.sha256,
          .file = vetted.file,
          .abi_major = table.header.abi_major,
          .abi_minor = table.header.abi_minor};
}

}  // namespace

PluginLibrary::PluginLibrary(const VettedPlugin& vetted) : mapping_(std::make_unique<Mapping>(vetted)) {
  table_ = mapping_->call_entry(vetted);
  require_header(table_, vetted);
  require_slots(*table_, vetted);
  require_id(*table_, vetted);
  option_specs_ = require_option_specs(*table_, vetted);
  identity_ = identify(*table_, vetted);
}

PluginLibrary::PluginLibrary(PluginLibrary&&) noexcept = default;
PluginLibrary& PluginLibrary::operator=(PluginLibrary&&) noexcept = default;
PluginLibrary::~PluginLibrary() = default;

bool PluginLibrary::understands(mts_clip_kind kind) const {
  if (kind == MTS_CLIP_NONE) return true;
  return kind > 0 && kind < 64 && (table_->clip_kinds >> kind & 1) != 0;
}

PluginLibrary load_plugin(const std::filesystem::path& file, const VetOptions& options) {
  return PluginLibrary(vet_plugin(file, options));
}

ConfiguredPlugin load_configured_plugin(const std::filesystem::path& file, const Config& config) {
  PluginLibrary library = load_plugin(file, {config.precision.sha256, config.plugins.require_pin});
  check_clip_kind(library, config.clip);
  std::vector<CheckedOption> options = check_options(library.option_specs(), config.precision.options);
  return {std::move(library), std::move(options)};
}

}  // namespace mantissa
