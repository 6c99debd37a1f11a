/*
 * fsdp_norm - clips by the global gradient norm of a sharded model.
 *
 * A rank holds only a piece of every gradient, so the norm is known only through the root module: the host offers the
 * sharded clip as a service on the handle of the root, and this plugin calls it. Numbers are float32 unless the options
 * ask for bfloat16 in computation or on the wire; the shards and the optimizer stay in float32.
 */
#include <mantissa/precision.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

MTS_PRECISION_NOTE("fsdp_norm");

struct mts_context {
  const mts_host* host;
  mts_dtype param_dtype;
  mts_dtype reduce_dtype;
};

static const mts_option_spec kOptions[] = {
    {.key = "param_dtype",
     .type = MTS_OPTION_STRING,
     .default_value = "\"float32\"",
     .choices = "float32|bfloat16",
     .help = "number format in which parameters are gathered and computed with"},
    {.key = "reduce_dtype",
     .type = MTS_OPTION_STRING,
     .default_value = "\"float32\"",
     .choices = "float32|bfloat16",
     .help = "number format of gradients on the wire"},
};

/* The host has checked the value against the choices above. */
static mts_status read_dtype(const mts_host* host, const char* key, mts_dtype* dtype) {
  mts_option option = {.header = MTS_HEADER(mts_option)};
  const mts_status status = host->option(host, key, &option);
  if (status == MTS_OK) *dtype = strcmp(option.string, "bfloat16") == 0 ? MTS_BF16 : MTS_F32;
  return status;
}

static mts_status create(const mts_host* host, mts_root root, mts_context** out) {
  (void)root; /* every step carries it */
  mts_context context = {.host = host};
  mts_status status = read_dtype(host, "param_dtype", &context.param_dtype);
  if (status == MTS_OK) status = read_dtype(host, "reduce_dtype", &context.reduce_dtype);
  if (status != MTS_OK) return status;

  *out = malloc(sizeof context);
  if (*out == NULL) return host->fail(host, MTS_NO_MEMORY, "no memory for the context");
  **out = context;
  return MTS_OK;
}

static void destroy(mts_context* context) { free(context); }

static mts_status plan(mts_context* context, mts_plan* plan) {
  plan->storage_dtype = MTS_F32;
  plan->param_dtype = context->param_dtype;
  plan->reduce_dtype = context->reduce_dtype;
  return MTS_OK;
}

static mts_status clip(mts_context* context, const mts_step* step, const mts_clip* clip, double* total_norm) {
  const mts_host* host = context->host;
  switch (clip->kind) {
    case MTS_CLIP_NONE: return host->grad_norm(host, step->root, clip->norm_type, total_norm);
    case MTS_CLIP_NORM: return host->clip_grad_norm(host, step->root, clip->limit, clip->norm_type, total_norm);
    default: break;
  }
  char text[96];
  snprintf(text, sizeof text, "clip kind %d is not offered; fsdp_norm clips by max_norm", (int)clip->kind);
  return host->fail(host, MTS_UNSUPPORTED, text);
}

static const mts_precision kPrecision = {
    .header = MTS_HEADER(mts_precision),
    .id = "fsdp_norm",
    .version = "1.0.0",
    .vendor = "Mantissa",
    .summary = "clips by the global gradient norm through the root module",
    .options = kOptions,
    .num_options = sizeof kOptions / sizeof kOptions[0],
    .option_size = sizeof kOptions[0],
    .clip_kinds = 1u << MTS_CLIP_NONE | 1u << MTS_CLIP_NORM,
    .create = create,
    .destroy = destroy,
    .plan = plan,
    .clip = clip,
};

const mts_precision* mts_precision_entry_v1(void) { return &kPrecision; }
