#include "train/open_data.h"

#include "data/generated.h"
#include "data/text.h"

namespace mantissa {

std::unique_ptr<Dataset> open_data(const Config& config) {
  const DataConfig& data = config.data;
  if (data.kind == "text") return std::make_unique<TextData>(data.path, data.heldout, config.model.context);
  return std::make_unique<GeneratedData>(GeneratedSettings{data.seed, data.inputs, data.classes, data.heldout_rows});
}

}  // namespace mantissa
