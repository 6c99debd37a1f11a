#include "comm/process_group.h"

#include <charconv>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/log.h"

C10_DECLARE_int(caffe2_log_level);

namespace mantissa {
namespace {

constexpr std::chrono::milliseconds kFaultPatience{1000};

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

int integer(const char* name, const std::string& text, int smallest, int largest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < smallest || value > largest) {
    throw UsageError("environment variable " + std::string(name) + " is \"" + text + "\", need a whole number from " +
                     std::to_string(smallest) + " to " + std::to_string(largest));
  }
  return value;
}

// Runs `conversation` with the store on a thread of its own and gives up on it after `limit`: the store's own time
// limits do not hold when rank 0, which keeps it, is stopped. The conversation must own what it uses.
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

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

std::string fault_key(int rank) { return "fault/" + std::to_string(rank); }

Fault parse_fault(int rank, const std::vector<uint8_t>& bytes) {
  const std::string text(bytes.begin(), bytes.end());
  const size_t bar = text.find('|');
  return {rank, static_cast<ExitCode>(std::atoi(text.c_str())), bar == std::string::npos ? text : text.substr(bar + 1)};
}

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

Rendezvous rendezvous_of(const LocalRank& local) {
  Rendezvous rendezvous;
  rendezvous.rank = local.rank;
  rendezvous.world_size = local.world_size;
  rendezvous.port = local.port;
  rendezvous.listen_fd = local.listen_fd;
  return rendezvous;
}

bool is_rank_by_environment() { return environment("RANK") || environment("WORLD_SIZE"); }

std::optional<Rendezvous> rendezvous_from_environment() {
  if (!is_rank_by_environment()) return std::nullopt;
  const auto rank = environment("RANK"), world_size = environment("WORLD_SIZE");
  if (!rank || !world_size) {
    throw UsageError(std::string("environment variable ") + (rank ? "WORLD_SIZE" : "RANK") +
                     " is not set, but its partner is: set both, or neither to run one rank");
  }
  Rendezvous found;
  found.world_size = integer("WORLD_SIZE", *world_size, 1, 1 << 20);
  found.rank = integer("RANK", *rank, 0, found.world_size - 1);
  if (found.world_size == 1) return found;
  const auto address = environment("MASTER_ADDR"), port = environment("MASTER_PORT");
  if (!address || !port) {
    throw UsageError(std::string("environment variable ") + (address ? "MASTER_PORT" : "MASTER_ADDR") +
                     " is not set: with WORLD_SIZE = " + *world_size + " it must name where rank 0 listens");
  }
  found.address = *address;
  found.port = integer("MASTER_PORT", *port, 1, 65535);
  found.store_exists = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  found.store_prefix = environment("TORCHELASTIC_RESTART_COUNT").value_or("");
  return found;
}

struct ProcessGroup::State {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::exception_ptr lost;  // what the first collective that failed came to; there will be no other
};

ProcessGroup::ProcessGroup(const Rendezvous& rendezvous, std::chrono::milliseconds timeout)
    : rendezvous_(rendezvous), timeout_(timeout), state_(std::make_unique<State>()) {
  if (world_size() == 1) return;
  // c10d logs a stack trace for every connection that a lost peer closes; this class says the same in one line.
  if (!environment("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 3;
  try {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(rendezvous_.port);
    options.isServer = rank() == 0 && !rendezvous_.store_exists;
    options.numWorkers = static_cast<size_t>(world_size());
    options.waitWorkers = false;
    options.timeout = timeout_;
    if (options.isServer && rendezvous_.listen_fd >= 0) options.masterListenFd = rendezvous_.listen_fd;
    const auto tcp = c10::make_intrusive<c10d::TCPStore>(rendezvous_.address, options);
    state_->store = c10::make_intrusive<c10d::PrefixStore>("mantissa/" + rendezvous_.store_prefix, tcp);

    const auto gloo = c10d::ProcessGroupGloo::Options::create(timeout_);
    const auto interface = environment("GLOO_SOCKET_IFNAME");
    const bool local = rendezvous_.address == "127.0.0.1" || rendezvous_.address == "localhost";
    gloo->devices.push_back(interface ? c10d::ProcessGroupGloo::createDeviceForInterface(*interface)
                            : local   ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                      : c10d::ProcessGroupGloo::createDefaultDevice());
    state_->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", state_->store), rank(), world_size(), gloo);
  } catch (const std::exception& error) {
    if (state_->store) explain("joining the other ranks", error.what());
    throw CommError("rank " + std::to_string(rank()) + " of " + std::to_string(world_size()) +
                    " could not reach rank 0's store at " + rendezvous_.address + ":" +
                    std::to_string(rendezvous_.port) + " (" + first_line(error.what()) +
                    "); check that rank 0 runs, and MASTER_ADDR and MASTER_PORT");
  }
}

ProcessGroup::~ProcessGroup() = default;

c10d::Backend& ProcessGroup::backend() { return *state_->gloo; }

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

void ProcessGroup::abort() noexcept {
  if (!state_ || !state_->gloo) return;
  try {
    state_->gloo->abort();
  } catch (...) {
    log::debug("Gloo could not be aborted");
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
  abort();  // the others shall notice now, not when their own time is over
  const std::string observed = what + " failed on rank " + std::to_string(rank()) + " (" + first_line(reason) + ")";
  const auto found = std::make_shared<Search>();
  try {
    bounded(2 * kFaultPatience,
            [found, store = state_->store, observed, tells = !reported_, rank = rank(), world_size = world_size()] {
              if (tells) store->set(lost_key(rank), observed);  // a victim, not a cause
              *found = search_for_cause(*store, rank, world_size);
            });
  } catch (const std::exception&) {
    throw PeerLost("rank 0, which keeps the store, does not answer", observed);
  }
  if (found->fault) throw PeerFailed(found->fault->rank, found->fault->exit_code, found->fault->cause);
  std::string names;
  for (const int peer : found->silent) names += (names.empty() ? "rank " : ", rank ") + std::to_string(peer);
  throw PeerLost(names.empty() ? "the connection between ranks broke"
                               : names + " gave no sign of life: killed, hung or on a lost machine",
                 observed);
}

}  // namespace mantissa
