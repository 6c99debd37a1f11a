// The merged config as text that reads back to the same values.
#include <string>
#include <string_view>

#include "config/load.h"

namespace mantissa {
namespace {

// Sections hold plain keys, but for the options of a plugin, which are a section of their own.
size_t section_length(std::string_view key) {
  constexpr std::string_view kOptions = "precision.options";
  if (key.starts_with(std::string(kOptions) + ".")) return kOptions.size();
  return key.find('.');
}

}  // namespace

std::string to_toml(const LoadedConfig& loaded) {
  std::string text, section;
  for (const Setting& setting : loaded.settings) {
    const std::string_view key = setting.key;
    const size_t length = section_length(key);
    if (key.substr(0, length) != section) {
      section = key.substr(0, length);
      text += (text.empty() ? "[" : "\n[") + section + "]\n";
    }
    text += std::string(key.substr(length + 1)) + " = " + setting.value + "\n";
  }
  return text;
}

}  // namespace mantissa
