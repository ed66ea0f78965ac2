// Allocation on a device, for the entry points that have ways of their own to free.
#pragma once

#include "tools/softgpu/cuda/address_space.h"
#include "tools/softgpu/cuda/context.h"

namespace softgpu::cuda {

// CUDA_ERROR_OUT_OF_MEMORY when the device has no room.
CUresult AllocateOnDevice(const ContextPtr& context, size_t bytes, RangeKind kind, CUdeviceptr* address);

}  // namespace softgpu::cuda
