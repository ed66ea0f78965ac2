// The program that axccl-program calibrate runs: blocks of one operation each, many times, behind a call that all ranks
// meet in. Its ranks are busy with the same at the same time, as those of a program are.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "src/program/program.h"

namespace axccl::tools {

// What a block measures.
enum class Measures { kOperation, kProduct, kCall };

struct CalibrationBlock {
  Measures measures;
  program::OpKind kind;
  DataType type;  // of operands
  int group = 0;  // ranks of a call
  int count = 0;  // of operations, or of calls
  // Of one of them.
  double bytes = 0;
  double flops = 0, batches = 1;
  std::array<double, 3> matrix_bytes{};  // of a product: left, right, result
  // Results of the part, in order: the one behind which the block begins, and its last one.
  size_t begin = 0, end = 0;
};

struct CalibrationProgram {
  program::Program program;
  std::vector<CalibrationBlock> blocks;  // those of a kind (of a call: and group) ascend in bytes
  size_t results = 0;                    // of a rank
};

CalibrationProgram MakeCalibration(int ranks);

}  // namespace axccl::tools
