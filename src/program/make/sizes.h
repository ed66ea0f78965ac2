// Checks what a maker is given.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/base/types.h"

namespace axccl::program {

inline constexpr int64_t kMostLayers = 4096;
inline constexpr int64_t kMostSize = int64_t{1} << 24;  // so that no tensor of a maker has 2^63 bytes

// kInvalidArgument if a size is not positive or too large, or the type is neither a float nor of signed integers.
Status CheckSizes(std::string_view model, DataType type,
                  const std::vector<std::pair<std::string_view, int64_t>>& sizes);

}  // namespace axccl::program
