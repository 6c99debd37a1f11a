// Every refusal that is made before a byte of the file runs. Most files here are a good plugin with one thing changed.
#include "plugin/vet.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "abi/plugin_files.h"

namespace mantissa {
namespace {

using namespace testing_support;
using ::testing::HasSubstr;
using ::testing::Not;

class VetTest : public ::testing::Test {
 protected:
  // The kind with which `file` is refused; the message is one line that names the file.
  std::string kind_of(const fs::path& file, const VetOptions& options = {}) {
    const std::string kind = refusal([&] { vet_plugin(file, options); }, &message_);
    if (!kind.empty()) {
      EXPECT_THAT(message_, Not(HasSubstr("\n")));
      EXPECT_THAT(message_, HasSubstr(fs::weakly_canonical(file).string()));
    }
    return kind;
  }
  std::string kind_of_bytes(std::string_view bytes) { return kind_of(folder_.write("libmantissa-x.so", bytes)); }

  TemporaryFolder folder_;
  std::string good_ = read_file(shipped_plugin("fsdp_norm"));
  std::string message_;
};

// The note as it lies in the file.
std::string note_with_major(char major) { return std::string("mantissa\0\0\0\0", 12) + std::string({major, 0, 0, 0}); }

TEST_F(VetTest, Vet_GoodPlugin_TellsFileHashAndNote) {
  const VettedPlugin plugin = vet_plugin(shipped_plugin("fsdp_norm"));
  EXPECT_EQ(plugin.file, fs::canonical(shipped_plugin("fsdp_norm")));
  EXPECT_EQ(plugin.note.id, "fsdp_norm");
  EXPECT_EQ(plugin.note.abi_major, 1u);
  EXPECT_EQ(plugin.note.abi_minor, 0u);
  EXPECT_EQ(plugin.bytes.size(), good_.size());
  EXPECT_THAT(plugin.sha256, ::testing::MatchesRegex("[0-9a-f]{64}"));
}

TEST_F(VetTest, Vet_Hash_IsSha256OfTheFile) {
  FILE* const pipe = ::popen(("sha256sum < " + shipped_plugin("fsdp_norm").string()).c_str(), "r");
  char hash[65] = {};
  ASSERT_EQ(std::fread(hash, 1, 64, pipe), 64u);
  ::pclose(pipe);
  EXPECT_EQ(vet_plugin(shipped_plugin("fsdp_norm")).sha256, hash);
}

TEST_F(VetTest, Vet_AbsentFile_IsNotFound) { EXPECT_EQ(kind_of(folder_.path() / "absent.so"), "not-found"); }

TEST_F(VetTest, Vet_LinkToNowhere_IsNotFound) {
  fs::create_symlink("absent.so", folder_.path() / "link.so");
  EXPECT_EQ(refusal([&] { vet_plugin(folder_.path() / "link.so"); }), "not-found");
}

TEST_F(VetTest, Vet_LinkToPlugin_NamesTheTarget) {
  const fs::path target = folder_.write("target.so", good_);
  fs::create_symlink("target.so", folder_.path() / "link.so");
  EXPECT_EQ(vet_plugin(folder_.path() / "link.so").file, fs::canonical(target));
}

TEST_F(VetTest, Vet_LinkToWorldWritableFile_IsUnsafe) {
  const fs::path target = folder_.write("target.so", good_);
  ASSERT_EQ(::chmod(target.c_str(), 0646), 0);
  fs::create_symlink("target.so", folder_.path() / "link.so");
  EXPECT_EQ(refusal([&] { vet_plugin(folder_.path() / "link.so"); }), "unsafe-file");
}

TEST_F(VetTest, Vet_TextFile_IsNotAPlugin) {
  EXPECT_EQ(kind_of_bytes("plugin = \"fsdp_norm\"\n"), "not-a-plugin");
  EXPECT_EQ(kind_of_bytes("\x7f"
                          "EL"),
            "not-a-plugin");
}

TEST_F(VetTest, Vet_EmptyFile_IsNotAPlugin) {
  EXPECT_EQ(kind_of_bytes(""), "not-a-plugin");
  EXPECT_THAT(message_, HasSubstr("is empty"));
}

TEST_F(VetTest, Vet_Folder_IsUnsafe) { EXPECT_EQ(kind_of(folder_.path()), "unsafe-file"); }

TEST_F(VetTest, Vet_Fifo_IsUnsafeAndDoesNotHang) {
  ASSERT_EQ(::mkfifo((folder_.path() / "fifo.so").c_str(), 0600), 0);
  EXPECT_EQ(kind_of(folder_.path() / "fifo.so"), "unsafe-file");
}

TEST_F(VetTest, Vet_Socket_IsUnsafe) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder_.path() / "s.so").c_str(), sizeof address.sun_path - 1);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(kind_of(folder_.path() / "s.so"), "unsafe-file");
  ::close(socket);
}

