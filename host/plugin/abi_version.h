// The plugin ABI that this host speaks, for those who may not see precision.h.
#pragma once
#include <cstdint>

namespace mantissa {

struct AbiVersion {
  uint32_t major = 0, minor = 0;
};
extern const AbiVersion kAbiVersion;

}  // namespace mantissa
