// Gives up on what may never answer.
#pragma once
#include <chrono>
#include <functional>

namespace mantissa {

/// Runs `conversation` on a thread of its own and gives up on it after `limit` (std::runtime_error "no answer"); else
/// throws what it throws. The store's own time limits do not hold when rank 0, which keeps it, is stopped. The
/// conversation must own what it uses.
void bounded(std::chrono::milliseconds limit, std::function<void()> conversation);

}  // namespace mantissa
