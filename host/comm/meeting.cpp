#include "comm/meeting.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/number_text.h"
#include "comm/bounded.h"
#include "comm/network.h"

namespace mantissa {
namespace {

using Milliseconds = std::chrono::milliseconds;
constexpr Milliseconds kPatience(1000);
constexpr Milliseconds kBetweenLooks(20), kToHear(500);

std::string seconds_text(Milliseconds time) { return short_text(static_cast<double>(time.count()) / 1000, 6) + " s"; }

std::string place_of(const Rendezvous& rendezvous) {
  return rendezvous.address + ":" + std::to_string(rendezvous.port);
}

std::string name_of(const Rendezvous& rendezvous) {
  return "rank " + std::to_string(rendezvous.rank) + " of " + std::to_string(rendezvous.world_size);
}

bool is_server(const Rendezvous& rendezvous) { return rendezvous.rank == 0 && !rendezvous.store_exists; }

[[noreturn]] void nobody_listens(const Rendezvous& rendezvous, Milliseconds timeout) {
  throw CommError(name_of(rendezvous) + " did not reach rank 0 at " + place_of(rendezvous) + " within " +
                  seconds_text(timeout) + "; start rank 0 there, and check MASTER_ADDR, MASTER_PORT and firewalls");
}

// c10d says it in words of its own, with a stack trace.
[[noreturn]] void explain_store(const Rendezvous& rendezvous, Milliseconds timeout, const std::string& reason) {
  if (reason.find("EADDRINUSE") != std::string::npos) {
    throw CommError("rank 0 cannot listen on port " + std::to_string(rendezvous.port) +
                    ": another program of this machine uses it; choose another MASTER_PORT");
  }
  if (is_server(rendezvous)) {
    throw CommError("rank 0 listens on port " + std::to_string(rendezvous.port) + ", but does not reach itself at " +
                    place_of(rendezvous) + " within " + seconds_text(timeout) +
                    "; MASTER_ADDR must be an address of the machine that rank 0 runs on");
  }
  throw CommError(name_of(rendezvous) + " got no answer at " + place_of(rendezvous) + " within " +
                  seconds_text(timeout) +
                  ": what listens there is no rank 0, or it hangs; check MASTER_ADDR and MASTER_PORT");
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

constexpr const char* kRank0Address = "address_of_rank_0";

std::string came_key(int rank) { return "came/" + std::to_string(rank); }

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// Tells all ranks that wait in the roll call, and gives them time to hear it where this rank keeps the store.
[[noreturn]] void refuse(c10d::Store& store, const Rendezvous& rendezvous, const Error& problem) {
  store.set("refused", bytes_of(std::to_string(static_cast<int>(problem.exit_code())) + "|" + problem.what()));
  if (is_server(rendezvous)) std::this_thread::sleep_for(kToHear);
  throw problem;
}

Error refusal(c10d::Store& store) {
  const std::string text = text_of(store.get("refused"));
  return Error(text.substr(text.find('|') + 1), static_cast<ExitCode>(std::atoi(text.c_str())));
}

void take_place(c10d::Store& store, const Rendezvous& rendezvous) {
  const std::string mine = std::to_string(rendezvous.world_size);
  const std::string theirs = text_of(store.compareSet("world_size", {}, bytes_of(mine)));
  std::string problem;
  if (theirs != mine) {
    problem = "rank " + std::to_string(rendezvous.rank) + " was started as one of " + mine +
              " ranks, another as one of " + theirs + "; WORLD_SIZE must be the same on all";
  } else if (store.add(came_key(rendezvous.rank), 1) > 1) {
    problem = "two processes were started as rank " + std::to_string(rendezvous.rank) +
              "; RANK must be given once each, from 0 to " + std::to_string(rendezvous.world_size - 1);
  }
  if (problem.empty()) {
    const std::string known_as = way_to(rendezvous.address).to;
    if (!is_loopback(known_as)) store.set(kRank0Address, bytes_of(known_as));
    store.add("present", 1);
    return;
  }
  refuse(store, rendezvous, UsageError(problem));
}

std::string missing_ranks(c10d::Store& store, int world_size) {
  constexpr int kNamed = 8;
  std::string names;
  int missing = 0;
  for (int rank = 0; rank < world_size; ++rank) {
    if (store.check({came_key(rank)})) continue;
    if (++missing <= kNamed) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (missing > kNamed) names += " and " + std::to_string(missing - kNamed) + " more";
  return (missing == 1 ? "rank " : "ranks ") + names;
}

void wait_for_all(c10d::Store& store, const Rendezvous& rendezvous, Milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const int64_t present = store.add("present", 0);
    if (store.check({"refused"})) throw refusal(store);
    if (present >= rendezvous.world_size) return;
    if (std::chrono::steady_clock::now() >= deadline) {
      refuse(
          store, rendezvous,
          CommError(std::to_string(present) + " of " + std::to_string(rendezvous.world_size) + " ranks came within " +
                    seconds_text(timeout) + "; " + missing_ranks(store, rendezvous.world_size) +
                    " did not: start what is missing, or correct WORLD_SIZE"));
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& rendezvous, Milliseconds timeout) {
  if (const std::string why = why_unresolved(rendezvous.address); !why.empty()) {
    throw UsageError("MASTER_ADDR = " + rendezvous.address + " has no address (" + why +
                     "); need a name or an address of the machine that rank 0 runs on");
  }
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(rendezvous.port);
  options.isServer = is_server(rendezvous);
  options.numWorkers = static_cast<size_t>(rendezvous.world_size);
  options.waitWorkers = false;
  options.timeout = timeout;
  if (options.isServer && rendezvous.listen_fd >= 0) options.masterListenFd = rendezvous.listen_fd;
  if (!options.isServer && !wait_for_listener(rendezvous.address, rendezvous.port, timeout))
    nobody_listens(rendezvous, timeout);
  const auto store = std::make_shared<c10::intrusive_ptr<c10d::Store>>();
  try {
    bounded(timeout + kPatience, [store, address = rendezvous.address, options] {
      *store = c10::make_intrusive<c10d::TCPStore>(address, options);
    });
  } catch (const std::exception& error) {
    explain_store(rendezvous, timeout, error.what());
  }
  return *store;
}

void call_roll(const c10::intrusive_ptr<c10d::Store>& store, const Rendezvous& rendezvous, Milliseconds timeout) {
  try {
    bounded(timeout + 2 * kPatience, [store, rendezvous, timeout] {
      take_place(*store, rendezvous);
      wait_for_all(*store, rendezvous, timeout);
    });
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(name_of(rendezvous) + " lost rank 0 at " + place_of(rendezvous) +
                    " while ranks came together: it ended, or hangs (" + first_line(error.what()) + ")");
  }
}

std::vector<std::string> wanted_interfaces() {
  const auto wanted = environment("GLOO_SOCKET_IFNAME");
  if (!wanted) return {};
  const std::vector<std::string> existing = interfaces(), names = split_at_commas(*wanted);
  for (const std::string& name : names) {
    if (std::find(existing.begin(), existing.end(), name) != existing.end()) continue;
    throw UsageError("GLOO_SOCKET_IFNAME names the network interface \"" + name +
                     "\", which does not exist, is down or has no address; there are: " + joined(existing));
  }
  return names;
}

std::vector<std::shared_ptr<::gloo::transport::Device>> gloo_devices(c10d::Store& store, const Rendezvous& rendezvous,
                                                                     const std::vector<std::string>& interfaces) {
  std::vector<std::shared_ptr<::gloo::transport::Device>> devices;
  for (const std::string& name : interfaces) {
    log::debug(name_of(rendezvous) + " talks over " + name);
    devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (!devices.empty()) return devices;
  std::string address = way_to(rendezvous.address).from;
  if (is_loopback(address) && store.check({kRank0Address})) address = text_of(store.get(kRank0Address));
  log::debug(name_of(rendezvous) + " talks from " + address);
  return {c10d::ProcessGroupGloo::createDeviceForHostname(address)};
}

}  // namespace mantissa
