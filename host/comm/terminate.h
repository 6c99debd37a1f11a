// What becomes of an exception that nobody catches: one on a thread of the communication library, or out of main. It
// ends the process as any other failure does: in words, with exit code 1, and heard by the other ranks.
#pragma once
#include <functional>

#include "base/error.h"

namespace mantissa {

using TellFailure = std::function<void(const Failure&)>;

/// From now on such an exception becomes one line on stderr.
void install_terminate_handler();

/// As above, but `tell` gets the words instead of stderr.
void end_by_terminate(TellFailure tell);

/// While it lives, `tell` hears of such an exception first, unless it is a peer's, on the thread that threw. One at a
/// time: a later one takes the place of an earlier one.
class LastWords {
 public:
  explicit LastWords(TellFailure tell);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

}  // namespace mantissa
