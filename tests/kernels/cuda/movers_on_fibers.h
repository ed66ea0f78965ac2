// The device's movers, as one block of fibers runs them.
#pragma once

#include <cstdint>

#include "kernels/host/box.h"
#include "kernels/host/mover.h"

namespace axccl::kernels::cuda {

// As kernels::Reduce. False when the block never ends.
bool ReduceOnFibers(const ReduceRequest& request, uint32_t threads, uint64_t seed);
// As kernels::ReduceBox, and kernels::CopyBox where there is one source and nothing to compute.
bool MoveBoxOnFibers(const BoxReduceRequest& request, uint32_t threads, uint64_t seed);

}  // namespace axccl::kernels::cuda
