#include "comm/bounded.h"

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

namespace mantissa {

void bounded(std::chrono::milliseconds limit, std::function<void()> conversation) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> result = done->get_future();
  std::thread([done, conversation = std::move(conversation)] {
    try {
      conversation();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  }).detach();
  if (result.wait_for(limit) != std::future_status::ready) throw std::runtime_error("no answer");
  result.get();
}

}  // namespace mantissa
