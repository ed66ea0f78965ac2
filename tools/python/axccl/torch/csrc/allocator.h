// Memory of PyTorch's CPU tensors that the other processes of the machine reach.
#pragma once

#include <cstdint>

namespace axccl::torch {

// From now on, allocations of PyTorch on the CPU of `least_bytes` and more come from axcclMalloc's heap. Tensors that
// live stay where they are. Calls again change the size only.
void UseAllocator(int64_t least_bytes);
// Back to PyTorch's own.
void StopUsingAllocator();

}  // namespace axccl::torch