TEST_F(VetTest, Vet_WorldWritableFile_IsUnsafe) {
  const fs::path file = folder_.write("libmantissa-x.so", good_);
  ASSERT_EQ(::chmod(file.c_str(), 0666), 0);
  EXPECT_EQ(kind_of(file), "unsafe-file");
}

TEST_F(VetTest, Vet_WorldWritableFolder_IsUnsafeUnlessSticky) {
  const fs::path file = folder_.write("libmantissa-x.so", good_);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
  EXPECT_EQ(kind_of(file), "unsafe-file");
  ASSERT_EQ(::chmod(folder_.path().c_str(), 01777), 0);
  EXPECT_EQ(kind_of(file), "");
}

TEST_F(VetTest, Vet_FileOfAnotherUser_IsUnsafeButForRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a file of another user";
  const fs::path file = folder_.write("libmantissa-x.so", good_);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chown(file.c_str(), 12345, 12345), 0);
  EXPECT_EQ(kind_of(file), "");
  ASSERT_EQ(::seteuid(12346), 0);
  const std::string kind = refusal([&] { vet_plugin(file); });
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(kind, "unsafe-file");
}

TEST_F(VetTest, Vet_OtherMachine_IsWrongMachine) {
  std::string bytes = good_;
  bytes[offsetof(Elf64_Ehdr, e_machine)] ^= 0x55;
  EXPECT_EQ(kind_of_bytes(bytes), "wrong-machine");
  bytes = good_;
  bytes[EI_CLASS] = ELFCLASS32;
  EXPECT_EQ(kind_of_bytes(bytes), "wrong-machine");
  bytes = good_;
  bytes[EI_DATA] ^= 3;
  EXPECT_EQ(kind_of_bytes(bytes), "wrong-machine");
}

TEST_F(VetTest, Vet_Executable_IsNotAPlugin) {
  std::string bytes = good_;
  bytes[offsetof(Elf64_Ehdr, e_type)] = ET_EXEC;
  EXPECT_EQ(kind_of_bytes(bytes), "not-a-plugin");
}

TEST_F(VetTest, Vet_LibraryWithoutNote_IsNotAPlugin) {
  EXPECT_EQ(kind_of_bytes(replaced(good_, note_with_major(1), std::string("mantisso\0\0\0\0\1\0\0\0", 16))),
            "not-a-plugin");
  EXPECT_EQ(kind_of(test_plugin("no_note")), "not-a-plugin");
  EXPECT_THAT(message_, HasSubstr("without the note"));
}

TEST_F(VetTest, Vet_OtherMajorInNote_IsAbiMajor) {
  EXPECT_EQ(kind_of_bytes(replaced(good_, note_with_major(1), note_with_major(2))), "abi-major");
  EXPECT_THAT(message_, HasSubstr("major 2"));
  EXPECT_THAT(message_, HasSubstr("speaks 1"));
}

TEST_F(VetTest, Vet_NewerMinorInNote_IsTaken) {
  const std::string old_note = note_with_major(1) + std::string(4, '\0');
  std::string new_note = old_note;
  new_note[16] = 9;
  const fs::path file = folder_.write("libmantissa-x.so", replaced(good_, old_note, new_note));
  EXPECT_EQ(vet_plugin(file).note.abi_minor, 9u);
}

TEST_F(VetTest, Vet_IllegalIdInNote_IsNotAPlugin) {
  EXPECT_EQ(kind_of_bytes(replaced(good_, note_with_major(1) + std::string("\0\0\0\0fsdp", 8),
                                   note_with_major(1) + std::string("\0\0\0\0f/dp", 8))),
            "not-a-plugin");
}

