#include "base/log.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <string>

#include "base/said_texts.h"
#include "base/terminal.h"

namespace mantissa::log {
namespace {

std::string_view color_of(spdlog::level::level_enum level) {
  return level == spdlog::level::err ? "\x1b[1;31m" : level == spdlog::level::warn ? "\x1b[1;33m" : "\x1b[32m";
}

// Each line is one write, so that the lines of several processes do not mix; spdlog's own sinks write colors apart.
class StderrSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void set_color(bool color) { color_ = color; }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t formatted;
    formatter_->format(message, formatted);
    const std::string_view text(formatted.data(), formatted.size());
    const size_t begin = message.color_range_start, end = message.color_range_end;
    std::string line(line_start(STDERR_FILENO));
    if (color_ && begin < end) {
      line.append(text.substr(0, begin)).append(color_of(message.level)).append(text.substr(begin, end - begin));
      line.append("\x1b[0m").append(text.substr(end));
    } else {
      line += text;
    }
    while (::write(STDERR_FILENO, line.data(), line.size()) < 0 && errno == EINTR) {
    }
  }
  void flush_() override {}

 private:
  bool color_ = may_color("auto", STDERR_FILENO);
};

// The one global of the program: where lines go.
struct Sink {
  std::shared_ptr<StderrSink> lines = std::make_shared<StderrSink>();
  spdlog::logger logger{"mantissa", lines};
  SaidTexts warnings;
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
}

}  // namespace

void set_level(Level level) { sink().logger.set_level(to_spdlog(level)); }

void set_color(std::string_view when) { sink().lines->set_color(may_color(when, STDERR_FILENO)); }

void set_rank(int rank) { sink().set_prefix(rank < 0 ? "" : "[rank " + std::to_string(rank) + "] "); }

void share_with_forks() { sink(); }

void debug(std::string_view text) { write(Level::debug, text); }
void info(std::string_view text) { write(Level::info, text); }
void warning(std::string_view text) { warning_about(text, text); }
void warning_about(std::string_view matter, std::string_view text) {
  if (sink().warnings.is_new(matter)) write(Level::warning, text);
}
void error(std::string_view text) { write(Level::error, text); }

}  // namespace mantissa::log
