#include "layout.h"

static const LayoutLine kLines[] = {
#include "layout.inc"
};

const LayoutLine* layout_in_c(size_t* count) {
  *count = sizeof kLines / sizeof kLines[0];
  return kLines;
}
