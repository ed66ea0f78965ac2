// Calls that CUDA ranks make in the short way (kernels/cuda/small.h).
#pragma once

#include "kernels/cuda/launch.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

// A rank's program in the short way, for inputs that are published as they are and for scaled ones. `does` is 0 where
// the program goes the general way: it does anything else than publish a slot and signal all, or a slot for each rank,
// wait for all, and make its output of all slots or one; or it scales anything but what a reduction folds.
struct LoweredProgram {
  kernels::cuda::Small plain, scaled;
};
LoweredProgram LowerProgram(const Program& program);

// The numbers of the short way for a task, complete but for this. They say what the program says, so they are right if
// the plan is. Tasks also go the general way if their slots are not packed, or if they have views, slices or several
// programs.
kernels::cuda::Small LowerTask(const LoweredProgram& program, const kernels::cuda::Task& task);

}  // namespace axccl::exec
