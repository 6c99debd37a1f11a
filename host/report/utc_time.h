// Times as the files of a run write them.
#pragma once
#include <chrono>
#include <functional>
#include <string>

namespace mantissa {

/// Where the time comes from; tests give their own.
using WallClock = std::function<std::chrono::system_clock::time_point()>;

/// "2026-11-30T22:56:00Z"
std::string utc_text(std::chrono::system_clock::time_point time);

/// "20261130T225600Z": sorts by time, and is a file name everywhere.
std::string utc_folder_name(std::chrono::system_clock::time_point time);

}  // namespace mantissa
