#include "comm/exchange.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "comm/process_group.h"

namespace mantissa {
namespace {

const char* name(Operation operation) {
  switch (operation) {
    case Operation::none: return "barrier";
    case Operation::start: return "start";
    case Operation::load_plugin: return "plugin loaded";
    case Operation::create: return "plugin created";
    case Operation::plan: return "plan";
    case Operation::shard: return "sharded";
    case Operation::backward: return "after backward";
    case Operation::decide: return "after decide";
    case Operation::grad_norm: return "grad_norm";
    case Operation::all_reduce: return "all_reduce";
    case Operation::all_gather: return "all_gather";
    case Operation::evaluate: return "evaluation";
    case Operation::save: return "saving";
    case Operation::finish: return "end of run";
  }
  return "unknown";
}

// Ranks are at one place, but what has to be the same there is not.
[[noreturn]] void throw_different(Operation operation, const std::string& who) {
  switch (operation) {
    case Operation::start:
      throw UsageError(
          who +
          " were given different configs, texts or plugins; start every rank with the same file and the same --set");
    case Operation::shard:
      throw CommError(who +
                      " want to shard different modules, or in different ways; names, shapes, types, units and options "
                      "must be the same on every rank");
    case Operation::decide:
      throw Error(
          who +
          " scaled or clamped gradients differently: a plugin asked for different factors or limits on them; it "
          "must compute these from numbers that are the same on every rank (all_reduce makes them so)");
    default:
      throw CommError(who +
                      " ran different units, or in another order, in this step; every rank must run the same units in "
                      "the same order");
  }
}

double reduce(double a, double b, ReduceOp op) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  switch (op) {
    case ReduceOp::sum: return a + b;
    case ReduceOp::min: return std::min(a, b);
    case ReduceOp::max: return std::max(a, b);
  }
  return a;
}

}  // namespace

void Exchange::remember_failure(std::exception_ptr cause) {
  if (failure_ || agreed_) return;
  failure_ = std::move(cause);
  const Failure what = describe(failure_);
  exit_code_ = what.exit_code;
  if (what.own && transport_.world_size() > 1) transport_.group().report_fault(what.exit_code, what.text);
}

Agreed Exchange::agree(Operation operation, Packet mine) {
  if (agreed_) std::rethrow_exception(agreed_);
  mine.sequence = sequence_++;
  mine.operation = operation;
  mine.exit_code = failure_ ? static_cast<int32_t>(exit_code_) : 0;
  try {
    return combine(transport_.exchange(mine));
  } catch (...) {
    agreed_ = std::current_exception();
    throw;
  }
}

Agreed Exchange::combine(const std::vector<Packet>& packets) {
  if (failure_) std::rethrow_exception(failure_);
  for (size_t rank = 0; rank < packets.size(); ++rank) {
    if (packets[rank].exit_code != 0)
      throw_peer_failure(static_cast<int>(rank), static_cast<ExitCode>(packets[rank].exit_code));
  }
  check_same_place(packets);
  Agreed all;
  all.norm.norm_type = packets.front().norm_type;
  for (const Packet& packet : packets) {
    all.norm.add(packet.norm());
    all.loss_sum += packet.loss_sum;
    all.loss_weight += packet.loss_weight;
    all.decision = std::max(all.decision, packet.decision);
    all.requests |= packet.requests;
    all.found_inf |= packet.found_inf != 0;
    all.norm_measured |= packet.norm_measured != 0;
    all.peak_memory = std::max(all.peak_memory, packet.peak_memory);
  }
  return all;
}

void Exchange::all_reduce(std::vector<double>& values, ReduceOp op) {
  Packet mine;
  mine.count = values.size();
  mine.decision = static_cast<int32_t>(op);
  agree(Operation::all_reduce, mine);
  const std::vector<double> all = transport_.all_gather(values);
  const size_t size = values.size();
  for (size_t rank = 1; rank * size < all.size(); ++rank) {
    for (size_t i = 0; i < size; ++i) values[i] = reduce(rank == 1 ? all[i] : values[i], all[rank * size + i], op);
  }
}

std::vector<double> Exchange::all_gather(const std::vector<double>& values) {
  Packet mine;
  mine.count = values.size();
  agree(Operation::all_gather, mine);
  return transport_.all_gather(values);
}

void Exchange::check_same_place(const std::vector<Packet>& packets) const {
  const Packet& first = packets.front();
  for (size_t rank = 1; rank < packets.size(); ++rank) {
    const Packet& other = packets[rank];
    const std::string who = "rank 0 and rank " + std::to_string(rank);
    if (other.operation != first.operation || other.sequence != first.sequence) {
      throw CommError(who + " have lost each other: \"" + name(first.operation) + "\" (exchange " +
                      std::to_string(first.sequence) + ") met \"" + name(other.operation) + "\" (exchange " +
                      std::to_string(other.sequence) + "); every rank must make the same calls in the same order");
    }
    if (other.fingerprint != first.fingerprint) throw_different(first.operation, who);
    if (other.count != first.count || (first.operation == Operation::all_reduce && other.decision != first.decision)) {
      throw CommError(who + " join different things: " + std::to_string(first.count) + " and " +
                      std::to_string(other.count) + " values");
    }
    if (other.loss_scale != first.loss_scale) {
      throw Error(who + " have different loss scales: " + std::to_string(first.loss_scale) + " and " +
                  std::to_string(other.loss_scale) +
                  "; a plugin's loss_scale must return the same number on every rank");
    }
  }
}

void Exchange::throw_peer_failure(int rank, ExitCode exit_code) {
  std::string cause = "no cause given";
  try {
    if (const auto fault = transport_.group().fault_of(rank, std::chrono::seconds(1))) cause = fault->cause;
  } catch (const std::exception&) {
    cause = "its cause could not be read, as the store is gone";
  }
  throw PeerFailed(rank, exit_code, cause);
}

}  // namespace mantissa
