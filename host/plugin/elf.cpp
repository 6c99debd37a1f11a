#include "plugin/elf.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <string_view>
#include <type_traits>

namespace mantissa {
namespace {

using Kind = ElfFault::Kind;

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#elif defined(__powerpc64__)
constexpr uint16_t kMachine = EM_PPC64;
#elif defined(__riscv)
constexpr uint16_t kMachine = EM_RISCV;
#elif defined(__s390x__)
constexpr uint16_t kMachine = EM_S390;
#else
#error "add this machine's e_machine"
#endif
constexpr unsigned char kByteOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;

constexpr std::string_view kNoteName = "mantissa";
constexpr std::string_view kNoteSection = ".note.mantissa";
constexpr uint32_t kNoteType = 1;
constexpr size_t kNoteIdSize = 64;

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_386: return "i386";
    case EM_X86_64: return "x86-64";
    case EM_ARM: return "arm";
    case EM_AARCH64: return "aarch64";
    case EM_PPC64: return "ppc64";
    case EM_RISCV: return "riscv";
    case EM_S390: return "s390";
    default: return "machine " + std::to_string(machine);
  }
}

[[noreturn]] void damaged(const std::string& what) { throw ElfFault(Kind::damaged, "is cut or damaged: " + what); }

struct Range {
  uint64_t offset = 0;
  uint64_t size = 0;
};

// A file of which every read is checked.
class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> file) : file_(file) {}

  uint64_t size() const { return file_.size(); }

  void require(Range range, const char* what) const {
    if (range.offset > size() || range.size > size() - range.offset) {
      damaged(std::string(what) + " ends past byte " + std::to_string(size()));
    }
  }

  template <class T>
  T read(uint64_t offset, const char* what) const {
    static_assert(std::is_trivially_copyable_v<T>);
    require({offset, sizeof(T)}, what);
    T value;
    std::memcpy(&value, file_.data() + offset, sizeof(T));
    return value;
  }

  // Element `index` of an array at `offset`.
  template <class T>
  T read(uint64_t offset, uint64_t index, const char* what) const {
    if (offset > size() || index > size() / sizeof(T)) damaged(std::string(what) + " lies past the end");
    return read<T>(offset + index * sizeof(T), what);
  }

  // The terminated string at `at` in the string table `table`.
  std::string_view string(Range table, uint64_t at) const {
    require(table, "string table");
    if (at >= table.size) damaged("a name lies outside of its string table");
    const char* const begin = reinterpret_cast<const char*>(file_.data()) + table.offset + at;
    const size_t limit = table.size - at;
    const size_t length = strnlen(begin, limit);
    if (length == limit) damaged("a name has no end");
    return {begin, length};
  }

  std::string_view text(Range range) const {
    require(range, "text");
    return {reinterpret_cast<const char*>(file_.data()) + range.offset, range.size};
  }

 private:
  std::span<const std::byte> file_;
};

Elf64_Ehdr read_header(const Bytes& file) {
  if (file.size() == 0) throw ElfFault(Kind::not_elf, "is empty");
  if (file.size() < SELFMAG || file.text({0, SELFMAG}) != std::string_view(ELFMAG, SELFMAG)) {
    throw ElfFault(Kind::not_elf, "is no ELF file");
  }
  const auto ident = file.read<std::array<unsigned char, EI_NIDENT>>(0, "ELF header");
  if (ident[EI_CLASS] != ELFCLASS64) throw ElfFault(Kind::other_machine, "is not a 64-bit object");
  if (ident[EI_DATA] != kByteOrder) throw ElfFault(Kind::other_machine, "has the other byte order");
  const auto header = file.read<Elf64_Ehdr>(0, "ELF header");
  if (header.e_machine != kMachine) {
    throw ElfFault(Kind::other_machine,
                   "is for " + machine_name(header.e_machine) + ", this machine is " + machine_name(kMachine));
  }
  if (header.e_type != ET_DYN)
    throw ElfFault(Kind::not_elf, "is no shared object (ELF type " + std::to_string(header.e_type) + ")");
  return header;
}

