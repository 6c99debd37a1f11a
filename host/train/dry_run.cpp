#include "train/dry_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <numeric>
#include <unordered_map>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include "comm/world.h"
#include "data/sampler.h"
#include "fsdp/layout.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "plugin/precision.h"
#include "train/describe.h"
#include "train/open_data.h"
#include "train/shard_options.h"
#include "train/tensors.h"

namespace mantissa {
namespace {

// Counts the bytes of all tensors. For the one process of a dry run, which ends after it.
class MeteringAllocator final : public c10::Allocator {
 public:
  static MeteringAllocator& install() {
    static auto* meter = new MeteringAllocator;  // never destroyed: tensors may be freed after main has returned
    constexpr uint8_t kAboveAll = 255;
    c10::SetCPUAllocator(meter, kAboveAll);
    return *meter;
  }

  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    constexpr size_t kAlignment = 64;
    if (bytes > 0 && posix_memalign(&memory, kAlignment, bytes) != 0) throw std::bad_alloc();
    if (memory != nullptr) count(memory, bytes);
    return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  int64_t live() const { return live_; }
  /// The most since the last call.
  int64_t take_peak() { return std::exchange(peak_, live_); }

 private:
  MeteringAllocator() = default;
  void count(void* memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[memory] = bytes;
    live_ += static_cast<int64_t>(bytes);
    peak_ = std::max(peak_, live_);
  }
  void forget(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(memory);
    live_ -= static_cast<int64_t>(found->second);
    sizes_.erase(found);
  }
  static void release(void* memory) {
    if (memory == nullptr) return;
    install().forget(memory);
    std::free(memory);
  }

  std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;
  int64_t live_ = 0, peak_ = 0;
};

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

struct Measured {
  int64_t activation_bytes = 0, program_bytes = 0;
};

// One forward with the rows of the last rank: none has more.
Measured measure_forward(Model& model, const Config& config, const Dataset& data, int world_size,
                         MeteringAllocator& meter) {
  const Sampler sampler({config.run.seed, config.train.batch, config.train.microbatches, data.num_rows()});
  Batch batch = data.rows(sampler.rows_of(0, 0, {world_size - 1, world_size}));
  const BatchTensors tensors = tensors_of(batch);
  const int64_t before = meter.live();
  meter.take_peak();
  const at::Tensor loss = loss_sum(model.logits(tensors.inputs), tensors.targets);
  return {meter.take_peak() - before, resident_bytes() - meter.live()};
}

std::vector<int64_t> numels_of(const UnitEntry& unit, const ModulePlan& plan) {
  std::vector<int64_t> numels;
  for (size_t parameter : unit.parameters) numels.push_back(plan.parameters[parameter].tensor.numel());
  return numels;
}

MemoryQuestion question_of(const Config& config, const NumberFormats& formats, int world_size) {
  MemoryQuestion question;
  question.world_size = world_size;
  question.sharded = config.fsdp.full;
  question.reshard_after_forward = config.fsdp.reshard_after_forward;
  question.accumulates_unreduced = !config.fsdp.reduce_every_microbatch && config.train.microbatches > 1;
  question.optimizer_buffers = num_optimizer_buffers(config.optimizer);
  question.storage_bytes = static_cast<int64_t>(c10::elementSize(formats.storage_dtype));
  question.param_bytes = static_cast<int64_t>(c10::elementSize(formats.param_dtype));
  question.reduce_bytes = static_cast<int64_t>(c10::elementSize(formats.reduce_dtype));
  return question;
}

}  // namespace

DryRun dry_run(const Config& config, const std::filesystem::path& plugin_file, int world_size) {
  at::set_num_threads(static_cast<int>(config.distributed.threads));
  MeteringAllocator& meter = MeteringAllocator::install();
  const std::unique_ptr<Dataset> data = open_data(config);
  const std::unique_ptr<Model> model = make_model(config.model, config.data, config.run.seed);
  const ModulePlan plan = plan_units(*model->module(), false, shard_options(config.fsdp, {}));

  const World alone(std::make_shared<World::Impl>(Rendezvous{}, std::chrono::seconds(1)));
  ConfiguredPlugin plugin = load_configured_plugin(plugin_file, config);
  const Precision precision(std::move(plugin.library), std::move(plugin.options), plan, alone.impl().exchange,
                            config.plugins);

  DryRun result;
  result.run = describe_run({config, *model, plan, *data, precision.identity(), world_size});
  MemoryQuestion question = question_of(config, precision.formats(), world_size);
  for (const UnitEntry& unit : plan.units) {
    const std::vector<int64_t> numels = numels_of(unit, plan);
    if (numels.empty()) continue;
    const FlatLayout layout(numels, world_size, !config.fsdp.full);
    result.units.push_back({unit.name.empty() ? "(root)" : unit.name,
                            std::accumulate(numels.begin(), numels.end(), int64_t{0}), layout.shard_numel()});
    question.units.push_back({layout.padded()});
  }
  const Measured measured = measure_forward(*model, config, *data, world_size, meter);
  question.program_bytes = measured.program_bytes;
  question.activation_bytes = measured.activation_bytes;
  result.memory = estimate_memory(question);
  return result;
}

}  // namespace mantissa
