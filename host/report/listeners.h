// Lets several listeners hear one run.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/events.h"

namespace mantissa {

/// Passes each event on to all listeners in the order in which they were added. What one throws, the run ends with.
class Listeners : public EventListener {
 public:
  void add(std::unique_ptr<EventListener> listener) { listeners_.push_back(std::move(listener)); }

  void started(const RunStarted& event) override {
    for (const auto& listener : listeners_) listener->started(event);
  }
  void ticked(const StepTick& event) override {
    for (const auto& listener : listeners_) listener->ticked(event);
  }
  void stepped(const StepMetrics& event) override {
    for (const auto& listener : listeners_) listener->stepped(event);
  }
  void skipped(const StepSkipped& event) override {
    for (const auto& listener : listeners_) listener->skipped(event);
  }
  void finished(const RunFinished& event) override {
    for (const auto& listener : listeners_) listener->finished(event);
  }
  void failed(const std::string& cause, int exit_code) override {
    for (const auto& listener : listeners_) listener->failed(cause, exit_code);
  }

 private:
  std::vector<std::unique_ptr<EventListener>> listeners_;
};

}  // namespace mantissa
