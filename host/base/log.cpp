#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace mantissa::log {
namespace {

// The one global of the program: where lines go.
struct Sink {
  std::shared_ptr<spdlog::sinks::stderr_color_sink_st> color = std::make_shared<spdlog::sinks::stderr_color_sink_st>();
  spdlog::logger logger{"mantissa", color};
  Sink() {
    logger.set_level(spdlog::level::info);
    set_prefix("");
  }
  void set_prefix(const std::string& prefix) { logger.set_pattern(prefix + "mantissa: %^%l%$: %v"); }
};

Sink& sink() {
  static Sink instance;
  return instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

void write(Level level, std::string_view text) {
  sink().logger.log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
  sink().logger.flush();
}

}  // namespace

void set_level(Level level) { sink().logger.set_level(to_spdlog(level)); }

void set_color(std::string_view when) {
  const bool no_color = std::getenv("NO_COLOR") != nullptr;
  sink().color->set_color_mode(when == "always"              ? spdlog::color_mode::always
                               : when == "never" || no_color ? spdlog::color_mode::never
                                                             : spdlog::color_mode::automatic);
}

void set_rank(int rank) { sink().set_prefix(rank < 0 ? "" : "[rank " + std::to_string(rank) + "] "); }

void debug(std::string_view text) { write(Level::debug, text); }
void info(std::string_view text) { write(Level::info, text); }
void warning(std::string_view text) { write(Level::warning, text); }
void error(std::string_view text) { write(Level::error, text); }

}  // namespace mantissa::log
