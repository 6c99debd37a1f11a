// A small terminal: turns the bytes that a program wrote into the lines that a person then sees.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::test {

/// As high as needed, so that nothing scrolls away. Knows newline, carriage return, the erasing and color sequences,
/// and whether long lines wrap; throws for any other. A change of width wraps lines anew, as most terminals do. Two
/// sequences of its own, for tests: ESC ] columns;N BEL is a change of width, ESC ] snap BEL keeps what is to be seen.
class Screen {
 public:
  explicit Screen(size_t columns) : columns_(columns) {}

  void feed(std::string_view bytes) {
    unread_ += bytes;
    while (take_one()) {
    }
  }

  void resize(size_t columns) {
    std::vector<Row> wrapped;
    size_t row = 0, column = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const size_t first = wrapped.size();
      Row rest = rows_[i];
      do {
        wrapped.push_back(rest.substr(0, columns));
        rest.erase(0, columns);
      } while (!rest.empty());
      if (i == row_) row = first + column_ / columns, column = column_ % columns;
    }
    rows_ = wrapped, row_ = row, column_ = column, columns_ = columns, past_end_ = false;
  }

  /// All lines, without spaces at their ends and empty lines at the end of all.
  std::string text() const {
    std::string all;
    for (const Row& row : rows_) {
      std::string line;
      for (const std::string& character : row) line += character;
      line.erase(line.find_last_not_of(' ') + 1);
      all += line + "\n";
    }
    while (all.ends_with("\n\n")) all.pop_back();
    return all == "\n" ? "" : all;
  }

  const std::vector<std::string>& snapshots() const { return snapshots_; }

 private:
  // Of characters, each of one column.
  class Row : public std::vector<std::string> {
   public:
    using std::vector<std::string>::vector;
    Row substr(size_t from, size_t count) const {
      return Row(begin() + static_cast<long>(std::min(from, size())),
                 begin() + static_cast<long>(std::min(from + count, size())));
    }
    void erase(size_t from, size_t count) {
      std::vector<std::string>::erase(begin() + static_cast<long>(std::min(from, size())),
                                      begin() + static_cast<long>(std::min(from + count, size())));
    }
  };

  // False if what is unread is no whole character or sequence.
  bool take_one() {
    if (unread_.empty()) return false;
    if (unread_[0] == '\x1b') return take_sequence();
    const auto first = static_cast<unsigned char>(unread_[0]);
    const size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (unread_.size() < length) return false;
    const std::string character = unread_.substr(0, length);
    unread_.erase(0, length);
    if (character == "\r") {
      column_ = 0, past_end_ = false;
    } else if (character == "\n") {
      next_row();
    } else {
      put(character);
    }
    return true;
  }

  bool take_sequence() {
    if (unread_.size() < 2) return false;
    const size_t end = unread_[1] == ']' ? unread_.find('\a') : unread_.find_first_not_of("0123456789;?", 2);
    if (end == std::string::npos) return false;
    const std::string sequence = unread_.substr(1, end);
    unread_.erase(0, end + 1);
    if (sequence == "[K") {
      erase_line();
    } else if (sequence == "[J") {
      erase_line();
      rows_.resize(row_ + 1);
    } else if (sequence == "[?7l" || sequence == "[?7h") {
      wraps_ = sequence.back() == 'h';
    } else if (sequence == "]snap\a") {
      snapshots_.push_back(text());
    } else if (sequence.starts_with("]columns;")) {
      resize(std::stoul(sequence.substr(9)));
    } else if (sequence.back() != 'm') {
      throw std::runtime_error("unknown sequence ESC " + sequence);
    }
    return true;
  }

  void put(const std::string& character) {
    if (past_end_ && wraps_) next_row(), column_ = 0;
    Row& row = rows_[row_];
    if (row.size() <= column_) row.resize(column_ + 1, " ");
    row[column_] = character;
    past_end_ = column_ + 1 == columns_;
    if (!past_end_) ++column_;
  }

  void erase_line() {
    if (rows_[row_].size() > column_) rows_[row_].resize(column_);
  }

  void next_row() {
    ++row_, past_end_ = false;
    if (rows_.size() == row_) rows_.emplace_back();
  }

  size_t columns_, row_ = 0, column_ = 0;
  bool past_end_ = false, wraps_ = true;
  std::vector<Row> rows_{1};
  std::string unread_;
  std::vector<std::string> snapshots_;
};

}  // namespace mantissa::test
