// How the ranks of a program run it. Plain data.
#pragma once

#include <functional>

#include "src/program/reference/compute.h"

namespace axccl::tools {

struct RunOptions {
  // What local operations give; called by all ranks at once.
  std::function<program::Tensor(const program::Operation&, program::TensorSpan)> local = program::ComputeLocal;
  // How often the program runs with its time taken, each time behind a barrier of all ranks; 0: once, and no time.
  int repeat = 0;
};

}  // namespace axccl::tools
