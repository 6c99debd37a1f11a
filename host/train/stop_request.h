// SIGINT, SIGTERM and SIGHUP (the terminal was closed) ask for a stop after the current step; all ranks stop at the
// same one.
#pragma once
#include <cstdint>

namespace mantissa {

/// What a second SIGINT or SIGTERM does, 100 ms or more after the first signal.
enum class SecondSignal {
  ends,    ///< this process
  ignored  ///< by this process: a launcher ends it
};

/// From now on these signals set a flag instead of ending the process. A signal that is ignored stays so.
void catch_stop_signals(SecondSignal second);

/// From now on a reader of the progress lines that goes does not end the process, and a file that grows beyond the
/// limit of its size (ulimit -f) is an error of the write.
void outlive_output();

/// Bits of Request (comm/packet.h) that this process was asked for.
uint32_t requested_stops();

/// The signal behind the bits of all ranks: "SIGINT", "SIGTERM" or "SIGHUP", in this order.
const char* name_of_stop(uint32_t requests);

}  // namespace mantissa
