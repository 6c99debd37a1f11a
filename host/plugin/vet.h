// A file is vetted before any of its code runs: what it is, whose it is, for which machine and ABI, and its hash.
#pragma once
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "plugin/elf.h"

namespace mantissa {

struct VetOptions {
  std::optional<std::string> sha256;  ///< the hash that the file must have, 64 hex digits in either case
  bool require_pin = false;           ///< refuse every file if `sha256` is absent
};

/// A file that may be loaded. `bytes` are those that were judged and hashed; they are what PluginLibrary loads.
struct VettedPlugin {
  std::filesystem::path file;  ///< absolute, links resolved
  std::string sha256;          ///< of the whole file, 64 lower-case hex digits
  ElfInfo elf;
  NoteInfo note;
  std::vector<std::byte> bytes;
};

/// Opens the file once and judges what that descriptor shows, in this order: a regular file that only root and the user
/// can change, its folder likewise; an undamaged shared object of this machine; the note, its major and its id; the
/// entry symbol; the hash. Throws PluginRefused: not-found, unsafe-file, not-a-plugin, wrong-machine, abi-major,
/// no-entry, hash-mismatch.
VettedPlugin vet_plugin(const std::filesystem::path& file, const VetOptions& options = {});

/// [a-z0-9_], 1 to 63 characters.
bool is_legal_plugin_id(std::string_view id);

}  // namespace mantissa
