// Names, addresses and interfaces of this machine, asked before the communication library would wait for them in vain.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace mantissa {

/// Why `host` has no address; empty if it has one.
std::string why_unresolved(const std::string& host);

/// Numeric addresses: `from` is this machine's, from which packets to a host leave, `to` that host's. On the host
/// itself both are its own; they are loopback addresses where its name stands for one in /etc/hosts.
struct Way {
  std::string from, to;
};

/// Throws CommError where no way leads to `host`.
Way way_to(const std::string& host);

bool is_loopback(const std::string& address);

/// Tries until something listens at `host`, `port`; false if nothing does within `limit`.
bool wait_for_listener(const std::string& host, int port, std::chrono::milliseconds limit);

/// Interfaces that are up and have an address, by name.
std::vector<std::string> interfaces();

}  // namespace mantissa
