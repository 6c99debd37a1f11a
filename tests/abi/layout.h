/* The layout of precision.h as a compiler sees it, once through C (layout.c) and once through C++ (layout_test.cpp). */
#pragma once
#include <mantissa/precision.h>

typedef struct LayoutLine {
  const char* name; /* "mts_step", "mts_step.loss" or "MTS_SKIP" */
  long long first;  /* size of a struct, offset of a field, value of a constant */
  long long second; /* size of a field, else -1 */
} LayoutLine;

#define STRUCT(type) {#type, (long long)sizeof(type), -1},
#define FIELD(type, field) {#type "." #field, (long long)offsetof(type, field), (long long)sizeof(((type*)0)->field)},
#define CONSTANT(value) {#value, (long long)(value), -1},

#ifdef __cplusplus
extern "C"
#endif
    const LayoutLine*
    layout_in_c(size_t* count);
