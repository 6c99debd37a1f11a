// Log lines for people, on stderr. The sink (spdlog) is hidden, as its bundled fmt does not mix with LibTorch's
// headers.
#pragma once
#include <string_view>

namespace mantissa::log {

enum class Level { debug, info, warning, error };

/// Lines below `level` are dropped. Default: info.
void set_level(Level level);

/// "always", "never" or "auto" (a terminal, and NO_COLOR not set).
void set_color(std::string_view when);

/// `[rank N] ` before every line of this process; a negative rank removes it.
void set_rank(int rank);

void debug(std::string_view text);
void info(std::string_view text);
void warning(std::string_view text);
void error(std::string_view text);

}  // namespace mantissa::log
