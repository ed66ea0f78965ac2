// The interpreter kernel, for fibers.
#pragma once

#include <cstddef>

#include "kernels/cuda/launch.h"

namespace axccl::kernels::cuda {

// Runs one thread of a block.
void RunKernel(const Launch& launch);

// Each block posts these entries (kernels/cuda/proxy.h): slots for the rank of its number, and lines for the member at
// the position of its number.
void PostAll(Channel& channel, const ProxyRing::Entry* entries, size_t count);

}  // namespace axccl::kernels::cuda
