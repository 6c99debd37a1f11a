// The ABI does not move: precision.h against plugin_api/golden/abi-1.txt. Lines may be added to that file, never
// changed or removed; the size of a struct that has grown stays there as it was in minor 0.
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "abi/layout.h"

namespace {

constexpr LayoutLine kLines[] = {
#include "abi/layout.inc"
};

constexpr size_t kMinor0Lines = 166;
constexpr const char* kMinor0Sha256 = "a070147d747f6f29f4de26b85c3f52e39fd14c45f8532dd64fcd80169f1ac8fd";

const std::string kSource = MANTISSA_SOURCE_DIR;

std::string to_text(const LayoutLine& line) {
  std::string text = std::string(line.name) + ' ' + std::to_string(line.first);
  return line.second < 0 ? text : text + ' ' + std::to_string(line.second);
}

bool is_struct(const LayoutLine& line) { return std::string_view(line.name).starts_with("mts_") && line.second < 0; }

std::vector<std::string> golden_lines() {
  std::ifstream file(kSource + "/plugin_api/golden/abi-1.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string read_header() {
  std::ifstream file(kSource + "/plugin_api/include/mantissa/precision.h");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string hex_sha256(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  std::string hex;
  for (const unsigned char byte : digest) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    hex += two;
  }
  return hex;
}

TEST(Layout_EveryFieldAndConstant, IsInTheGoldenFile) {
  const std::vector<std::string> lines = golden_lines();
  const std::set<std::string> golden(lines.begin(), lines.end());
  for (const LayoutLine& line : kLines) {
    if (is_struct(line)) continue;  // may have grown
    EXPECT_TRUE(golden.contains(to_text(line))) << "not in golden/abi-1.txt: " << to_text(line);
  }
}

TEST(Layout_EveryGoldenLine, StillHolds) {
  std::map<std::string, LayoutLine> now;
  for (const LayoutLine& line : kLines) now[line.name] = line;
  const std::vector<std::string> golden = golden_lines();
  ASSERT_GE(golden.size(), kMinor0Lines);
  for (const std::string& text : golden) {
    const std::string name = text.substr(0, text.find(' '));
    ASSERT_TRUE(now.contains(name)) << name << " is gone";
    if (is_struct(now[name])) {
      EXPECT_GE(now[name].first, std::stoll(text.substr(name.size()))) << name << " has shrunk";
    } else {
      EXPECT_EQ(to_text(now[name]), text);
    }
  }
}

TEST(Layout_GoldenLinesOfMinor0, AreThoseOfTheRelease) {
  const std::vector<std::string> golden = golden_lines();
  ASSERT_GE(golden.size(), kMinor0Lines);
  std::string text;
  for (size_t i = 0; i < kMinor0Lines; ++i) text += golden[i] + '\n';
  EXPECT_EQ(hex_sha256(text), kMinor0Sha256);
}

TEST(Layout_InC, EqualsThatInCpp) {
  size_t count = 0;
  const LayoutLine* const c = layout_in_c(&count);
  ASSERT_EQ(count, std::size(kLines));
  for (size_t i = 0; i < count; ++i) EXPECT_EQ(to_text(c[i]), to_text(kLines[i]));
}

// No padding: so a field that is missing in layout.inc leaves a gap.
TEST(Layout_SizesOfFields, AddUpToTheStruct) {
  std::map<std::string, long long> sizes, sums;
  for (const LayoutLine& line : kLines) {
    const std::string name = line.name;
    if (is_struct(line)) sizes[name] = line.first;
    if (line.second >= 0) sums[name.substr(0, name.find('.'))] += line.second;
  }
  EXPECT_EQ(sizes, sums);
}

TEST(Layout_EveryEnumValueAndStructOfTheHeader, IsListed) {
  std::set<std::string> listed;
  for (const LayoutLine& line : kLines) listed.insert(line.name);
  const std::string header = read_header();
  const std::regex value(R"((MTS_[A-Z0-9_]+) = -?[0-9]+)"), structure(R"(\} (mts_[a-z_]+);)");
  for (const std::regex& pattern : {value, structure}) {
    auto match = std::sregex_iterator(header.begin(), header.end(), pattern);
    ASSERT_NE(match, std::sregex_iterator());
    for (; match != std::sregex_iterator(); ++match) EXPECT_TRUE(listed.contains((*match)[1])) << (*match)[1];
  }
}

}  // namespace
