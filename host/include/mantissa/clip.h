// mantissa/clip.h - norms and clipping of sharded gradients, as torch.nn.utils has them for whole ones.
#pragma once

namespace mantissa {

class Root;

/// [all ranks] The p-norm over all trainable parameters of `root`, before any clipping: shards over the ranks that hold
/// them, replicated and tied parameters once, padding and frozen ones never. float64; the same bits on every rank; NaN
/// if any gradient holds one, otherwise inf if any is infinite. Throws UsageError unless norm_type is in (0, inf].
double total_norm(Root& root, double norm_type = 2);

/// [all ranks] Multiplies the gradients by min(1, max_norm / (total_norm + 1e-6)) and returns the norm before.
/// A norm that is not finite leaves the gradients alone; with `error_if_nonfinite` it throws Diverged on every rank.
double clip_grad_norm_(Root& root, double max_norm, double norm_type = 2, bool error_if_nonfinite = true);

/// Clamps every element of this rank's gradients to [-limit, limit]; NaN stays. Throws UsageError unless limit >= 0.
void clip_grad_value_(Root& root, double limit);

}  // namespace mantissa
