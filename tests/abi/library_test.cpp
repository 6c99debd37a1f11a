// Loading and negotiating, with plugins that have one fault each (plugins/bad.c).
#include "plugin/library.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "abi/plugin_files.h"
#include "plugin/private_copy.h"

namespace mantissa {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;

std::string maps() { return read_file("/proc/self/maps"); }

struct BadPlugin {
  const char* name;
  const char* kind;
  const char* says;
};

void PrintTo(const BadPlugin& bad, std::ostream* out) { *out << bad.name; }

class BadPluginTest : public ::testing::TestWithParam<BadPlugin> {};

TEST_P(BadPluginTest, Load_FaultyPlugin_IsRefusedWithItsKind) {
  std::string message;
  EXPECT_EQ(refusal([] { load_plugin(test_plugin(GetParam().name)); }, &message), GetParam().kind);
  EXPECT_THAT(message, HasSubstr(GetParam().says));
  EXPECT_THAT(message, HasSubstr(std::string("libmantissa-") + GetParam().name + ".so"));
  EXPECT_THAT(message, ::testing::Not(HasSubstr("\n")));
  EXPECT_THAT(maps(), ::testing::Not(HasSubstr(std::string("libmantissa-") + GetParam().name))) << "still mapped";
}

INSTANTIATE_TEST_SUITE_P(
    All, BadPluginTest,
    ::testing::Values(
        BadPlugin{"unresolved", "load-failed", "undefined symbol: mantissa_symbol_that_nobody_defines; link"},
        BadPlugin{"null", "bad-table", "returned NULL"}, BadPlugin{"entry_throws", "bad-table", "threw"},
        BadPlugin{"major", "abi-major", "major 2"}, BadPlugin{"short", "bad-table", "struct_size 176; need 184"},
        BadPlugin{"size", "bad-table", "struct_size 18446744073709551615"},
        BadPlugin{"no_create", "bad-table", "slot create"}, BadPlugin{"no_destroy", "bad-table", "slot destroy"},
        BadPlugin{"no_plan", "bad-table", "slot plan"}, BadPlugin{"id", "id-mismatch", "\"good\""},
        BadPlugin{"no_id", "bad-table", "id \"\""}, BadPlugin{"option", "bad-table", "option \"a\""}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(Load_FsdpNorm, TellsItsIdentity) {
  const PluginLibrary library = load_plugin(shipped_plugin("fsdp_norm"));
  const PluginIdentity& identity = library.identity();
  EXPECT_EQ(identity.id, "fsdp_norm");
  EXPECT_EQ(identity.version, "1.0.0");
  EXPECT_EQ(identity.vendor, "Mantissa");
  EXPECT_EQ(identity.abi_major, 1u);
  EXPECT_EQ(identity.abi_minor, 0u);
  EXPECT_EQ(identity.file, fs::canonical(shipped_plugin("fsdp_norm")));
  EXPECT_EQ(identity.sha256, vet_plugin(shipped_plugin("fsdp_norm")).sha256);
  EXPECT_EQ(library.option_specs().size(), 2u);
  EXPECT_TRUE(library.understands(MTS_CLIP_NONE));
  EXPECT_TRUE(library.understands(MTS_CLIP_NORM));
  EXPECT_FALSE(library.understands(MTS_CLIP_VALUE));
}

TEST(Load_TableOfALaterMinor, IsTaken) {
  const PluginLibrary library = load_plugin(test_plugin("later_minor"));
  EXPECT_EQ(library.identity().abi_minor, MTS_ABI_MINOR + 1);
  EXPECT_TRUE(library.understands(MTS_CLIP_VALUE));
}

TEST(Load_FileOverwrittenAfterVetting, RunsTheVettedBytes) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("libmantissa-x.so", read_file(shipped_plugin("fsdp_norm")));
  const VettedPlugin vetted = vet_plugin(file);
  folder.write("libmantissa-x.so", "overwritten");
  EXPECT_EQ(PluginLibrary(vetted).identity().id, "fsdp_norm");
}

// A rebuilt plugin beside the old one: glibc hands back the old library for the same name.
TEST(Load_SameNameOtherBytes, GivesTheNewPlugin) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("libmantissa-x.so", read_file(shipped_plugin("fsdp_norm")));
  const PluginLibrary first = load_plugin(file);
  fs::remove(file);
  folder.write("libmantissa-x.so", read_file(test_plugin("minimal")));
  const PluginLibrary second = load_plugin(file);
  EXPECT_EQ(first.identity().id, "fsdp_norm");
  EXPECT_EQ(second.identity().id, "minimal");
  EXPECT_NE(&first.table(), &second.table());
}

TEST(Load_Destroyed, UnmapsTheLibrary) {
  for (const fs::path& file : {shipped_plugin("fsdp_norm"), test_plugin("throws")}) {
    {
      const PluginLibrary library = load_plugin(file);
      EXPECT_THAT(maps(), HasSubstr(file.filename().string()));
    }
    EXPECT_THAT(maps(), ::testing::Not(HasSubstr(file.filename().string())));
  }
}

TEST(Load_Moved, KeepsTheTable) {
  PluginLibrary library = load_plugin(shipped_plugin("fsdp_norm"));
  const mts_precision* const table = &library.table();
  const PluginLibrary moved = std::move(library);
  EXPECT_EQ(&moved.table(), table);
  EXPECT_STREQ(moved.table().id, "fsdp_norm");
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(PrivateCopy_InMemory, CannotBeWritten) {
  const PrivateCopy copy = PrivateCopy::in_memory(bytes_of("abc"), "x");
  EXPECT_EQ(read_file(copy.path()), "abc");
  const int descriptor = ::open(copy.path().c_str(), O_RDWR);
  if (descriptor >= 0) {
    EXPECT_LT(::write(descriptor, "x", 1), 0);
    ::close(descriptor);
  }
  EXPECT_EQ(read_file(copy.path()), "abc");
}

TEST(PrivateCopy_InFolder, IsReadOnlyAndGoesWithTheCopy) {
  const TemporaryFolder folder;
  fs::path path;
  {
    const PrivateCopy copy = PrivateCopy::in_folder(bytes_of("abc"), folder.path());
    path = copy.path();
    EXPECT_EQ(read_file(path), "abc");
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_exec);
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace mantissa
