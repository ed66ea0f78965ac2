// The pipelines of figure 5 of DistIR's paper (EuroMLSys 2021; github.com/microsoft/dist-ir at 3386edc). Stages have
// equal numbers of layers, and the schedule is ours, 1f1b: where that version would take a task in the step in which it
// became ready, and send its operands twice, a stage has an earlier task in all configurations of the figure. What is
// not as our transforms write it: only the first stage has arguments, microbatches of inputs and labels, and the
// weights. Labels and weights are sent from there to the stage that uses them, when it first does, each once.
//
// Only for simulations: operations take the operands that DistIR counts, and the values mean nothing.
#pragma once

#include <cstdint>

#include "src/program/program.h"

namespace axccl::program {

struct DistirPipeline {
  int64_t layers = 2, dim = 1, batch = 1;
  int64_t data = 1, tensor = 1, stages = 2, microbatches = 1;  // layers are a multiple of 2 * stages
};

// Rank (copy * stages + stage) * tensor + t.
Program MakeDistirPipeline(const DistirPipeline& pipeline);

}  // namespace axccl::program
