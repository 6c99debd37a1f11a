// precision.h is clean in every language version that a plugin may be written in; the C++ kit from C++11 on.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <cstdio>
#include <memory>
#include <string>

namespace {

struct Compilation {
  const char* compiler;
  const char* language;  // "c" or "c++"
  const char* standard;
  const char* header;
};

std::ostream& operator<<(std::ostream& out, const Compilation& c) {
  return out << c.header << " by " << c.compiler << ' ' << c.standard;
}

class HeaderTest : public testing::TestWithParam<Compilation> {};

struct Outcome {
  int status;
  std::string output;
};

Outcome run(const std::string& command) {
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string output;
  for (char buffer[512]; std::fgets(buffer, sizeof buffer, pipe) != nullptr;) output += buffer;
  return {::pclose(pipe), output};
}

TEST_P(HeaderTest, Header_StrictWarnings_Compiles) {
  const Compilation& c = GetParam();
  if (std::string(c.compiler).empty()) GTEST_SKIP() << "no clang on this machine";
  const bool is_abi = std::string(c.header) == "mantissa/precision.h";
  const std::string command =
      std::string("printf '#include <") + c.header + ">\\n' | " + c.compiler + " -x " + c.language +
      " -std=" + c.standard + " -I" MANTISSA_SOURCE_DIR "/plugin_api/include" +
      " -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Werror" +
      (is_abi ? " -Wpadded" : "") + " -";
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.status, 0) << command << '\n' << outcome.output;
}

constexpr const char* kAbi = "mantissa/precision.h";
constexpr const char* kKit = "mantissa/precision.hpp";

std::vector<Compilation> compilations(const char* c, const char* cxx) {
  std::vector<Compilation> list;
  for (const char* standard : {"c11", "c17"}) list.push_back({c, "c", standard, kAbi});
  for (const char* standard : {"c++11", "c++14", "c++17", "c++20", "c++2b"}) {
    list.push_back({cxx, "c++", standard, kAbi});
    list.push_back({cxx, "c++", standard, kKit});
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(BuildCompiler, HeaderTest, testing::ValuesIn(compilations(MANTISSA_CC, MANTISSA_CXX)));
INSTANTIATE_TEST_SUITE_P(Clang, HeaderTest, testing::ValuesIn(compilations(MANTISSA_CLANG, MANTISSA_CLANGXX)));

}  // namespace
