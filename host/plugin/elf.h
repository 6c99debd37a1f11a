// What a shared object says about itself, read from its bytes: nothing is loaded and no code of it runs.
// The bytes come from strangers, so every read is checked against the end of the file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace mantissa {

/// The note of section .note.mantissa (mts_note in precision.h).
struct NoteInfo {
  uint32_t abi_major = 0;
  uint32_t abi_minor = 0;
  std::string id;
};

struct ElfInfo {
  std::optional<NoteInfo> note;       ///< absent: not a precision plugin
  std::vector<std::string> exported;  ///< symbols that the object defines and shows to others
  std::vector<std::string> needed;    ///< DT_NEEDED: libraries that are loaded with it
};

class ElfFault : public std::runtime_error {
 public:
  enum class Kind { not_elf, other_machine, damaged };
  ElfFault(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

/// Reads a whole shared object of this machine. Throws ElfFault, its text in the form "is a text file".
ElfInfo read_elf(std::span<const std::byte> file);

}  // namespace mantissa
