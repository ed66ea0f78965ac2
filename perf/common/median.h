// The median of repeated measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace axccl::perf {

// Of at least one value; of an even number of them, the greater one of the two in the middle.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace axccl::perf