// Every part of the file that the loader will map must be there: a page past the end is a SIGBUS.
std::vector<Elf64_Phdr> read_segments(const Bytes& file, const Elf64_Ehdr& header) {
  if (header.e_phentsize != sizeof(Elf64_Phdr))
    damaged("program headers of " + std::to_string(header.e_phentsize) + " bytes");
  std::vector<Elf64_Phdr> segments;
  for (uint16_t i = 0; i < header.e_phnum; ++i) {
    segments.push_back(file.read<Elf64_Phdr>(header.e_phoff, i, "program header"));
    file.require({segments.back().p_offset, segments.back().p_filesz}, "segment");
  }
  return segments;
}

// None in a file that was stripped of them; the loader does not need them.
std::vector<Elf64_Shdr> read_sections(const Bytes& file, const Elf64_Ehdr& header) {
  std::vector<Elf64_Shdr> sections;
  if (header.e_shoff == 0) return sections;
  if (header.e_shentsize != sizeof(Elf64_Shdr))
    damaged("section headers of " + std::to_string(header.e_shentsize) + " bytes");
  for (uint16_t i = 0; i < header.e_shnum; ++i) {
    sections.push_back(file.read<Elf64_Shdr>(header.e_shoff, i, "section header"));
    if (sections.back().sh_type != SHT_NOBITS)
      file.require({sections.back().sh_offset, sections.back().sh_size}, "section");
  }
  return sections;
}

uint64_t padded(uint64_t size, uint64_t alignment) { return (size + alignment - 1) / alignment * alignment; }

NoteInfo parse_note(const Bytes& file, Range description) {
  if (description.size < 2 * sizeof(uint32_t) + kNoteIdSize) damaged("its note is too short");
  NoteInfo note;
  note.abi_major = file.read<uint32_t>(description.offset, "note");
  note.abi_minor = file.read<uint32_t>(description.offset + 4, "note");
  const std::string_view id = file.text({description.offset + 8, kNoteIdSize});
  note.id = id.substr(0, id.find('\0'));
  return note;
}

// The notes that lie one after the other in `range`.
std::optional<NoteInfo> find_note(const Bytes& file, Range range, uint64_t alignment) {
  const uint64_t end = range.offset + range.size;
  for (uint64_t at = range.offset; at < end && end - at >= sizeof(Elf64_Nhdr);) {
    const auto head = file.read<Elf64_Nhdr>(at, "note");
    const Range name{at + sizeof head, head.n_namesz};
    const Range description{at + padded(sizeof head + name.size, alignment), head.n_descsz};
    if (name.size > end - name.offset || description.offset > end || description.size > end - description.offset)
      return {};
    const std::string_view text = file.text(name);
    if (text.substr(0, text.find('\0')) == kNoteName && head.n_type == kNoteType) return parse_note(file, description);
    at = description.offset + padded(description.size, alignment);
  }
  return {};
}

// By segment, and by section for a linker that made no segment of it.
std::optional<NoteInfo> find_note(const Bytes& file, const Elf64_Ehdr& header, const std::vector<Elf64_Phdr>& segments,
                                  const std::vector<Elf64_Shdr>& sections) {
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_NOTE) continue;
    if (auto note = find_note(file, {segment.p_offset, segment.p_filesz}, segment.p_align == 8 ? 8 : 4)) return note;
  }
  if (header.e_shstrndx >= sections.size()) return {};
  const Elf64_Shdr& names = sections[header.e_shstrndx];
  if (names.sh_type != SHT_STRTAB) return {};
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type == SHT_NOBITS) continue;
    if (file.string({names.sh_offset, names.sh_size}, section.sh_name) != kNoteSection) continue;
    if (auto note = find_note(file, {section.sh_offset, section.sh_size}, 4)) return note;
  }
  return {};
}

// The dynamic section: where the loader finds symbols, their names and the libraries that are needed.
struct Dynamic {
  uint64_t symbols = 0, hash = 0, gnu_hash = 0;  // file offsets, 0: absent
  Range strings;
  std::vector<uint64_t> needed;  // offsets into strings
};

uint64_t file_offset(const std::vector<Elf64_Phdr>& segments, uint64_t address) {
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  damaged("its dynamic section points outside of the file");
}

