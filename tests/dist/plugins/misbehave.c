/* Plugins for tests of the trainer, one a KIND: they clip in their own way, or fail at a place and on a rank of their
 * choice. */
#include <mantissa/precision.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
MTS_PRECISION_NOTE(TEXT(KIND));

enum {
  clips_at_half = 1,
  clips_nothing,
  unset_norm,
  wrong_norm,
  fails_in_create_on_rank_1,
  fails_in_clip_on_rank_1,
  stale_root_on_rank_1,
  returns_early_on_rank_1,
  aborts_at_step_3,
  skips_every_step,
  uneven_plan,
  asks_for_float16_storage,
  asks_for_float16_wire,
  bad_loss_scale,
  uneven_loss_scale,
  forgets_to_unscale,
  unscales_twice,
  unscales_by_another_scale,
  clips_in_unscale,
  leaves_found_inf_unset,
  finds_inf_on_rank_1,
  takes_every_step,
  writes_nan,
  clamps_then_asks_for_the_norm,
  scales_unevenly,
  clips_through_spans_after_the_norm,
  skips_spikes,
  creates_nothing,
  own_collectives,
  fails_in_update_on_rank_1,
  throws_in_clip_on_rank_1,
  leaves_in_clip_on_rank_1,
  crashes_in_clip_on_rank_1,
  loops_in_clip_on_rank_1,
  prints_on_rank_1
};

void throw_something(void); /* throw_something.cpp, in the kind that throws */
#ifndef THROWS
void throw_something(void) {}
#endif

/* In the third step, so that a run has begun. */
static void misbehave(const mts_step* step) {
  static volatile int forever = 1;
  if (KIND == prints_on_rank_1) puts("a word from the plugin");
  if (step->index < 2) return;
  if (KIND == throws_in_clip_on_rank_1) throw_something();
  if (KIND == leaves_in_clip_on_rank_1) exit(0);
  if (KIND == crashes_in_clip_on_rank_1) *(volatile int*)16 = 1;
  while (KIND == loops_in_clip_on_rank_1 && forever) {
  }
}

struct mts_context {
  const mts_host* host;
  mts_root_info info;
};

static mts_status create(const mts_host* host, mts_root root, mts_context** out) {
  mts_root_info info = {.header = MTS_HEADER(mts_root_info)};
  const mts_status status = host->root_info(host, root, &info);
  if (status != MTS_OK) return status;
  if (KIND == fails_in_create_on_rank_1 && info.rank == 1)
    return host->fail(host, MTS_INTERNAL, "no licence on this machine");
  if (KIND == creates_nothing) return MTS_OK;
  *out = calloc(1, sizeof **out);
  if (*out == NULL) return MTS_NO_MEMORY;
  (*out)->host = host;
  (*out)->info = info;
  return MTS_OK;
}

static void destroy(mts_context* context) { free(context); }

static mts_status plan(mts_context* context, mts_plan* plan) {
  if (KIND == uneven_plan && context->info.rank == 1) plan->reduce_dtype = MTS_BF16;
  if (KIND == asks_for_float16_storage) plan->storage_dtype = plan->param_dtype = plan->reduce_dtype = MTS_F16;
  if (KIND == asks_for_float16_wire) plan->reduce_dtype = MTS_F16;
  if (KIND >= bad_loss_scale && KIND <= finds_inf_on_rank_1) plan->scales_loss = 1;
  return MTS_OK;
}

static mts_status multiply_spans(mts_context* context, mts_root root, float factor) {
  for (uint64_t param = 0; param < context->info.num_params; ++param) {
    mts_span span = {.header = MTS_HEADER(mts_span)};
    const mts_status status = context->host->span(context->host, root, param, MTS_GRAD, MTS_WRITE, &span);
    if (status != MTS_OK) return status;
    for (uint64_t i = 0; i < span.num_elements; ++i) ((float*)span.data)[i] *= factor;
  }
  return MTS_OK;
}

/* From the third step on. */
static mts_status loss_scale(mts_context* context, const mts_step* step, double* scale) {
  *scale = 4;
  if (step->index < 2) return MTS_OK;
  if (KIND == bad_loss_scale) *scale = 0;
  if (KIND == uneven_loss_scale && context->info.rank == 1) *scale = 8;
  return MTS_OK;
}

static mts_status unscale(mts_context* context, const mts_step* step, int32_t* found_inf) {
  const mts_host* host = context->host;
  double scale = step->loss_scale, norm = 0;
  if (step->index >= 2) {
    if (KIND == forgets_to_unscale) return *found_inf = 0, MTS_OK;
    if (KIND == unscales_by_another_scale) scale *= 2;
    if (KIND == clips_in_unscale) host->clip_grad_norm(host, step->root, 1, 2, &norm);
    if (KIND == leaves_found_inf_unset) {
      int32_t ignored = 0;
      return host->unscale_grads(host, step->root, scale, &ignored);
    }
  }
  const mts_status status = host->unscale_grads(host, step->root, scale, found_inf);
  if (KIND == unscales_twice && step->index >= 2) host->unscale_grads(host, step->root, scale, found_inf);
  if (KIND == finds_inf_on_rank_1 && step->index == 2 && context->info.rank == 1) *found_inf = 1;
  return status;
}

