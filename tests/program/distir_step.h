// The training step of DistIR's evaluation (github.com/microsoft/dist-ir, examples/mlp.py), as operations that take the
// operands DistIR counts: relu, loss and its gradient one, the gradient of relu two. Only for simulations: the values
// mean nothing.
#pragma once

#include <cstdint>

#include "src/program/program.h"

namespace axccl::program {

struct DistirStep {
  int64_t layers = 1, dim = 1, batch = 1;
  // The optimizer of a stage is one operation, on its last weight, whose result takes no memory: counted in the time of
  // programs with, and left out of the memory of programs without. 0: without.
  int64_t stages_with_optimizer = 0;
  bool keeps_input_gradient = false;  // until the end, as DistIR keeps what nobody reads
};

Program MakeDistirStep(const DistirStep& step);

// DistIR's pipelines are given microbatches, and join what they give one by one: arguments in the place of slices of
// arguments, and concatenations of two at a time, each as soon as it can be.
Program AsDistirPipeline(Program program);

}  // namespace axccl::program
