#include "report/utc_time.h"

#include <array>
#include <ctime>

namespace mantissa {
namespace {

std::string formatted(std::chrono::system_clock::time_point time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 64> text;
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

}  // namespace

std::string utc_text(std::chrono::system_clock::time_point time) { return formatted(time, "%Y-%m-%dT%H:%M:%SZ"); }

std::string utc_folder_name(std::chrono::system_clock::time_point time) { return formatted(time, "%Y%m%dT%H%M%SZ"); }

}  // namespace mantissa
