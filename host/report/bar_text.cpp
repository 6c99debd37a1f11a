#include "report/bar_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/number_text.h"

namespace mantissa {
namespace {

constexpr int kSmallestBar = 8, kLargestBar = 50;  // columns, brackets included
constexpr int kRoomy = 60;                         // columns from which fields stand two spaces apart

std::string right(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string two_digits(int64_t value) { return (value < 10 ? "0" : "") + std::to_string(value); }

// "0:07", "2:36", "1:02:36"
std::string clock_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "?";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const std::string tail = ":" + two_digits(total % 60);
  if (total < 3600) return std::to_string(total / 60) + tail;
  return std::to_string(total / 3600) + ":" + two_digits(total / 60 % 60) + tail;
}

// `part` of `cells` in UTF-8 blocks, by eighths of a cell.
std::string block_cells(double part, int cells) {
  constexpr std::array kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(part * cells * 8);
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  text += kEighths[static_cast<size_t>(eighths % 8)];
  return text.append(static_cast<size_t>(cells - (eighths + 7) / 8), ' ');
}

std::string hash_cells(double part, int cells) {
  const auto full = static_cast<size_t>(part * cells);
  return std::string(full, '#').append(static_cast<size_t>(cells) - full, ' ');
}

std::string bar(const BarNumbers& numbers, const BarStyle& style, int columns) {
  const double part = std::clamp(static_cast<double>(numbers.done) / static_cast<double>(numbers.steps), 0.0, 1.0);
  const std::string cells = style.blocks ? block_cells(part, columns - 2) : hash_cells(part, columns - 2);
  return "[" + (style.color ? "\x1b[32m" + cells + "\x1b[0m" : cells) + "]";
}

// Fields in the order in which they stand; an empty one is not shown. Padded, so that the bar does not jump.
struct Fields {
  std::string count, loss, norm, skipped, speed, left;
};

Fields fields_of(const BarNumbers& numbers) {
  const std::string steps = std::to_string(numbers.steps);
  Fields fields;
  fields.count = right(std::to_string(numbers.done), steps.size()) + "/" + steps;
  if (numbers.loss) fields.loss = "loss " + right(fixed_text(*numbers.loss, 4), 6);
  if (numbers.grad_norm) fields.norm = "norm " + right(short_text(*numbers.grad_norm, 3), 6);
  if (numbers.skipped > 0) fields.skipped = grouped(numbers.skipped) + " skipped";
  if (numbers.tokens_per_s) fields.speed = right(grouped(*numbers.tokens_per_s), 6) + " " + numbers.token_word + "s/s";
  if (numbers.seconds_left) fields.left = right(clock_text(*numbers.seconds_left), 5) + " left";
  return fields;
}

}  // namespace

std::string bar_text(const BarNumbers& numbers, const BarStyle& style) {
  Fields fields = fields_of(numbers);
  if (static_cast<int>(fields.count.size()) > style.columns) return "";
  const int gap = style.columns < kRoomy ? 1 : 2;
  int room = style.columns - static_cast<int>(fields.count.size());
  const auto fit = [&](std::string& field) {
    const int needed = gap + static_cast<int>(field.size());
    if (field.empty() || needed > room) return field.clear();
    room -= needed;
  };
  fit(fields.loss);
  const bool has_bar = room >= gap + kSmallestBar;
  if (has_bar) room -= gap + kSmallestBar;
  for (std::string* field : {&fields.left, &fields.skipped, &fields.norm, &fields.speed}) fit(*field);

  std::string text = fields.count;
  const std::string between(static_cast<size_t>(gap), ' ');
  if (has_bar) text += between + bar(numbers, style, std::min(kSmallestBar + room, kLargestBar));
  for (const std::string* field : {&fields.loss, &fields.norm, &fields.skipped, &fields.speed, &fields.left}) {
    if (!field->empty()) text += between + *field;
  }
  return text;
}

}  // namespace mantissa
