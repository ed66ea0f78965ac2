// Counters that no real driver has, for tests.
#include "tools/softgpu/cuda/driver/counters.h"

#include <cstdint>

#include "tools/softgpu/engine/engine.h"

std::atomic<uint64_t> softgpu::cuda::last_blocks{0}, softgpu::cuda::last_dynamic_shared{0},
    softgpu::cuda::last_blocks_together{0};

// Blocks of the kernel that this process has launched last.
extern "C" __attribute__((visibility("default"))) uint64_t softgpu_last_blocks() { return softgpu::cuda::last_blocks; }
// The dynamic shared memory that it asked for, and how many of its blocks fit on a multiprocessor.
extern "C" __attribute__((visibility("default"))) uint64_t softgpu_last_dynamic_shared() {
  return softgpu::cuda::last_dynamic_shared;
}
extern "C" __attribute__((visibility("default"))) uint64_t softgpu_last_blocks_together() {
  return softgpu::cuda::last_blocks_together;
}

// Bytes that kernels of this process have copied to global memory in bulk.
extern "C" __attribute__((visibility("default"))) uint64_t softgpu_bulk_bytes() { return softgpu::engine::BulkBytes(); }

// The most bytes that a block of them has requested in bulk and not received yet.
extern "C" __attribute__((visibility("default"))) uint64_t softgpu_most_bulk_bytes_in_flight() {
  return softgpu::engine::MostBulkBytesInFlight();
}

// With SOFTGPU_TRACE=1: of the kernels of this process that have ended since softgpu_forget_efforts (engine.h).
extern "C" __attribute__((visibility("default"))) uint64_t softgpu_least_trips() {
  return softgpu::engine::LeastEffort().trips;
}
extern "C" __attribute__((visibility("default"))) uint64_t softgpu_least_instructions() {
  return softgpu::engine::LeastEffort().instructions;
}
extern "C" __attribute__((visibility("default"))) void softgpu_forget_efforts() { softgpu::engine::ForgetEfforts(); }
