// Plugin files for tests: built ones by name, and changed copies of them in a folder of the test's own.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mantissa::testing_support {

namespace fs = std::filesystem;

inline fs::path shipped_plugin(const std::string& name) {
  return fs::path(MANTISSA_BUILD_DIR) / "plugins" / ("libmantissa-" + name + ".so");
}
/// Built from tests/abi/plugins.
inline fs::path test_plugin(const std::string& name) {
  return fs::path(MANTISSA_BUILD_DIR) / "tests/plugins" / ("libmantissa-" + name + ".so");
}

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "mantissa-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }
  fs::path write(const std::string& name, std::string_view bytes) const {
    const fs::path file = path_ / name;
    std::ofstream(file, std::ios::binary) << bytes;
    fs::permissions(file,
                    fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read | fs::perms::others_read);
    return file;
  }

 private:
  fs::path path_;
};

/// `bytes` with every `from` replaced by `to` of the same length; there must be one.
inline std::string replaced(std::string bytes, std::string_view from, std::string_view to) {
  EXPECT_EQ(from.size(), to.size());
  size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << "nothing to replace";
  for (; at != std::string::npos; at = bytes.find(from, at + to.size())) bytes.replace(at, to.size(), to);
  return bytes;
}

/// The kind with which `action` refuses a plugin, "" if it does not; `message` gets the text.
template <class Action>
std::string refusal(Action action, std::string* message = nullptr) {
  try {
    action();
    return "";
  } catch (const PluginRefused& refused) {
    if (message != nullptr) *message = refused.what();
    EXPECT_EQ(refused.exit_code(), ExitCode::plugin);
    return refused.kind();
  }
}

}  // namespace mantissa::testing_support
