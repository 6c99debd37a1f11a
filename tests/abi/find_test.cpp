#include "plugin/find.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "abi/plugin_files.h"

namespace mantissa {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;

class FindTest : public ::testing::Test {
 protected:
  FindTest() {
    first_.write("libmantissa-norm.so", "1");
    second_.write("libmantissa-norm.so", "2");
    second_.write("libmantissa-value.so", "2");
    second_.write("libother.so", "2");
  }
  TemporaryFolder first_, second_;
  SearchPath search_{{first_.path(), "/does/not/exist", second_.path()}};
};

TEST_F(FindTest, Find_NameInTwoFolders_FirstWins) {
  EXPECT_EQ(find_plugin("norm", search_), first_.path() / "libmantissa-norm.so");
  EXPECT_EQ(find_plugin("value", search_), second_.path() / "libmantissa-value.so");
}

TEST_F(FindTest, Find_Path_IsUsedAsGiven) {
  EXPECT_EQ(find_plugin((second_.path() / "libother.so").string(), search_), second_.path() / "libother.so");
  EXPECT_EQ(refusal([&] { find_plugin("/does/not/exist.so", search_); }), "not-found");
}

TEST_F(FindTest, Find_LinkToNowhere_IsFoundAndNotPassedOver) {
  fs::create_symlink("absent", first_.path() / "libmantissa-value.so");
  EXPECT_EQ(find_plugin("value", search_), first_.path() / "libmantissa-value.so");
}

TEST_F(FindTest, Find_UnknownName_SaysWhereItLookedAndWhatIsNear) {
  std::string message;
  EXPECT_EQ(refusal([&] { find_plugin("nrom", search_); }, &message), "not-found");
  EXPECT_THAT(message, HasSubstr(first_.path().string()));
  EXPECT_THAT(message, HasSubstr(second_.path().string()));
  EXPECT_THAT(message, HasSubstr("did you mean \"norm\"?"));
}

TEST_F(FindTest, List_TwoFolders_NamesEachOnce) {
  const std::vector<FoundPlugin> plugins = list_plugins(search_);
  ASSERT_EQ(plugins.size(), 2u);
  EXPECT_EQ(plugins[0].name, "norm");
  EXPECT_EQ(plugins[0].file, first_.path() / "libmantissa-norm.so");
  EXPECT_EQ(plugins[1].name, "value");
}

TEST(SearchPath_FromEnvironment, HasVariableThenInstalledThenBuildTree) {
  ::setenv("MANTISSA_PLUGIN_PATH", "/a/b::/c", 1);
  const SearchPath search = from_environment("/opt/m/bin/mantissa");
  ::unsetenv("MANTISSA_PLUGIN_PATH");
  EXPECT_THAT(search.folders, ::testing::ElementsAre("/a/b", "/c", "/opt/m/lib/mantissa/plugins", "/opt/m/plugins"));
  EXPECT_EQ(from_environment("/opt/m/bin/mantissa").folders.size(), 2u);
}

}  // namespace
}  // namespace mantissa
