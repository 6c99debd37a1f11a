// Which plugin a run uses, for logs, plugins.json and reports. Plain data: needs no header of the ABI.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace mantissa {

struct PluginIdentity {
  std::string id, version, vendor, summary;
  std::string sha256;                     ///< of the file, 64 lower-case hex digits
  std::filesystem::path file;             ///< absolute, links resolved
  uint32_t abi_major = 0, abi_minor = 0;  ///< that the plugin was compiled for
};

}  // namespace mantissa
