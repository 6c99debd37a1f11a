// A progress bar as text: what is shown in how many columns. Knows no terminal.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace mantissa {

struct BarNumbers {
  int64_t done = 0, steps = 0;            ///< steps made, and of the run
  int64_t skipped = 0;                    ///< of the steps made; shown if there are any
  std::optional<double> loss, grad_norm;  ///< of the last step; none before the first
  std::optional<double> tokens_per_s, seconds_left;
  std::string token_word = "token";  ///< what tokens_per_s counts
};

struct BarStyle {
  int columns = 79;    ///< at most so many are used
  bool blocks = true;  ///< UTF-8 block characters, else '#'
  bool color = false;
};

/// Step, loss, bar, time left, skipped steps, norm, tokens/s: in this order they get room, each with its name. "12/40
/// [###   ]  loss 3.2500 ..."; never wider than asked.
std::string bar_text(const BarNumbers& numbers, const BarStyle& style);

}  // namespace mantissa
