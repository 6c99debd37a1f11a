// The kinds of cases. Each check runs one case on this rank, with all others, and returns "" if it holds there, else
// what was got and what was wanted.
#pragma once
#include <string>

#include "comm/world.h"
#include "values.h"

namespace mantissa::cases {

std::string check_clip(const json& c, const World& world);
std::string check_loss_scale(const json& c, const World& world);
std::string check_accumulate(const json& c, const World& world);
std::string check_precision(const json& c, const World& world);

}  // namespace mantissa::cases
