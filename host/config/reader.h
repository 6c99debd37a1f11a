// Reads a section of a document key by key into typed fields. What does not fit becomes a problem and leaves the field
// alone; what fits, and every default that holds, becomes a Setting. A key that nobody asked for is unknown.
#pragma once
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/document.h"
#include "config/load.h"

namespace mantissa {

/// What a number has to be: the test, and the same in words for "need ...". The test gets no NaN.
struct NumberRule {
  bool (*holds)(double);
  const char* need;
};

struct TextRule {
  bool (*holds)(std::string_view);
  const char* need;
};

struct WholeRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
};

/// What it means that a section is not written.
enum class Absent {
  defaults,  ///< its defaults hold, and are settings
  off,       ///< what it describes is not done; it has no settings
};

class Reader;

/// One section while it is read. Each read returns whether the field holds a usable value: the default, or what was
/// written.
class Section {
 public:
  Section(Reader& reader, std::string_view name, Absent absent = Absent::defaults);

  bool present() const { return node_ != nullptr; }
  bool has(std::string_view key);  ///< whether the key is written; it counts as known from now on

  bool boolean(std::string_view key, bool& field);
  bool whole(std::string_view key, int64_t& field, WholeRange range);
  bool whole(std::string_view key, uint64_t& field);  ///< from 0 to 2^63 - 1, the largest TOML integer
  bool number(std::string_view key, double& field, NumberRule rule);
  bool pair(std::string_view key, std::pair<double&, double&> fields, NumberRule rule);
  bool text(std::string_view key, std::string& field, TextRule rule);
  bool path(std::string_view key, std::filesystem::path& field);               ///< made absolute
  bool name_or_path(std::string_view key, std::string& field, TextRule rule);  ///< same, if it has a /
  bool path_as_is(std::string_view key, std::filesystem::path& field);

  /// A table with keys that only a plugin knows: any, as long as the values are no tables, arrays, dates.
  void options(std::string_view key, std::vector<OptionValue>& field);

  /// One of a few words.
  template <class T>
  bool choice(std::string_view key, T& field, std::initializer_list<std::pair<std::string_view, T>> words);

  /// Whether a key without default is written; a problem if it is not.
  bool required(std::string_view key, std::string_view need);

  /// A key that is known, but idle because of `cause` (such as `optimizer.kind = "sgd"`): a problem if it is written.
  void idle(std::string_view key, std::string_view cause);

  /// At the key, or at the section if it is not written, or at the start of the file if that is not written either.
  void problem(std::string_view key, const std::string& text);
  std::string where(std::string_view key) const;  ///< same place, as text

  /// To be called last: every key not asked for is a problem, with the nearest known one.
  void close();

 private:
  const Node* node(std::string_view key);  // null if not written; known from now on
  bool wrong(std::string_view key, const Node& node, const std::string& need);
  void setting(std::string_view key, std::string value);
  bool word(std::string_view key, size_t& index, std::span<const std::string_view> words);
  std::string dotted(std::string_view key) const;
  Origin origin(std::string_view key) const;

  Reader& reader_;
  std::string name_;
  Absent absent_;
  const Node* node_ = nullptr;  // null: absent, or no table at all
  bool malformed_ = false;      // written, but not as a table; said once, its missing keys are not
  Origin origin_;
  std::vector<std::string> known_;
};

class Reader {
 public:
  Reader(const Document& document, Problems& problems, std::vector<Setting>& settings)
      : document_(document), problems_(problems), settings_(settings) {}

  /// To be called last: every section that nobody opened is a problem.
  void close();

 private:
  friend class Section;
  struct ClosedSection {
    std::string name;
    std::vector<std::string> keys;  // that are known
    std::vector<const Node*> unknown;
  };

  void tell_unknown_key(const ClosedSection& section, const Node& node);
  void tell_unknown_section(const Node& node);
  void tell(const Node& node, const std::string& key, const std::string& text);
  std::optional<std::string> owner_of(std::string_view key) const;

  const Document& document_;
  Problems& problems_;
  std::vector<Setting>& settings_;
  std::vector<ClosedSection> closed_;  // unknown keys are told when all sections are known
};

template <class T>
bool Section::choice(std::string_view key, T& field, std::initializer_list<std::pair<std::string_view, T>> words) {
  std::vector<std::string_view> names;
  size_t index = 0;
  for (const auto& [name, value] : words) {
    if (value == field) index = names.size();
    names.push_back(name);
  }
  const bool usable = word(key, index, names);
  field = (words.begin() + index)->second;
  return usable;
}

}  // namespace mantissa
