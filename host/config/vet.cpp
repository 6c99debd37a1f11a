#include "config/vet.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace mantissa {
namespace {

// Follows the nesting of keys through TOML text. It reads what is valid as the parser does; where the text is not
// valid, the parser stops, and what this scan makes of the rest does not matter.
class DepthScan {
 public:
  explicit DepthScan(std::string_view text) : text_(text) {}

  /// Offset of the first place that is too deep.
  std::optional<size_t> too_deep() {
    while (at_ < text_.size()) {
      const size_t here = at_;
      step();
      if (header_ + open_depth_ + dots_ + 1 > kDeepestKey) return here;
    }
    return std::nullopt;
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      skip_string(c);
      line_start_ = false;
      return;
    }
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return;
    }
    ++at_;
    switch (c) {
      case '\n': end_line(); break;
      case '[': open_bracket(); break;
      case '{': open(0); break;
      case ']':
      case '}': close(); break;
      case '=':
        pending_ = dots_ + 1;
        dots_ = 0;
        break;
      case ',': dots_ = pending_ = 0; break;
      case '.': ++dots_; break;
      default: break;
    }
    if (c != ' ' && c != '\t' && c != '\n') line_start_ = false;
  }

  void end_line() {
    dots_ = 0;
    in_header_ = false;
    line_start_ = true;
    if (open_.empty()) pending_ = 0;
  }

  void open_bracket() {
    if (in_header_) return;  // the second bracket of [[
    if (line_start_ && open_.empty()) {
      in_header_ = true;
      header_ = 0;
    } else {
      open(1);
    }
  }

  void open(int levels) {
    open_.push_back(pending_ + levels);
    open_depth_ += open_.back();
    pending_ = dots_ = 0;
  }

  void close() {
    if (in_header_) {
      header_ = dots_ + 1;
      in_header_ = false;
    } else if (!open_.empty()) {
      open_depth_ -= open_.back();
      open_.pop_back();
    }
    dots_ = pending_ = 0;
  }

  void skip_string(char quote) {
    const std::string_view rest = text_.substr(at_);
    const std::string three(3, quote);
    const bool many_lines = rest.starts_with(three);
    at_ += many_lines ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (!many_lines && c == '\n') return;
      if (c == '\\' && quote == '"') {
        at_ += 2;
      } else if (many_lines && text_.substr(at_).starts_with(three)) {
        at_ += 3;
        for (int extra = 0; extra < 2 && at_ < text_.size() && text_[at_] == quote; ++extra) ++at_;
        return;
      } else if (!many_lines && c == quote) {
        ++at_;
        return;
      } else {
        ++at_;
      }
    }
    at_ = text_.size();
  }

  std::string_view text_;
  size_t at_ = 0;
  int header_ = 0;         // depth of the table that the last [header] opened
  int dots_ = 0;           // of the key that is being read
  int pending_ = 0;        // depth of the key whose value comes now
  std::vector<int> open_;  // depth that each open bracket or brace added
  int open_depth_ = 0;     // their sum
  bool in_header_ = false;
  bool line_start_ = true;  // only blanks so far on this line
};

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  throw ConfigError({file.string() + ": " + why});
}

[[noreturn]] void refuse_at(const std::filesystem::path& file, std::string_view text, size_t offset,
                            const std::string& why) {
  size_t line = 1, column = 1;
  for (const char c : text.substr(0, offset)) {
    const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;  // a column is a character, not a byte
    if (c == '\n') {
      ++line;
      column = 1;
    } else if (!continues) {
      ++column;
    }
  }
  throw ConfigError({file.string() + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + why});
}

std::string read_all(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) refuse(file, "got a folder, need a TOML file");
  if (std::filesystem::is_fifo(file, ignored)) refuse(file, "got a FIFO, need a TOML file");  // opening it would wait
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) refuse(file, std::string("cannot be read: ") + std::strerror(errno) + "; need a TOML file");
  std::string text(kLongestConfig + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) refuse(file, "reading failed; need a TOML file");
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

}  // namespace

bool shallow_enough(std::string_view text) { return !DepthScan(text).too_deep(); }

std::string read_vetted(const std::filesystem::path& file) {
  std::string text = read_all(file);
  if (text.size() > kLongestConfig) refuse(file, "got more than 1 MB, need a config of at most 1000000 bytes");
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    refuse_at(file, text, 0, "got UTF-16, need text saved as UTF-8");
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    refuse_at(file, text, 0, "got a byte order mark, need text saved as UTF-8 without one");
  }
  if (const size_t zero = text.find('\0'); zero != std::string::npos) {
    refuse_at(file, text, zero, "got a zero byte, need text saved as UTF-8");
  }
  if (const auto deep = DepthScan(text).too_deep()) {
    refuse_at(file, text, *deep,
              "got keys or arrays nested deeper than " + std::to_string(kDeepestKey) +
                  " levels, need the keys of a config: [section] and key = value");
  }
  return text;
}

}  // namespace mantissa
