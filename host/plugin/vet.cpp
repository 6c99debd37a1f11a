#include "plugin/vet.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "mantissa/precision.h"

namespace mantissa {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kEntry = "mts_precision_entry_v1";
constexpr off_t kMaxSize = off_t{1} << 30;

[[noreturn]] void refuse(std::string_view kind, const fs::path& file, const std::string& why) {
  throw PluginRefused(kind, "plugin " + file.string() + ": " + why);
}

// O_NONBLOCK: a FIFO without a writer would block for ever.
FileDescriptor open_file(const fs::path& file) {
  FileDescriptor descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (descriptor.is_open()) return descriptor;
  const int error = errno;
  const bool absent = error == ENOENT || error == ENOTDIR || error == ELOOP;
  refuse(absent ? "not-found" : "unsafe-file", file,
         std::string("cannot be opened (") + std::strerror(error) + "); need a file that this user can read");
}

// The name of what was opened, whatever the path points to by now.
fs::path opened_path(const FileDescriptor& descriptor, const fs::path& file) {
  std::error_code error;
  fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor.get()), error);
  return error ? fs::canonical(file) : path;
}

// Root may load any user's files; others only their own and root's.
void require_trusted(const struct stat& status, const fs::path& file, const std::string& subject) {
  const uid_t user = ::geteuid();
  if (user != 0 && status.st_uid != 0 && status.st_uid != user) {
    refuse("unsafe-file", file,
           subject + " belongs to user " + std::to_string(status.st_uid) + "; need one of root or of user " +
               std::to_string(user) + ": copy it to your own folder");
  }
  // In a sticky folder (/tmp) nobody can replace the file of another user.
  const bool sticky_folder = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  if ((status.st_mode & S_IWOTH) != 0 && !sticky_folder) {
    refuse("unsafe-file", file, subject + " can be changed by every user; run: chmod o-w on it");
  }
}

std::string file_kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no regular file";
}

struct stat require_safe_file(const FileDescriptor& descriptor, const fs::path& file) {
  struct stat status{};
  if (::fstat(descriptor.get(), &status) != 0)
    refuse("unsafe-file", file, std::string("fstat: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    refuse("unsafe-file", file, "is " + file_kind(status.st_mode) + "; need a regular file");
  require_trusted(status, file, "the file");
  struct stat folder{};
  if (::stat(file.parent_path().c_str(), &folder) != 0)
    refuse("unsafe-file", file, std::string("its folder: ") + std::strerror(errno));
  require_trusted(folder, file, "its folder");
  return status;
}

std::vector<std::byte> read_all(const FileDescriptor& descriptor, off_t size, const fs::path& file) {
  if (size > kMaxSize) refuse("not-a-plugin", file, "has " + std::to_string(size) + " bytes; need at most 1 GiB");
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pread(descriptor.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse("unsafe-file", file, std::string("cannot be read: ") + std::strerror(errno));
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

ElfInfo require_elf(std::span<const std::byte> bytes, const fs::path& file) {
  try {
    return read_elf(bytes);
  } catch (const ElfFault& fault) {
    const bool foreign = fault.kind() == ElfFault::Kind::other_machine;
    refuse(foreign ? "wrong-machine" : "not-a-plugin", file,
           std::string(fault.what()) + (foreign ? "; need a plugin that was built for this machine"
                                                : "; need a shared object that was built as a precision plugin"));
  }
}

NoteInfo require_note(const ElfInfo& elf, const fs::path& file) {
  if (!elf.note) {
    refuse("not-a-plugin", file,
           "is a library without the note of a precision plugin; build it with MTS_PRECISION_NOTE");
  }
  const NoteInfo& note = *elf.note;
  if (note.abi_major != MTS_ABI_MAJOR) {
    refuse("abi-major", file,
           "was built for major " + std::to_string(note.abi_major) + " of the ABI; this program speaks " +
               std::to_string(MTS_ABI_MAJOR) + ": build it against that precision.h");
  }
  if (!is_legal_plugin_id(note.id)) {
    refuse("not-a-plugin", file, "its note has no legal id; need 1 to 63 characters of a-z, 0-9 and _");
  }
  return note;
}

void require_entry(const ElfInfo& elf, const fs::path& file) {
  if (std::ranges::binary_search(elf.exported, kEntry)) return;
  refuse("no-entry", file, "does not export " + std::string(kEntry) + "; define that function with MTS_EXPORT");
}

std::string sha256_of(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    throw Error("SHA-256 failed in OpenSSL");
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += digits[digest[i] >> 4];
    text += digits[digest[i] & 15];
  }
  return text;
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

void require_hash(const std::string& sha256, const VetOptions& options, const fs::path& file) {
  if (!options.sha256) {
    if (!options.require_pin) return;
    refuse("hash-mismatch", file,
           "is not pinned, and plugins.require_pin is true; if you trust the file, add: sha256 = \"" + sha256 + "\"");
  }
  if (lower_case(*options.sha256) != sha256) {
    refuse("hash-mismatch", file,
           "has sha256 " + sha256 + ", precision.sha256 asks for " + *options.sha256 +
               "; put back that file, or change the pin if you trust this one");
  }
}

}  // namespace

bool is_legal_plugin_id(std::string_view id) {
  const auto legal = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !id.empty() && id.size() <= 63 && std::ranges::all_of(id, legal);
}

VettedPlugin vet_plugin(const fs::path& file, const VetOptions& options) {
  const FileDescriptor descriptor = open_file(file);
  VettedPlugin plugin;
  plugin.file = opened_path(descriptor, file);
  const struct stat status = require_safe_file(descriptor, plugin.file);
  plugin.bytes = read_all(descriptor, status.st_size, plugin.file);
  plugin.elf = require_elf(plugin.bytes, plugin.file);
  plugin.note = require_note(plugin.elf, plugin.file);
  require_entry(plugin.elf, plugin.file);
  plugin.sha256 = sha256_of(plugin.bytes);
  require_hash(plugin.sha256, options, plugin.file);
  return plugin;
}

}  // namespace mantissa
