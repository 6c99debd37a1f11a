#include "comm/process_group.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/environment.h"
#include "base/log.h"
#include "comm/bounded.h"
#include "comm/meeting.h"

C10_DECLARE_int(caffe2_log_level);

namespace mantissa {
namespace {

constexpr std::chrono::milliseconds kFaultPatience{1000};

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

// Gloo's words without the place in its source and without its advice.
std::string plain_reason(const std::string& text) {
  std::string reason = first_line(text);
  const size_t end = reason.find("] ");
  if (reason.starts_with('[') && end != std::string::npos) reason.erase(0, end + 2);
  return reason.substr(0, reason.find(". This is typically caused by"));
}

std::string fault_key(int rank) { return "fault/" + std::to_string(rank); }

Fault parse_fault(int rank, const std::vector<uint8_t>& bytes) {
  const std::string text(bytes.begin(), bytes.end());
  const size_t bar = text.find('|');
  return {rank, static_cast<ExitCode>(std::atoi(text.c_str())), bar == std::string::npos ? text : text.substr(bar + 1)};
}

// A rank that knows the cause needs the store no longer.
std::string heard_key(int rank) { return "heard/" + std::to_string(rank); }

std::string lost_key(int rank) { return "lost/" + std::to_string(rank); }

struct Search {
  std::optional<Fault> fault;  // the first that a rank reported
  std::vector<int> silent;     // ranks that said nothing at all
};

// A survivor sees only that a connection broke. The rank that went first said why, or said nothing because it was
// killed; every other survivor will say that it lost somebody. So: look for a cause first, then for the rank that stays
// silent.
Search search_for_cause(c10d::Store& store, int rank, int world_size) {
  const auto deadline = std::chrono::steady_clock::now() + kFaultPatience;
  Search found;
  do {
    found.silent.clear();
    for (int peer = 0; peer < world_size; ++peer) {
      if (peer == rank) continue;
      if (store.check({fault_key(peer)})) return {parse_fault(peer, store.get(fault_key(peer))), {}};
      if (!store.check({lost_key(peer)})) found.silent.push_back(peer);
    }
    if (found.silent.empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (std::chrono::steady_clock::now() < deadline);
  return found;
}

}  // namespace

struct ProcessGroup::State {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  bool served = false;      // rank 0 has kept the store for those who ask
  std::exception_ptr lost;  // what the first collective that failed came to; there will be no other
};

ProcessGroup::ProcessGroup(const Rendezvous& rendezvous, std::chrono::milliseconds timeout)
    : rendezvous_(rendezvous), timeout_(timeout), state_(std::make_unique<State>()) {
  if (world_size() == 1) return;
  // c10d logs a stack trace for every connection that a lost peer closes; this class says the same in one line.
  if (!environment("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 3;
  const std::vector<std::string> interfaces = wanted_interfaces();
  const auto store = open_store(rendezvous_, timeout_);
  state_->store = c10::make_intrusive<c10d::PrefixStore>("mantissa/" + rendezvous_.store_prefix, store);
  call_roll(state_->store, rendezvous_, timeout_);
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
  try {
    options->devices = gloo_devices(*state_->store, rendezvous_, interfaces);
    state_->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", state_->store), rank(), world_size(), options);
  } catch (const Error& error) {  // of this rank; the others wait for it
    report_fault(error.exit_code(), error.what());
    throw;
  } catch (const std::exception& error) {
    explain("joining the other ranks", error.what());
  }
}

ProcessGroup::~ProcessGroup() = default;

c10d::Backend& ProcessGroup::backend() {
  if (!state_->gloo) throw CommError("the group of ranks has ended");
  return *state_->gloo;
}

void ProcessGroup::guarded(const std::string& what, const std::function<void()>& collective) {
  if (state_->lost) std::rethrow_exception(state_->lost);
  try {
    collective();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string reason = error.what();
    try {
      explain(what, reason);
    } catch (const Error&) {
      state_->lost = std::current_exception();
      throw;
    }
  }
}

void ProcessGroup::report_fault(ExitCode exit_code, const std::string& cause) noexcept {
  if (reported_ || !state_ || !state_->store) return;
  reported_ = true;
  try {
    bounded(kFaultPatience,
            [store = state_->store, key = fault_key(rank()),
             value = std::to_string(static_cast<int>(exit_code)) + "|" + cause] { store->set(key, value); });
  } catch (...) {
    log::debug("the cause of this rank's end could not be told to the others: their store is gone");
  }
}

// Peers notice when the connections close, which is when the group goes; it waits for its own threads, so it goes on
// one that nobody waits for.
void ProcessGroup::close() noexcept {
  if (!state_->gloo) return;
  try {
    state_->gloo->abort();
    std::thread([gloo = std::exchange(state_->gloo, {})] {}).detach();
  } catch (...) {
    log::debug("Gloo could not be aborted");
  }
}

void ProcessGroup::abort() noexcept {
  close();
  serve_until_heard({});
}

void ProcessGroup::serve_until_heard(const std::vector<int>& silent) noexcept {
  const bool keeps_store = rank() == 0 && !rendezvous_.store_exists;
  const bool has_launcher = rendezvous_.listen_fd >= 0;  // which knows the cause without the store
  if (!keeps_store || has_launcher || !state_->store || std::exchange(state_->served, true)) return;
  std::vector<std::string> keys;
  for (int peer = 1; peer < world_size(); ++peer) {
    if (std::find(silent.begin(), silent.end(), peer) == silent.end()) keys.push_back(heard_key(peer));
  }
  const auto deadline = std::chrono::steady_clock::now() + 3 * kFaultPatience;
  try {
    while (!keys.empty() && !state_->store->check(keys) && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } catch (...) {
    log::debug("the store broke while other ranks asked it for the cause");
  }
}

std::optional<Fault> ProcessGroup::fault_of(int rank, std::chrono::milliseconds patience) {
  auto found = std::make_shared<std::optional<Fault>>();
  bounded(patience + kFaultPatience,
          [found, rank, store = state_->store, deadline = std::chrono::steady_clock::now() + patience] {
            do {
              if (store->check({fault_key(rank)})) {
                *found = parse_fault(rank, store->get(fault_key(rank)));
                return;
              }
              std::this_thread::sleep_for(std::chrono::milliseconds(20));
            } while (std::chrono::steady_clock::now() < deadline);
          });
  return *found;
}

void ProcessGroup::explain(const std::string& what, const std::string& reason) {
  close();  // the others shall notice now, not when their own time is over
  const std::string observed = what + " failed on rank " + std::to_string(rank()) + " (" + plain_reason(reason) + ")";
  const auto found = std::make_shared<Search>();
  try {
    bounded(2 * kFaultPatience,
            [found, store = state_->store, observed, tells = !reported_, rank = rank(), world_size = world_size()] {
              if (tells) store->set(lost_key(rank), observed);  // a victim, not a cause
              *found = search_for_cause(*store, rank, world_size);
              store->set(heard_key(rank), observed);
            });
  } catch (const std::exception&) {
    throw PeerLost("rank 0, which keeps the store, does not answer", observed);
  }
  serve_until_heard(found->silent);
  if (found->fault) throw PeerFailed(found->fault->rank, found->fault->exit_code, found->fault->cause);
  std::string names;
  for (const int peer : found->silent) names += (names.empty() ? "rank " : ", rank ") + std::to_string(peer);
  throw PeerLost(names.empty() ? "the connection between ranks broke"
                               : names + " gave no sign of life: killed, hung or on a lost machine",
                 observed);
}

}  // namespace mantissa
