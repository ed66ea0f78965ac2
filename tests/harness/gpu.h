// Runs the suites on GPU ranks: AXCCL_TEST_DEVICE=cuda puts buffers into managed memory, which ranks see and tests can read and
// write, and uses streams of CUDA. The driver is loaded by name, so the tests build without a CUDA toolkit.
//
// Failures are GoogleTest failures.
#pragma once

#include <cstddef>

#include "axccl/axccl.h"
#include "nccl.h"

namespace axccl::harness {

// Whether this run is on GPUs.
bool OnGpu();

// On the device of the calling thread, 0 if it has none (gpu_driver.h); it has its context afterwards. Null after a failure.
void* GpuAllocate(size_t bytes);
void GpuFree(void* memory);

// Streams of either device, as the run has it.
ncclResult_t CreateStream(axcclStream_t* stream);
ncclResult_t SynchronizeStream(axcclStream_t stream);
ncclResult_t DestroyStream(axcclStream_t stream);

}  // namespace axccl::harness
