// mantissa/clip.h: for loops that use shards() and torch::optim, so the scaling is applied at once.
#include "mantissa/clip.h"

#include <cmath>

#include "base/error.h"
#include "base/number_text.h"
#include "grad/gradients.h"

namespace mantissa {

double total_norm(Root& root, double norm_type) { return Gradients(root).norm(norm_type); }

double clip_grad_norm_(Root& root, double max_norm, double norm_type, bool error_if_nonfinite) {
  Gradients gradients(root);
  const double total_norm = gradients.clip_norm(max_norm, norm_type);
  if (error_if_nonfinite && !std::isfinite(total_norm)) {
    throw Diverged("the gradients' norm of type " + short_text(norm_type, 6) + " is " + short_text(total_norm, 6) +
                   ", so they cannot be clipped; pass error_if_nonfinite = false to go on with them as they are");
  }
  gradients.apply();
  return total_norm;
}

void clip_grad_value_(Root& root, double limit) {
  Gradients gradients(root);
  gradients.clip_value(limit);
  gradients.apply();
}

}  // namespace mantissa
