// Allocation on a device, for the entry points whose memory is freed in different ways.
#pragma once

#include "tools/softgpu/cuda/address_space.h"
#include "tools/softgpu/cuda/context.h"

namespace softgpu::cuda {

// Returns CUDA_ERROR_OUT_OF_MEMORY if the device has no room.
CUresult AllocateOnDevice(const ContextPtr& context, size_t bytes, RangeKind kind, CUdeviceptr* address);

}  // namespace softgpu::cuda
