// How ranks come together: the store that rank 0 keeps, a roll call in it, and the way on which they talk. What can be
// wrong here is mostly somebody's environment, so every failure says which variable to look at.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/rendezvous.h"

namespace mantissa {

/// Opens the store on rank 0, or reaches it. Throws UsageError where MASTER_ADDR does not resolve, CommError where the
/// port is taken or nobody listens there within `timeout`.
c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& rendezvous, std::chrono::milliseconds timeout);

/// [all ranks] Returns when all ranks have come, and have said by which address they know rank 0. Throws UsageError on
/// all of them where two have one rank or ranks disagree about their number, CommError where some do not come within
/// `timeout`.
void call_roll(const c10::intrusive_ptr<c10d::Store>& store, const Rendezvous& rendezvous,
               std::chrono::milliseconds timeout);

/// The interfaces that GLOO_SOCKET_IFNAME names, with commas between them; none if it is not set. Throws UsageError for
/// one that does not exist.
std::vector<std::string> wanted_interfaces();

/// Ways for Gloo: over `interfaces`; without any, over the one that leads to rank 0. On rank 0's host, whose name often
/// stands for 127.0.1.1 there, it is the address by which ranks of other hosts know it.
std::vector<std::shared_ptr<::gloo::transport::Device>> gloo_devices(c10d::Store& store, const Rendezvous& rendezvous,
                                                                     const std::vector<std::string>& interfaces);

}  // namespace mantissa
