// Calls that CUDA ranks make in the short way (kernels/cuda/small.h).
#pragma once

#include "kernels/cuda/launch.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

// Lowers the task of a rank, complete but for this, to the numbers of the short way. They say what the program says, so
// they are right if the plan is. A task with `does` 0 goes the general way: its program does anything else than publish
// a slot, signal all, wait for all, and make its output of all slots or one; or its slots are not packed in words, its
// own input is scaled in another place than its slot, or it has views, slices or two programs.
kernels::cuda::Small LowerSmall(const Program& program, const kernels::cuda::Task& task);

}  // namespace axccl::exec
