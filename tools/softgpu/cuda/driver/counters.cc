// Counters that no real driver has, for tests.
#include "tools/softgpu/cuda/driver/counters.h"

#include <cstdint>

#include "tools/softgpu/engine/engine.h"

std::atomic<uint64_t> softgpu::cuda::last_blocks{0};

// Blocks of the kernel that this process has launched last.
extern "C" __attribute__((visibility("default"))) uint64_t softgpu_last_blocks() { return softgpu::cuda::last_blocks; }

// Bytes that kernels of this process have copied to global memory in bulk.
extern "C" __attribute__((visibility("default"))) uint64_t softgpu_bulk_bytes() { return softgpu::engine::BulkBytes(); }
