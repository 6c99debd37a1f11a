// A config as a tree of values that remember where they were written: the file, with the overrides of the command line
// laid over it. Says nothing about which keys there are; that is load.cpp's. document.cpp alone sees toml++.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mantissa {

/// Where a key was written. Ordered as one reads: the file from top to bottom, then the overrides.
struct Origin {
  size_t override_number = 0;  ///< 0: the file; else the how-manieth --set
  uint32_t line = 1;           ///< of the key
  uint32_t column = 1;         ///< of the key, in characters
  auto operator<=>(const Origin&) const = default;
};

struct Node;
struct DateTime {};
struct BareWord {  ///< an override without quotes that is no TOML value: a string where a string is needed, else wrong
  std::string text;
};
struct Array {
  std::vector<Node> items;
};
struct Table {
  std::vector<Node> items;  ///< in the order they were written
  bool is_array = false;    ///< written as [[name]]; has no items then
};

using Value = std::variant<bool, int64_t, double, std::string, DateTime, BareWord, Array, Table>;

struct Node {
  std::string key;  ///< one part, unquoted; empty for items of an array
  Value value;
  Origin origin;

  const Node* find(std::string_view child) const;  ///< of a table; null where there is none
};

/// The value as one would write it in TOML, shortened where it is long: for "got ...".
std::string describe(const Value& value);

/// Problems found in a config, to be thrown together.
class Problems {
 public:
  /// One line: `where: key: text`; `key` is dotted.
  void add(const Origin& origin, const std::string& where, const std::string& key, const std::string& text);

  /// Throws ConfigError with all lines in the order of their origins, if there are any.
  void raise() const;

 private:
  struct Problem {
    Origin origin;
    std::string line;
  };
  std::vector<Problem> problems_;
};

class Document {
 public:
  /// Throws ConfigError with one line for what read_vetted refuses and for a TOML syntax error.
  explicit Document(const std::filesystem::path& file);

  /// Lays `key=value` over the file; the last one of a key wins. A value that is no TOML is added to `problems`.
  /// Throws UsageError for a text that is not key=value with a dotted key.
  void set(std::string_view assignment, Problems& problems);

  const Node& root() const { return root_; }

  /// "file:line:column", or "--set".
  std::string where(const Origin& origin) const;

  /// `path`, absolute. A relative one is meant from the folder of the file, or from the working directory if it came by
  /// --set, as a shell completes it.
  std::filesystem::path resolve(const std::filesystem::path& path, const Origin& origin) const;

 private:
  std::filesystem::path file_;
  std::filesystem::path folder_;
  Node root_;
  size_t overrides_ = 0;
};

}  // namespace mantissa