Dynamic read_dynamic(const Bytes& file, const std::vector<Elf64_Phdr>& segments) {
  const auto segment = std::ranges::find(segments, PT_DYNAMIC, &Elf64_Phdr::p_type);
  if (segment == segments.end()) damaged("it has no dynamic section");
  Dynamic dynamic;
  for (uint64_t i = 0; i < segment->p_filesz / sizeof(Elf64_Dyn); ++i) {
    const auto entry = file.read<Elf64_Dyn>(segment->p_offset, i, "dynamic section");
    switch (entry.d_tag) {
      case DT_NULL: return dynamic;
      case DT_SYMTAB: dynamic.symbols = file_offset(segments, entry.d_un.d_ptr); break;
      case DT_HASH: dynamic.hash = file_offset(segments, entry.d_un.d_ptr); break;
      case DT_GNU_HASH: dynamic.gnu_hash = file_offset(segments, entry.d_un.d_ptr); break;
      case DT_STRTAB: dynamic.strings.offset = file_offset(segments, entry.d_un.d_ptr); break;
      case DT_STRSZ: dynamic.strings.size = entry.d_un.d_val; break;
      case DT_NEEDED: dynamic.needed.push_back(entry.d_un.d_val); break;
      default: break;
    }
  }
  return dynamic;
}

// The table itself does not say how long it is: the largest symbol of the GNU hash table ends the last chain.
uint64_t count_by_gnu_hash(const Bytes& file, uint64_t table) {
  struct Head {
    uint32_t num_buckets, first_symbol, bloom_size, bloom_shift;
  };
  const auto head = file.read<Head>(table, "hash table");
  const uint64_t buckets = table + sizeof head + uint64_t{head.bloom_size} * 8;
  const uint64_t chains = buckets + uint64_t{head.num_buckets} * 4;
  file.require({table, chains - table}, "hash table");
  uint64_t last = 0;
  for (uint64_t i = 0; i < head.num_buckets; ++i)
    last = std::max<uint64_t>(last, file.read<uint32_t>(buckets, i, "hash table"));
  if (last < head.first_symbol) return head.first_symbol;
  while ((file.read<uint32_t>(chains, last - head.first_symbol, "hash table") & 1) == 0) ++last;
  return last + 1;
}

uint64_t count_symbols(const Bytes& file, const Dynamic& dynamic) {
  if (dynamic.gnu_hash != 0) return count_by_gnu_hash(file, dynamic.gnu_hash);
  if (dynamic.hash != 0) return file.read<uint32_t>(dynamic.hash, 1, "hash table");
  return 0;
}

bool is_exported(const Elf64_Sym& symbol) {
  const unsigned binding = ELF64_ST_BIND(symbol.st_info);
  const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
  return symbol.st_shndx != SHN_UNDEF && binding != STB_LOCAL &&
         (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
}

std::vector<std::string> read_exported(const Bytes& file, const Dynamic& dynamic) {
  std::set<std::string> names;
  if (dynamic.symbols == 0) return {};
  const uint64_t count = count_symbols(file, dynamic);
  for (uint64_t i = 0; i < count; ++i) {
    const auto symbol = file.read<Elf64_Sym>(dynamic.symbols, i, "symbol table");
    if (is_exported(symbol)) names.emplace(file.string(dynamic.strings, symbol.st_name));
  }
  return {names.begin(), names.end()};
}

}  // namespace

ElfInfo read_elf(std::span<const std::byte> bytes) {
  const Bytes file(bytes);
  const Elf64_Ehdr header = read_header(file);
  const std::vector<Elf64_Phdr> segments = read_segments(file, header);
  const std::vector<Elf64_Shdr> sections = read_sections(file, header);
  const Dynamic dynamic = read_dynamic(file, segments);
  ElfInfo info;
  info.note = find_note(file, header, segments, sections);
  info.exported = read_exported(file, dynamic);
  for (const uint64_t name : dynamic.needed) info.needed.emplace_back(file.string(dynamic.strings, name));
  return info;
}

}  // namespace mantissa
