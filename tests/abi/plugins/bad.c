/* Plugins with one fault each in file or table; BAD_<NAME> is defined for one of them. */
#include <mantissa/precision.h>

#ifndef BAD_NO_NOTE
#ifdef BAD_LATER_MINOR
MTS_PRECISION_NOTE("later_minor");
#else
MTS_PRECISION_NOTE("bad");
#endif
#endif

static mts_status create(const mts_host* host, mts_root root, mts_context** out) {
  (void)host, (void)root;
  *out = NULL;
  return MTS_OK;
}
static void destroy(mts_context* context) { (void)context; }
static mts_status plan(mts_context* context, mts_plan* inout) {
  (void)context, (void)inout;
  return MTS_OK;
}

#if defined(BAD_OPTION)
static const mts_option_spec kOptions[] = {{"a", MTS_OPTION_INT, 0, "\"text\"", 0, 9, NULL, ""}};
#endif

/* What a later minor would append. */
typedef struct {
  mts_precision known;
  mts_status (*quiesce)(mts_context*);
} longer_table;

static const longer_table kTable = {
    .known =
        {
#if defined(BAD_MAJOR)
            .header = {sizeof(mts_precision), 2, 0},
#elif defined(BAD_SHORT)
            .header = {sizeof(mts_precision) - 8, MTS_ABI_MAJOR, MTS_ABI_MINOR},
#elif defined(BAD_SIZE)
            .header = {UINT64_MAX, MTS_ABI_MAJOR, MTS_ABI_MINOR},
#elif defined(BAD_LATER_MINOR)
            .header = {sizeof(longer_table), MTS_ABI_MAJOR, MTS_ABI_MINOR + 1},
#else
            .header = MTS_HEADER(mts_precision),
#endif
#if defined(BAD_ID)
            .id = "good",
#elif defined(BAD_NO_ID)
            .id = NULL,
#elif defined(BAD_LATER_MINOR)
            .id = "later_minor",
#else
            .id = "bad",
#endif
#if defined(BAD_OPTION)
            .options = kOptions,
            .num_options = 1,
            .option_size = sizeof kOptions[0],
#endif
#if !defined(BAD_NO_CREATE)
            .create = create,
#endif
#if !defined(BAD_NO_DESTROY)
            .destroy = destroy,
#endif
#if !defined(BAD_NO_PLAN)
            .plan = plan,
#endif
            .clip_kinds = 1u << MTS_CLIP_NONE | 1u << MTS_CLIP_VALUE,
        },
};

#if defined(BAD_UNRESOLVED)
int mantissa_symbol_that_nobody_defines(void);
#endif

#if defined(BAD_NO_ENTRY)
MTS_EXPORT const void* another_entry(void);
const void* another_entry(void) { return &kTable; }
#else
const mts_precision* mts_precision_entry_v1(void) {
#if defined(BAD_NULL)
  (void)kTable;
  return NULL;
#elif defined(BAD_UNRESOLVED)
  return mantissa_symbol_that_nobody_defines() ? &kTable.known : NULL;
#else
  return &kTable.known;
#endif
}
#endif
