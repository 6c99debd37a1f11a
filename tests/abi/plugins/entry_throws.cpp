// Its entry throws: no plugin may, and the host says so.
#include <mantissa/precision.h>

#include <stdexcept>

MTS_PRECISION_NOTE("entry_throws");

const mts_precision* mts_precision_entry_v1() { throw std::runtime_error("no table today"); }
