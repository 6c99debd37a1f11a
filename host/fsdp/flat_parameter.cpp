#include "fsdp/flat_parameter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"

namespace mantissa {
namespace {

std::vector<int64_t> numels(const std::vector<FlatParameter::Member>& members) {
  std::vector<int64_t> result;
  for (const auto& member : members) result.push_back(member.tensor.numel());
  return result;
}

at::DataPtr no_memory() { return {nullptr, at::Device(at::kCPU)}; }

std::vector<Range> used_ranges(const std::vector<Piece>& pieces) {
  std::vector<Range> ranges;
  for (const Piece& piece : pieces) ranges.push_back({piece.shard_offset, piece.shard_offset + piece.numel});
  return ranges;
}

}  // namespace

FlatParameter::FlatParameter(Transport& transport, const std::string& name, std::vector<Member> members,
                             const FlatDtypes& dtypes, bool replicated, bool trainable)
    : transport_(transport),
      name_(name),
      members_(std::move(members)),
      layout_(numels(members_), transport.world_size(), replicated),
      dtypes_(dtypes),
      trainable_(trainable),
      pieces_(layout_.pieces(transport.rank())) {
  const at::NoGradGuard no_grad;
  unit_ =
      transport_.add_unit({name_, layout_.padded(), used_ranges(pieces_), dtypes_.storage, dtypes_.reduce, replicated});
  transport_.scatter_from_rank_0(unit_, copy_in_members());
  shard_ = transport_.shard(unit_).detach();
  shard_.set_requires_grad(trainable_);

  flat_ = at::empty({layout_.padded()}, dtypes_.param);
  for (size_t i = 0; i < members_.size(); ++i) members_[i].tensor.set_data(member_of(flat_, i));
  swap_memory(no_memory());  // what at::empty gave
  if (replicated) unshard();
}

size_t FlatParameter::gathered_bytes() const {
  return static_cast<size_t>(layout_.padded()) * c10::elementSize(dtypes_.param);
}

// Hands the flat buffer other memory, null for none, and returns what it had.
at::DataPtr FlatParameter::swap_memory(at::DataPtr memory) {
  c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
  gathered_ = memory.get() != nullptr;
  at::DataPtr before = storage->set_data_ptr(std::move(memory));
  storage->set_nbytes(gathered_ ? gathered_bytes() : 0);
  return before;
}

void FlatParameter::unshard() {
  if (gathered_) return;
  check_members_in_place();
  const at::NoGradGuard no_grad;
  swap_memory(transport_.acquire(unit_, dtypes_.param));
}

void FlatParameter::reshard() {
  if (!gathered_ || replicated()) return;
  transport_.release(unit_, swap_memory(no_memory()));
}

void FlatParameter::renew() {
  const at::NoGradGuard no_grad;
  if (replicated()) {
    transport_.release(unit_, swap_memory(transport_.acquire(unit_, dtypes_.param)));
  } else {
    reshard();
  }
}

void FlatParameter::publish() {
  transport_.publish(unit_);
  renew();
}

bool FlatParameter::holds(const at::Tensor& tensor) const {
  return !replicated() && tensor.storage().unsafeGetStorageImpl() == flat_.storage().unsafeGetStorageImpl();
}

void FlatParameter::check_members_in_place() const {
  for (const Member& member : members_) {
    if (member.tensor.storage().unsafeGetStorageImpl() == flat_.storage().unsafeGetStorageImpl()) continue;
    throw UsageError("parameter \"" + member.name +
                     "\" was moved out of its unit's storage, so that it is no longer sharded: do not call to(), "
                     "set_data() or the like on a sharded module; convert it before fully_shard");
  }
}

void FlatParameter::clear_gradient() {
  shard_.mutable_grad() = at::Tensor();
  gradient_ = deferred_ = at::Tensor();
}

void FlatParameter::add_gradient(size_t member, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  if (!gradient_.defined()) {
    gradient_ = transport_.gradient(unit_);
    has_gradient_.assign(members_.size(), false);
  }
  const at::Tensor place = member_of(gradient_, member);
  if (has_gradient_[member]) {
    place.add_(gradient.view_as(place));
  } else {
    place.copy_(gradient.view_as(place));
    has_gradient_[member] = true;
  }
}

// Straight into the sum, so that no second full gradient is there beside it.
void FlatParameter::add_deferred_gradient(size_t member, const at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  if (!deferred_.defined()) deferred_ = at::zeros({layout_.padded()}, dtypes_.storage);
  const at::Tensor place = member_of(deferred_, member);
  place.add_(gradient.view_as(place));
}

// What had no gradient in this backward pass counts as zeros.
void FlatParameter::fill_missing_gradients() {
  if (!gradient_.defined()) {
    transport_.gradient(unit_).zero_();
    return;
  }
  for (size_t member = 0; member < members_.size(); ++member) {
    if (!has_gradient_[member]) member_of(gradient_, member).zero_();
  }
}

at::Tensor FlatParameter::member_of(const at::Tensor& flat, size_t member) const {
  return flat.narrow(0, layout_.offset(member), layout_.numel(member)).view(members_[member].tensor.sizes());
}

void FlatParameter::reduce(double norm_type) {
  const at::NoGradGuard no_grad;
  fill_missing_gradients();
  if (deferred_.defined()) {
    const at::Tensor whole = transport_.gradient(unit_);
    whole.copy_(deferred_.add_(whole));
  }
  gradient_ = deferred_ = at::Tensor();
  const bool accumulate = shard_.grad().defined();
  const at::Tensor reduced = transport_.grad_shard(unit_);
  const bool is_users_own = accumulate && shard_.grad().data_ptr() != reduced.data_ptr();
  if (is_users_own) reduced.copy_(shard_.grad());
  const PartialNorm norm = transport_.reduce(unit_, {1.0 / transport_.world_size(), accumulate, norm_type});
  shard_.mutable_grad() = reduced;
  partial_norm_ = replicated() && transport_.rank() != 0 ? PartialNorm{norm_type} : norm;
}

at::Tensor FlatParameter::copy_in_members() const {
  at::Tensor full = at::zeros({layout_.padded()}, dtypes_.storage);
  for (size_t i = 0; i < members_.size(); ++i) member_of(full, i).copy_(members_[i].tensor);
  return full;
}

at::Tensor FlatParameter::full_copy() {
  const at::NoGradGuard no_grad;
  at::DataPtr memory = transport_.acquire(unit_, dtypes_.storage);
  at::Tensor copy = at::from_blob(memory.get(), {layout_.padded()}, dtypes_.storage).clone();
  transport_.release(unit_, std::move(memory));
  return copy;
}

void FlatParameter::set_full(const at::Tensor& full) {
  const at::NoGradGuard no_grad;
  transport_.scatter_from_rank_0(unit_, full);
  publish();
}

at::Tensor FlatParameter::masters_of(const at::Tensor& before) const {
  const at::NoGradGuard no_grad;
  if (!narrowed()) return copy_in_members();
  // Widened: what was not written has lost the digits that param_dtype cannot hold.
  const at::Tensor now = copy_in_members();
  return at::where(before.to(dtypes_.param).to(dtypes_.storage).eq(now), before, now);
}

}  // namespace mantissa
