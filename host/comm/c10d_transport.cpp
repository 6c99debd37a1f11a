// The transport over c10d. Gradients go by one all-to-all and are summed here, in rank order: half the bytes of Gloo's
// all-reduce, the same bits whatever Gloo does inside, and the norm is taken in the same pass.
#include <chrono>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/process_group.h"
#include "comm/transport.h"

namespace mantissa {
namespace {

int64_t shard_size(const UnitLayout& layout, int world_size) {
  return layout.replicated ? layout.padded : layout.padded / world_size;
}

class C10dTransport final : public Transport {
 public:
  explicit C10dTransport(ProcessGroup& group) : group_(group) {}

  int rank() const override { return group_.rank(); }
  int world_size() const override { return group_.world_size(); }
  uint64_t messages() const override { return messages_; }
  double seconds() const override { return std::chrono::duration<double>(spent_).count(); }
  ProcessGroup& group() override { return group_; }

  UnitId add_unit(const UnitLayout& layout) override {
    units_.push_back({layout, zeros(layout), {}, {}});
    return units_.size() - 1;
  }

  void scatter_from_rank_0(UnitId id, at::Tensor full) override {
    Unit& unit = units_[id];
    broadcast_from_rank_0(full);
    const int64_t size = unit.shard.numel();
    unit.shard.copy_(full.narrow(0, unit.layout.replicated ? 0 : rank() * size, size));
  }

  at::Tensor shard(UnitId id) override { return units_[id].shard; }

  at::Tensor grad_shard(UnitId id) override {
    Unit& unit = units_[id];
    if (!unit.grad_shard.defined()) unit.grad_shard = zeros(unit.layout);
    return unit.grad_shard;
  }

  at::DataPtr acquire(UnitId id, at::ScalarType dtype) override {
    Unit& unit = units_[id];
    if (is_shard_itself(unit, dtype)) return {unit.shard.data_ptr(), at::Device(at::kCPU)};
    const at::Tensor mine = unit.shard.to(dtype);
    at::DataPtr memory =
        c10::GetAllocator(at::kCPU)->allocate(static_cast<size_t>(unit.layout.padded) * mine.element_size());
    at::Tensor full = at::from_blob(memory.get(), {unit.layout.padded}, mine.options());
    if (is_whole(unit)) {
      full.copy_(mine);
    } else {
      at::Tensor input = mine;
      collective("gathering the parameters of " + unit.layout.name,
                 [&] { return group_.backend()._allgather_base(full, input); });
    }
    return memory;
  }

  void release(UnitId, at::DataPtr memory) override { memory.clear(); }
  void publish(UnitId) override {}  // acquire reads the shard itself

  at::Tensor gradient(UnitId id) override {
    Unit& unit = units_[id];
    if (!unit.gradient.defined()) unit.gradient = at::empty({unit.layout.padded}, unit.layout.reduce_dtype);
    return unit.gradient;
  }

  PartialNorm reduce(UnitId id, const ReduceOptions& options) override {
    at::Tensor mine = gradient(id);
    Unit& unit = units_[id];
    unit.gradient = at::Tensor();
    const int64_t piece = unit.layout.padded / world_size();
    at::Tensor parts = mine;
    if (world_size() > 1) {
      parts = at::empty_like(mine);
      std::vector<int64_t> equal;
      collective("reducing the gradients of " + unit.layout.name,
                 [&] { return group_.backend().alltoall_base(parts, mine, equal, equal); });
    }
    if (!unit.layout.replicated || world_size() == 1) return reduce_into_shard(unit, parts, options);

    // Replicated: each rank sums one piece, then all get all pieces.
    at::Tensor sum = at::empty({piece}, mine.options());
    with_element_type(unit.layout.reduce_dtype, [&]<class Wire>(std::type_identity<Wire>) {
      reduce_parts<Wire>(span_of<Wire>(sum), begins_of<Wire>(parts, piece), options.scale);
    });
    at::Tensor whole = mine;
    collective("gathering the gradients of " + unit.layout.name,
               [&] { return group_.backend()._allgather_base(whole, sum); });
    return reduce_into_shard(unit, whole, {1, options.accumulate, options.norm_type});
  }

