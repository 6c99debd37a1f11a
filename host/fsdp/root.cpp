#include "fsdp/root.h"

#include <map>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/module.h>

#include "base/error.h"
#include "fsdp/block_allocator.h"

namespace mantissa {
namespace {

bool inside_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

at::ScalarType or_else(at::ScalarType dtype, at::ScalarType fallback) {
  return dtype == at::ScalarType::Undefined ? fallback : dtype;
}

}  // namespace

Root::Root(ModulePlan plan, const World& world, const ShardOptions& options)
    : plan_(std::move(plan)), world_(world), options_(options) {}

Root::~Root() {
  for (UnitEntry& entry : plan_.units) {
    if (entry.module != nullptr) entry.module->attach(nullptr);
  }
}

std::shared_ptr<Root> Root::shard(const std::shared_ptr<torch::nn::Module>& module, ModulePlan plan, const World& world,
                                  const ShardOptions& options) {
  if (c10::InferenceMode::is_enabled()) {
    throw UsageError(
        "fully_shard was called under InferenceMode, where parameters lose their gradients silently; call it outside");
  }
  BlockAllocator::install();
  const std::shared_ptr<Root> root(new Root(std::move(plan), world, options));
  const at::NoGradGuard no_grad;
  root->agree_on_plan();
  for (const auto& buffer : module->named_buffers()) {
    root->broadcast_buffer(buffer.key(), buffer.value());
    root->cast_buffer(buffer.key(), buffer.value());
  }
  for (size_t i = 0; i < root->plan_.units.size(); ++i) root->add_unit(i);
  root->find_trainable_pieces();
  for (size_t i = 0; i < root->units_.size(); ++i) {
    if (UnitBase* unit = root->plan_.units[i].module) unit->attach(root->units_[i]);
  }
  BlockAllocator::install().trim();  // what held the whole model goes back to the system
  root->stats_.num_units = static_cast<int>(root->units_.size());
  root->reset_peak();
  return root;
}

// Ranks that built different modules would mix parameters of equal size under each other's names.
void Root::agree_on_plan() {
  std::string text =
      std::to_string(static_cast<int>(options_.sharding)) + std::to_string(static_cast<int>(options_.storage_dtype)) +
      std::to_string(static_cast<int>(options_.param_dtype)) + std::to_string(static_cast<int>(options_.reduce_dtype)) +
      std::to_string(static_cast<int>(options_.buffer_dtype));
  for (const ParameterEntry& parameter : plan_.parameters) {
    text += "|" + parameter.name + ":" + std::to_string(parameter.unit) + (parameter.trainable ? "t" : "f") +
            (parameter.replicated ? "r" : "s") + c10::toString(parameter.tensor.scalar_type());
    for (int64_t size : parameter.sizes) text += "," + std::to_string(size);
  }
  Packet packet;
  packet.fingerprint = std::hash<std::string>()(text);
  exchange().agree(Operation::shard, packet);
}

void Root::broadcast_buffer(const std::string& name, const at::Tensor& buffer) {
  if (!buffer.defined() || buffer.numel() == 0) return;
  if (at::has_internal_overlap(buffer) == at::MemOverlap::Yes) {
    throw UsageError(
        "buffer \"" + name +
        "\" holds elements that share memory (expand?), so it cannot be set from rank 0; register a clone() of it");
  }
  const at::Tensor whole = buffer.contiguous();
  transport().broadcast_from_rank_0(whole.view({-1}).view(at::kByte));
  if (!whole.is_same(buffer)) buffer.copy_(whole);
}

// Statistics of batch norms are sums over many batches: they are never kept in 16 bits.
void Root::cast_buffer(const std::string& name, at::Tensor buffer) const {
  const at::ScalarType dtype = options_.buffer_dtype;
  if (dtype == at::ScalarType::Undefined || !buffer.defined() || !buffer.is_floating_point()) return;
  const bool is_statistic = name.ends_with("running_mean") || name.ends_with("running_var");
  if (is_statistic && c10::elementSize(dtype) < c10::elementSize(at::kFloat)) return;
  if (buffer.scalar_type() != dtype) buffer.set_data(buffer.to(dtype));
}

void Root::add_unit(size_t index) {
  const UnitEntry& entry = plan_.units[index];
  const auto unit = std::make_shared<UnitState>(*this, entry.name, index == 0, index);
  units_.push_back(unit);
  // One flat parameter for each dtype, trainable ones and frozen ones apart; in an order that all ranks share.
  std::map<std::pair<bool, at::ScalarType>, std::vector<size_t>> groups;
  for (size_t parameter : entry.parameters) {
    const ParameterEntry& p = plan_.parameters[parameter];
    const at::ScalarType storage = or_else(options_.storage_dtype, p.tensor.scalar_type());
    groups[{!p.trainable, storage}].push_back(parameter);
  }
  for (const auto& [key, parameters] : groups) add_flat_parameter(*unit, parameters, !key.first);
}

FlatDtypes Root::dtypes_of(const std::vector<size_t>& parameters) const {
  const ParameterEntry& first = plan_.parameters[parameters.front()];
  FlatDtypes dtypes;
  dtypes.storage = or_else(options_.storage_dtype, first.tensor.scalar_type());
  dtypes.param = or_else(options_.param_dtype, dtypes.storage);
  dtypes.reduce = or_else(options_.reduce_dtype, dtypes.storage);
  for (const auto& [what, dtype] :
       {std::pair{"storage_dtype", dtypes.storage}, {"param_dtype", dtypes.param}, {"reduce_dtype", dtypes.reduce}}) {
    if (is_element_type(dtype)) continue;
    throw UsageError("parameter \"" + first.name + "\" would have " + what + " " + c10::toString(dtype) +
                     "; need Double, Float, BFloat16 or Half");
  }
  return dtypes;
}

void Root::find_trainable_pieces() {
  std::vector<TrainablePiece> by_parameter(plan_.parameters.size());
  for (FlatParameter* flat : trainable_) {
    for (const FlatParameter::Member& member : flat->members()) by_parameter[member.parameter].flat = flat;
    for (const Piece& piece : flat->pieces()) {
      by_parameter[flat->members()[piece.parameter].parameter] = {flat, piece.parameter_offset, piece.shard_offset,
                                                                  piece.numel};
    }
  }
  for (const size_t parameter : plan_.trainable) trainable_pieces_.push_back(by_parameter[parameter]);
}

void Root::add_flat_parameter(UnitState& unit, const std::vector<size_t>& parameters, bool trainable) {
  std::vector<FlatParameter::Member> members;
  for (size_t parameter : parameters)
    members.push_back({parameter, plan_.parameters[parameter].name, plan_.parameters[parameter].tensor});
  const UnitEntry& entry = plan_.units[unit.index()];
  const std::string name = entry.name.empty() ? "the root" : "unit " + entry.name;
  auto flat = std::make_unique<FlatParameter>(transport(), name, std::move(members), dtypes_of(parameters),
                                              entry.replicated, trainable);
  if (trainable) trainable_.push_back(flat.get());
  unit.add_parameters(std::move(flat));
}

PartialNorm Root::partial_norm() const {
  PartialNorm norm{norm_type_};
  for (const FlatParameter* flat : trainable_) norm.add(flat->partial_norm());
  return norm;
}

PartialNorm Root::partial_norm(size_t unit) const {
  PartialNorm norm{norm_type_};
  for (const auto& flat : units_[unit]->flat_parameters()) {
    if (flat->trainable()) norm.add(flat->partial_norm());
  }
  return norm;
}

void Root::clear_gradients() {
  for (FlatParameter* flat : trainable_) flat->clear_gradient();
  unreduced_ = false;
}

void Root::publish() {
  for (FlatParameter* flat : trainable_) flat->publish();
  for (const auto& unit : units_) unit->reshard();
}

void Root::renew() {
  if (in_backward_) return;
  for (FlatParameter* flat : trainable_) flat->renew();
  for (const auto& unit : units_) unit->reshard();
}

void Root::visit_full(const std::function<void(const ParameterEntry&, const at::Tensor&)>& visit) {
  for (const auto& unit : units_) {
    for (const auto& flat : unit->flat_parameters()) {
      const at::Tensor full = flat->full_copy();
      for (size_t i = 0; i < flat->members().size(); ++i) {
        const ParameterEntry& entry = plan_.parameters[flat->members()[i].parameter];
        visit(entry, full.narrow(0, flat->layout().offset(i), flat->layout().numel(i)).view(entry.sizes));
      }
    }
  }
}

Stats Root::stats() const { return stats_; }

void Root::reset_peak() {
  stats_.peak_gathered_bytes = stats_.gathered_bytes;
  stats_.peak_units = stats_.gathered_units;
}

void Root::check_usable() const {
  if (failure_)
    throw Error("this root cannot be used any more: a backward pass ended with an error (" + describe(failure_).text +
                ")");
  if (in_backward_ && !inside_backward()) {
    throw Error(
        "this root cannot be used any more: a backward pass ended with an exception before all gradients were reduced, "
        "and the ranks "
        "may be at different places; start again");
  }
}

void Root::count_call(const UnitState& unit, bool grad_mode) {
  call_hash_ = (call_hash_ ^ (2 * unit.index() + (grad_mode ? 1 : 0) + 1)) * 0x100000001b3ull;  // FNV-1a over the calls
}

void Root::count_gathered(const UnitState& unit) {
  const size_t bytes = unit.gathered_bytes();
  if (bytes == 0) return;
  stats_.gathered_bytes += bytes;
  stats_.gathered_units += 1;
  stats_.peak_gathered_bytes = std::max(stats_.peak_gathered_bytes, stats_.gathered_bytes);
  stats_.peak_units = std::max(stats_.peak_units, stats_.gathered_units);
}

void Root::count_freed(const UnitState& unit) {
  const size_t bytes = unit.gathered_bytes();
  if (bytes == 0) return;
  stats_.gathered_bytes -= bytes;
  stats_.gathered_units -= 1;
}

void Root::begin_backward() {
  if (in_backward_) return;
  in_backward_ = true;
  num_reduced_ = 0;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { guarded([this] { end_backward(); }); });
}

void Root::reduce_ready_units() {
  if (!reduces_now()) return;
  for (; num_reduced_ < units_.size(); ++num_reduced_) {
    UnitState& unit = *units_[units_.size() - 1 - num_reduced_];
    if (!unit.ready()) return;
    unit.reduce(norm_type_);
  }
}

void Root::end_backward() {
  for (const auto& unit : units_) unit->set_ready();
  reduce_ready_units();  // the rest: what had no gradient counts as zeros
  for (const auto& unit : units_) unit->end_backward();
  unreduced_ = !reduces_now();
  in_backward_ = false;
}

}  // namespace mantissa
