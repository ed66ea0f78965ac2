// Memory of the host that kernels use: memory that processes share, as it is mapped in this one.
//
// Ranks of one process share mappings, so who has pinned what is counted. Thread-safe.
#pragma once

#include <cstddef>

#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::cuda_ipc {

// What kernels of `device` call it. `memory` and `bytes`: whole pages, the same ones each time.
Result<CUdeviceptr> Pin(const device::cuda::Device& device, std::byte* memory, size_t bytes);
// Once for each Pin that has succeeded, when no kernel uses it any more and before it is unmapped.
void Unpin(const device::cuda::Device& device, std::byte* memory);

}  // namespace axccl::cuda_ipc