TEST_F(VetTest, Vet_NoEntry_IsNoEntry) {
  EXPECT_EQ(kind_of_bytes(replaced(good_, "mts_precision_entry_v1", "mts_precision_entry_v7")), "no-entry");
  EXPECT_EQ(kind_of(test_plugin("no_entry")), "no-entry");
}

TEST_F(VetTest, Vet_Pin_IsCompared) {
  const std::string hash = vet_plugin(shipped_plugin("fsdp_norm")).sha256;
  std::string upper = hash;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(kind_of(shipped_plugin("fsdp_norm"), {.sha256 = hash}), "");
  EXPECT_EQ(kind_of(shipped_plugin("fsdp_norm"), {.sha256 = upper, .require_pin = true}), "");
  EXPECT_EQ(kind_of(shipped_plugin("fsdp_norm"), {.sha256 = std::string(64, '0')}), "hash-mismatch");
  EXPECT_THAT(message_, HasSubstr(hash));
  EXPECT_EQ(kind_of(shipped_plugin("fsdp_norm"), {.sha256 = hash.substr(1)}), "hash-mismatch");
}

TEST_F(VetTest, Vet_UnpinnedWherePinIsRequired_IsHashMismatch) {
  EXPECT_EQ(kind_of(shipped_plugin("fsdp_norm"), {.sha256 = std::nullopt, .require_pin = true}), "hash-mismatch");
}

TEST_F(VetTest, Vet_PluginCutAnywhere_IsNotAPlugin) {
  for (size_t size = 0; size < good_.size(); size += 256) {
    EXPECT_EQ(kind_of_bytes(std::string_view(good_).substr(0, size)), "not-a-plugin") << "cut at " << size;
  }
  EXPECT_EQ(kind_of_bytes(std::string_view(good_).substr(0, good_.size() - 1)), "not-a-plugin");
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// Any outcome but a crash: build it with -fsanitize=address,undefined to see reads past the end.
void read_anyhow(const std::string& bytes) {
  // A heap block of just this size, so that a sanitizer knows its end.
  const std::vector<char> block(bytes.begin(), bytes.end());
  try {
    read_elf(std::as_bytes(std::span(block)));
  } catch (const ElfFault&) {
  }
}

TEST_F(VetTest, ReadElf_AnyByteChanged_NeverCrashes) {
  for (size_t at = 0; at < good_.size(); ++at) {
    for (const unsigned char value : {0x00, 0xff, 0x80, 0x7f}) {
      const char before = good_[at];
      good_[at] = static_cast<char>(value);
      try {
        read_elf(bytes_of(good_));
      } catch (const ElfFault&) {
      }
      good_[at] = before;
    }
  }
}

TEST_F(VetTest, ReadElf_RandomChangesAndCuts_NeverCrashes) {
  uint64_t state = 88172645463325252u;
  const auto random = [&] {  // xorshift64: the same files in every run
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  };
  for (int round = 0; round < 4000; ++round) {
    std::string bytes = good_;
    for (uint64_t change = random() % 12; change > 0; --change) {
      const size_t within = random() % 2 == 0 ? 0x800 : bytes.size();  // most that is read lies at the start
      bytes[random() % within] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    read_anyhow(bytes);
  }
}

TEST(ReadElf_FsdpNorm, ExportsOneSymbolAndNeedsOnlyTheCLibrary) {
  const VettedPlugin plugin = vet_plugin(shipped_plugin("fsdp_norm"));
  EXPECT_THAT(plugin.elf.exported, ::testing::ElementsAre("mts_precision_entry_v1"));
  for (const std::string& library : plugin.elf.needed) {
#if defined(__SANITIZE_ADDRESS__)
    if (library.starts_with("libasan.") || library.starts_with("libubsan.")) continue;
#endif
    EXPECT_THAT(library, ::testing::AnyOf(::testing::StartsWith("libc."), ::testing::StartsWith("libm."))) << library;
  }
}

TEST(ReadElf_CppPlugin, ExportsOneSymbolAndNeedsTheCppLibrary) {
  const VettedPlugin plugin = vet_plugin(test_plugin("throws"));
  EXPECT_THAT(plugin.elf.exported, ::testing::ElementsAre("mts_precision_entry_v1"));
  EXPECT_THAT(plugin.elf.needed, ::testing::Contains(::testing::StartsWith("libstdc++.")));
}

}  // namespace
}  // namespace mantissa
