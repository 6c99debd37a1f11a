// Log lines for people, on stderr. The sink (spdlog) is hidden, as its bundled fmt does not mix with LibTorch's
// headers.
#pragma once
#include <string_view>

namespace mantissa::log {

enum class Level { debug, info, warning, error };

/// Lines below `level` are dropped. Default: info.
void set_level(Level level);

/// "always", "never" or "auto" (a terminal, and NO_COLOR not set), which is the default.
void set_color(std::string_view when);

/// `[rank N] ` before every line of this process; a negative rank removes it.
void set_rank(int rank);

/// Before a fork: from now on a warning that this process or one of its forks has said is not said again.
void share_with_forks();

void debug(std::string_view text);
void info(std::string_view text);
/// Each text once, whoever says it.
void warning(std::string_view text);
/// Of all warnings about one matter the first, for texts with numbers that differ each time.
void warning_about(std::string_view matter, std::string_view text);
void error(std::string_view text);

}  // namespace mantissa::log
