// The data set that a config names.
#pragma once
#include <memory>

#include "config/config.h"
#include "data/dataset.h"

namespace mantissa {

/// Throws UsageError where a file cannot be read or is too short.
std::unique_ptr<Dataset> open_data(const Config& config);

}  // namespace mantissa
