// Host memory that kernels use: shared memory, pinned where this process maps it.
//
// Ranks of one process share mappings, so pins are counted. Thread-safe.
#pragma once

#include <cstddef>

#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::cuda_ipc {

// Returns the address for kernels of `device`. `memory` and `bytes`: whole pages, the same for each call.
Result<CUdeviceptr> Pin(const device::cuda::Device& device, std::byte* memory, size_t bytes);
// Call it once for each successful Pin, when no kernel uses the memory any more and before it is unmapped.
void Unpin(const device::cuda::Device& device, std::byte* memory);

}  // namespace axccl::cuda_ipc
