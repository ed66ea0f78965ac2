// How the ranks of a program run it. Plain data.
#pragma once

#include <functional>

#include "src/program/reference/compute.h"

namespace axccl::tools {

struct Comparison;  // agreed_run.h

struct RunOptions {
  // What local operations give; called by all ranks at once.
  std::function<program::Tensor(const program::Operation&, program::TensorSpan)> local = program::ComputeLocal;
  // How often the program runs with its time taken, each time behind a barrier of all ranks; 0: once, and no time.
  int repeat = 0;
  // What all ranks of a job compare with, together; null: nothing. Must outlive the run.
  Comparison* comparison = nullptr;
};

}  // namespace axccl::tools
