// The interpreter kernel, for fibers.
#pragma once

#include "kernels/cuda/launch.h"

namespace axccl::kernels::cuda {

// What a thread of a block does.
void RunKernel(const Launch& launch);

}  // namespace axccl::kernels::cuda
