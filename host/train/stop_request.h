// SIGINT and SIGTERM ask for a stop after the current step; all ranks stop at the same one.
#pragma once
#include <cstdint>

namespace mantissa {

/// From now on SIGINT and SIGTERM set a flag instead of ending the process; a second one of the same ends it.
void catch_stop_signals();

/// Bits of Request (comm/packet.h) that this process was asked for.
uint32_t requested_stops();

}  // namespace mantissa
