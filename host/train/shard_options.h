// How the root is sharded: what [fsdp] says, in the number formats that the plugin asked for.
#pragma once
#include "config/config.h"
#include "mantissa/fully_shard.h"
#include "plugin/precision.h"

namespace mantissa {

inline ShardOptions shard_options(const FsdpConfig& config, const NumberFormats& formats) {
  ShardOptions options;
  options.sharding = config.full ? Sharding::full : Sharding::none;
  options.storage_dtype = formats.storage_dtype;
  options.param_dtype = formats.param_dtype;
  options.reduce_dtype = formats.reduce_dtype;
  options.buffer_dtype = formats.buffer_dtype;
  options.reshard_after_forward = config.reshard_after_forward;
  options.reduce_every_microbatch = config.reduce_every_microbatch;
  return options;
}

}  // namespace mantissa
