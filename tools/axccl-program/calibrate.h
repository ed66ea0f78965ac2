// Measures this machine for simulations.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/program/simulate/measured.h"
#include "tools/axccl-program/run_options.h"

namespace axccl::tools {

// The text of a fabric (src/program/simulate/machines.h): what that many ranks need, as threads that run local
// operations by `how.local` at the same time. Of the times of each
// repetition, the least counts. Takes seconds. Errors are those of a run.
Result<std::string> Calibrate(int ranks, const RunOptions& how, int repetitions = 10);

inline constexpr size_t kProductFigures = 5;  // those of Measured::Product, in its order
// What a dot took.
struct ProductSample {
  std::array<double, kProductFigures> work;  // matrix products, operations, bytes left, right and of the result
  double seconds;
};
// The figures, none negative, for which the relative errors of all samples have the least sum of squares.
program::Measured::Product FitProducts(const std::vector<ProductSample>& samples);

}  // namespace axccl::tools
