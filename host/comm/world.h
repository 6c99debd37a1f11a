// What a World holds: the group, the transport on it, and the exchange that keeps the ranks together.
#pragma once
#include <memory>

#include "comm/exchange.h"
#include "comm/process_group.h"
#include "comm/terminate.h"
#include "comm/transport.h"
#include "mantissa/world.h"

namespace mantissa {

struct World::Impl {
  Impl(const Rendezvous& rendezvous, std::chrono::milliseconds timeout)
      : group(rendezvous, timeout), transport(make_transport(group)), exchange(*transport) {}
  ProcessGroup group;
  std::unique_ptr<Transport> transport;
  Exchange exchange;
  LastWords last_words{[this](const Failure& failure) { group.report_fault(failure.exit_code, failure.text); }};
};

}  // namespace mantissa
