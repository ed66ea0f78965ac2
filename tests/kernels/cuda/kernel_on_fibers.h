// The interpreter kernel, for fibers.
#pragma once

#include <cstddef>

#include "kernels/cuda/launch.h"

namespace axccl::kernels::cuda {

// Runs one thread of a block.
void RunKernel(const Launch& launch);

// Each block posts these entries, its number as their rank (kernels/cuda/proxy.h).
void PostAll(Channel& channel, const ProxyRing::Entry* entries, size_t count);

}  // namespace axccl::kernels::cuda
