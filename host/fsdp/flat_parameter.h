// The flat parameter: some parameters of a unit, gathered by one collective and reduced by one.
//
// The module's parameters stay full-shape leaves; each is a view of one flat buffer whose storage comes and goes. While
// `sharded` this rank holds its shard only (padded / world_size elements of storage_dtype); while `gathered`, the flat
// buffer too (padded elements of param_dtype).
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "comm/transport.h"
#include "fsdp/layout.h"

namespace mantissa {

struct FlatDtypes {
  at::ScalarType storage = at::kFloat, param = at::kFloat, reduce = at::kFloat;
};

class FlatParameter {
 public:
  struct Member {
    size_t parameter = 0;  ///< index into ModulePlan::parameters
    std::string name;
    at::Tensor tensor;
  };

  /// [all ranks] Takes the members' values from rank 0, moves them into the flat buffer and frees it.
  FlatParameter(Transport& transport, const std::string& name, std::vector<Member> members, const FlatDtypes& dtypes,
                bool replicated, bool trainable);

  const std::vector<Member>& members() const { return members_; }
  const FlatLayout& layout() const { return layout_; }
  const std::vector<Piece>& pieces() const { return pieces_; }  ///< of this rank
  bool trainable() const { return trainable_; }
  bool replicated() const { return layout_.replicated(); }
  bool narrowed() const { return dtypes_.param != dtypes_.storage; }
  size_t gathered_bytes() const;  ///< of the flat buffer when gathered

  void unshard();  ///< [all ranks] idempotent
  void reshard();  ///< idempotent; nothing for a replicated one
  /// The shard may have changed: frees what was gathered before, or takes a replicated one from the shard anew.
  void renew();
  /// renew(), and says to the transport that this rank has changed the shard.
  void publish();
  /// True for a view of the flat buffer that comes and goes.
  bool holds(const at::Tensor& tensor) const;

  /// This rank's piece: a flat leaf of storage_dtype; trainable ones have grad() after a reduce.
  const at::Tensor& shard() const { return shard_; }
  /// Marks the gradient as empty: the next reduce overwrites it.
  void clear_gradient();

  /// Adds the gradient of one member to this rank's own full gradient.
  void add_gradient(size_t member, const at::Tensor& gradient);
  /// Adds it to what a later reduce takes along: micro-batches add up in storage_dtype, not in that of the wire.
  void add_deferred_gradient(size_t member, const at::Tensor& gradient);
  /// [all ranks] The mean over ranks, with what was deferred, goes into shard().grad().
  void reduce(double norm_type);
  /// Of the last reduce; counts on rank 0 alone if replicated.
  const PartialNorm& partial_norm() const { return partial_norm_; }

  /// [all ranks] The whole in storage_dtype, [padded]; member i is its view at layout().offset(i).
  at::Tensor full_copy();
  /// The members as they are in the gathered flat buffer, or before sharding: [padded] of storage_dtype.
  at::Tensor copy_in_members() const;
  /// As copy_in_members, but what still has the value of `before`, a full_copy, keeps its digits in storage_dtype.
  at::Tensor masters_of(const at::Tensor& before) const;
  /// [all ranks] Sets the whole from rank 0's `full`.
  void set_full(const at::Tensor& full);

 private:
  void check_members_in_place() const;
  void fill_missing_gradients();
  at::DataPtr swap_memory(at::DataPtr memory);
  at::Tensor member_of(const at::Tensor& flat, size_t member) const;

  Transport& transport_;
  std::string name_;
  std::vector<Member> members_;
  FlatLayout layout_;
  FlatDtypes dtypes_;
  bool trainable_, gathered_ = false;
  UnitId unit_ = 0;
  std::vector<Piece> pieces_;
  at::Tensor flat_, shard_, gradient_, deferred_;
  std::vector<bool> has_gradient_;  // members whose gradient is in gradient_
  PartialNorm partial_norm_;
};

}  // namespace mantissa
