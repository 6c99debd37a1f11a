// mantissa/world.h - the ranks of a job.
#pragma once
#include <chrono>
#include <memory>

namespace mantissa {

/// The ranks of this job, from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; without them, one rank. A copyable
/// handle; the last one that goes closes the group.
class World {
 public:
  struct Impl;

  /// Joins the other ranks. `timeout` bounds this and every later collective. Throws UsageError, CommError.
  static World from_env(std::chrono::seconds timeout = std::chrono::minutes(5));
  explicit World(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  int rank() const;
  int size() const;
  /// [all ranks]
  void barrier() const;
  /// [all ranks] The sum over the ranks, in rank order: the same bits on every rank.
  double all_reduce(double value) const;

  Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace mantissa
