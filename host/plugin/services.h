// The services of the host: the mts_host table that one context sees, with the rules of place and order of precision.h.
//
// A call marked [collective] or [local] that fails is remembered: it travels with this rank's next exchange, and the
// slot has failed on every rank whatever it returns. After a failure that all ranks know, nothing is sent any more.
#pragma once
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/root.h"
#include "grad/gradients.h"
#include "mantissa/precision.h"
#include "plugin/options.h"

namespace mantissa {

/// Which slot of the plugin is running.
enum class Slot { none, create, plan, loss_scale, unscale, clip, decide, update, destroy };
const char* name(Slot slot);
/// "MTS_INVALID" for MTS_INVALID; unknown values read as MTS_INTERNAL.
const char* name(mts_status status);

using Metrics = std::map<std::string, double>;

class HostServices {
 public:
  HostServices(std::string plugin_id, const ModulePlan& plan, Exchange& exchange, std::vector<CheckedOption> options);
  HostServices(const HostServices&) = delete;
  HostServices& operator=(const HostServices&) = delete;

  const mts_host* table() const { return &table_; }
  mts_root root() const { return root_; }
  const std::string& plugin_id() const { return plugin_id_; }

  /// The root is sharded: pieces are known, gradient services are open.
  void attach(Root& root, Gradients& gradients);

  /// A slot begins: forgets what the last one said.
  void enter(Slot slot);
  /// The slot has returned. Throws what a collective service met, if anything; else returns the slot's true status.
  mts_status leave(mts_status returned);
  /// What the plugin said by fail(), or why a service failed; empty if nothing.
  const std::string& text() const { return text_; }
  /// What the plugin reported by metric() since the last call, by "id.key".
  Metrics take_metrics() { return std::exchange(metrics_, {}); }

 private:
  friend struct ServiceTable;
  struct ParameterView {
    std::string name;  // a copy: pointers into it are the plugin's until destroy has returned
    std::vector<uint64_t> dims;
    uint64_t num_elements = 0;
    bool replicated = false;
    uint64_t local_offset = 0, local_elements = 0;
  };

  mts_status refuse(mts_status status, const std::string& why);  ///< remembered
  bool is_mine(mts_root root) const { return root.index == root_.index && root.generation == root_.generation; }
  std::optional<mts_status> gradients_closed(mts_root root, Slot slot);
  std::optional<mts_status> tensors_closed(const std::string& service, mts_root root, mts_tensor_kind kind,
                                           mts_access access);
  std::string no_parameter(const std::string& service, uint64_t param) const;
  template <class Body>
  mts_status collective(Body body);
  template <class Body>
  mts_status local(Body body);

  std::string plugin_id_;
  Exchange& exchange_;
  std::vector<CheckedOption> options_;
  std::vector<ParameterView> parameters_;  // trainable ones
  uint64_t num_elements_ = 0;
  mts_root root_{1, 1};
  mts_host table_{};
  Root* sharded_ = nullptr;
  Gradients* gradients_ = nullptr;
  Slot slot_ = Slot::none;
  mts_status sticky_ = MTS_OK;
  std::exception_ptr agreed_failure_;
  std::string text_;
  Metrics metrics_;
};

/// The exception that a failed slot becomes: Diverged for MTS_NONFINITE, Error otherwise.
std::exception_ptr slot_failure(const std::string& plugin_id, Slot slot, mts_status status, const std::string& text);

}  // namespace mantissa