  std::vector<Packet> exchange(const Packet& mine) override {
    std::vector<Packet> all(static_cast<size_t>(world_size()));
    if (world_size() == 1) return {mine};
    at::Tensor input = at::from_blob(const_cast<Packet*>(&mine), {sizeof(Packet)}, at::kByte);
    at::Tensor output = at::from_blob(all.data(), {static_cast<int64_t>(sizeof(Packet) * all.size())}, at::kByte);
    collective("an exchange", [&] { return group_.backend()._allgather_base(output, input); });
    return all;
  }

  std::vector<double> all_gather(std::span<const double> values) override {
    std::vector<double> mine(values.begin(), values.end());
    if (world_size() == 1 || mine.empty()) return mine;
    std::vector<double> all(mine.size() * static_cast<size_t>(world_size()));
    at::Tensor input = at::from_blob(mine.data(), {static_cast<int64_t>(mine.size())}, at::kDouble);
    at::Tensor output = at::from_blob(all.data(), {static_cast<int64_t>(all.size())}, at::kDouble);
    collective("gathering numbers", [&] { return group_.backend()._allgather_base(output, input); });
    return all;
  }

  void broadcast_from_rank_0(at::Tensor tensor) override {
    if (world_size() == 1 || tensor.numel() == 0) return;
    std::vector<at::Tensor> tensors{tensor};
    collective("broadcasting from rank 0", [&] { return group_.backend().broadcast(tensors); });
  }

  void barrier() override { exchange(Packet{}); }

 private:
  struct Unit {
    UnitLayout layout;
    at::Tensor shard, grad_shard, gradient;
  };

  at::Tensor zeros(const UnitLayout& layout) const {
    return at::zeros({shard_size(layout, world_size())}, layout.storage_dtype);
  }

  bool is_whole(const Unit& unit) const { return unit.layout.replicated || world_size() == 1; }

  // Where this rank holds all of it in the right type, the shard is the parameter: nothing to gather, nothing to copy.
  bool is_shard_itself(const Unit& unit, at::ScalarType dtype) const {
    return is_whole(unit) && dtype == unit.layout.storage_dtype;
  }

  template <class Issue>
  void collective(const std::string& what, Issue issue) {
    const auto start = std::chrono::steady_clock::now();
    ++messages_;
    group_.guarded(what, [&] { issue()->wait(); });
    spent_ += std::chrono::steady_clock::now() - start;
  }

  template <class T>
  static std::span<T> span_of(const at::Tensor& tensor) {
    return {tensor.data_ptr<T>(), static_cast<size_t>(tensor.numel())};
  }

  // Where each part of `size` elements begins.
  template <class T>
  static std::vector<const T*> begins_of(const at::Tensor& parts, int64_t size) {
    std::vector<const T*> begins;
    for (int64_t begin = 0; begin < parts.numel(); begin += size) begins.push_back(parts.const_data_ptr<T>() + begin);
    return begins;
  }

  // `parts`: of every rank, in reduce_dtype, one after the other.
  PartialNorm reduce_into_shard(Unit& unit, const at::Tensor& parts, const ReduceOptions& options) {
    const at::Tensor grad = grad_shard(static_cast<UnitId>(&unit - units_.data()));
    PartialNorm norm{options.norm_type};
    with_element_type(unit.layout.storage_dtype, [&]<class T>(std::type_identity<T>) {
      with_element_type(unit.layout.reduce_dtype, [&]<class Wire>(std::type_identity<Wire>) {
        const std::span<T> into = span_of<T>(grad);
        const std::vector<const Wire*> begins = begins_of<Wire>(parts, grad.numel());
        std::vector<const Wire*> from(begins.size());
        for (const Range& range : unit.layout.used) {
          for (size_t r = 0; r < from.size(); ++r) from[r] = begins[r] + range.begin;
          norm.add(reduce_and_measure<T, Wire>(
              into.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.end - range.begin)), from,
              options));
        }
      });
    });
    return norm;
  }

  ProcessGroup& group_;
  std::vector<Unit> units_;
  uint64_t messages_ = 0;
  std::chrono::steady_clock::duration spent_{};
};

}  // namespace

std::unique_ptr<Transport> make_transport(ProcessGroup& group) { return std::make_unique<C10dTransport>(group); }

}  // namespace mantissa
