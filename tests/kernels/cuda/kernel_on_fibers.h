// The interpreter kernel, for fibers.
#pragma once

#include "kernels/cuda/launch.h"

namespace axccl::kernels::cuda {

// Runs one thread of a block.
void RunKernel(const Launch& launch);

}  // namespace axccl::kernels::cuda
