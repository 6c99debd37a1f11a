// Answers for programs: what --json prints.
#pragma once
#include <cstdio>

#include <nlohmann/json.hpp>

namespace mantissa {

using Json = nlohmann::ordered_json;

/// On stdout; bytes that are no UTF-8 (in a path, say) are replaced.
inline void print(const Json& answer) {
  std::printf("%s\n", answer.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace mantissa