static mts_status clip(mts_context* context, const mts_step* step, const mts_clip* clip, double* total_norm) {
  const mts_host* host = context->host;
  const int on_rank_1 = context->info.rank == 1;
  double norm = 0;
  if (on_rank_1) misbehave(step);
  if (KIND == clips_at_half)
    return host->clip_grad_norm(host, step->root, clip->limit / 2, clip->norm_type, total_norm);
  if (KIND == clips_nothing) return host->grad_norm(host, step->root, clip->norm_type, total_norm);
  if (KIND == unset_norm) return host->clip_grad_norm(host, step->root, clip->limit, clip->norm_type, &norm);
  if (KIND == wrong_norm) {
    const mts_status status = host->clip_grad_norm(host, step->root, clip->limit, clip->norm_type, total_norm);
    *total_norm *= 2;
    return status;
  }
  if (KIND == fails_in_clip_on_rank_1 && on_rank_1) return host->fail(host, MTS_INTERNAL, "the sensor is off");
  if (KIND == stale_root_on_rank_1 && on_rank_1) {
    const mts_root foreign = {step->root.index, step->root.generation + 1};
    host->scale_grads(host, foreign, 0.5); /* ignores the status: the slot must fail all the same */
  }
  if (KIND == writes_nan) {
    const mts_status status = host->clip_grad_norm(host, step->root, clip->limit, clip->norm_type, total_norm);
    return status != MTS_OK ? status : multiply_spans(context, step->root, step->index == 2 ? NAN : 1);
  }
  if (KIND == clamps_then_asks_for_the_norm) {
    const mts_status status = host->grad_norm(host, step->root, 2, total_norm);
    if (status != MTS_OK) return status;
    host->clip_grad_value(host, step->root, clip->limit);
    return host->grad_norm(host, step->root, 2, &norm);
  }
  if (KIND == scales_unevenly) {
    const mts_status status = host->clip_grad_norm(host, step->root, clip->limit, clip->norm_type, total_norm);
    host->scale_grads(host, step->root, on_rank_1 ? 0.5 : 0.25);
    return status;
  }
  if (KIND == clips_through_spans_after_the_norm) {
    mts_status status = multiply_spans(context, step->root, 1);
    if (status == MTS_OK) status = host->grad_norm(host, step->root, 2, total_norm);
    return status != MTS_OK ? status : multiply_spans(context, step->root, (float)(clip->limit / 2 / *total_norm));
  }
  if (KIND == skips_spikes) return host->grad_norm(host, step->root, clip->norm_type, total_norm);
  if (KIND == returns_early_on_rank_1) {
    if (on_rank_1) return host->fail(host, MTS_INTERNAL, "left before the collective");
    const mts_status status = host->grad_norm(host, step->root, 3, &norm); /* the others wait here for rank 1 */
    if (status != MTS_OK) return status;
  }
  if (KIND == own_collectives) {
    double values[2] = {context->info.rank + 1.0, step->loss};
    const mts_status status = host->all_reduce(host, step->root, values, 2, MTS_SUM);
    if (status != MTS_OK) return status;
    const double ranks = context->info.world_size;
    if (values[0] != ranks * (ranks + 1) / 2 || fabs(values[1] - ranks * step->loss) > 1e-9)
      return host->fail(host, MTS_INTERNAL, "all_reduce is wrong");
    double cubic = 0;
    const mts_status cubed = host->grad_norm(host, step->root, 3, &cubic);
    if (cubed != MTS_OK) return cubed;
    const mts_status known = host->grad_norm(host, step->root, clip->norm_type, &norm);
    if (known != MTS_OK) return known;
    if (!(cubic > 0 && cubic < norm)) return host->fail(host, MTS_INTERNAL, "the 3-norm is not below the 2-norm");
  }
  return host->clip_grad_norm(host, step->root, clip->limit, clip->norm_type, total_norm);
}

static mts_status decide(mts_context* context, const mts_step* step, mts_decision* decision) {
  if (KIND == skips_every_step || KIND == skips_spikes) *decision = MTS_SKIP;
  if (KIND == takes_every_step) *decision = MTS_STEP;
  if (KIND == aborts_at_step_3 && step->index == 3) {
    context->host->fail(context->host, MTS_OK, "the loss has stopped falling");
    *decision = MTS_ABORT;
  }
  return MTS_OK;
}

static mts_status update(mts_context* context, const mts_step* step) {
  if (KIND == fails_in_update_on_rank_1 && context->info.rank == 1 && step->index == 2)
    return context->host->fail(context->host, MTS_INTERNAL, "no room for the log");
  return MTS_OK;
}

static const mts_precision kPrecision = {.header = MTS_HEADER(mts_precision),
                                         .id = TEXT(KIND),
                                         .version = "1.0.0",
                                         .vendor = "tests",
                                         .summary = "for tests",
                                         .option_size = sizeof(mts_option_spec),
                                         .clip_kinds = 1u << MTS_CLIP_NONE | 1u << MTS_CLIP_NORM | 1u << MTS_CLIP_VALUE,
                                         .create = create,
                                         .destroy = destroy,
                                         .plan = plan,
                                         .loss_scale = loss_scale,
                                         .unscale = unscale,
                                         .clip = clip,
                                         .decide = decide,
                                         .update = update};

const mts_precision* mts_precision_entry_v1(void) { return &kPrecision; }
