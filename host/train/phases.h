// Where the time of a step goes, summed between two metric rows.
#pragma once
#include <chrono>

namespace mantissa {

struct Phases {
  using Duration = std::chrono::duration<double>;  // seconds
  Duration forward{}, backward{}, optimizer{}, step{};
  double comm_s = 0;  ///< in collectives, within the other phases
  int64_t steps = 0;
};

/// Adds the time it lives to `into`.
class Stopwatch {
 public:
  explicit Stopwatch(Phases::Duration& into) : into_(into) {}
  ~Stopwatch() { into_ += std::chrono::steady_clock::now() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Phases::Duration& into_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace mantissa
