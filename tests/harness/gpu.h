// Runs the suites on GPU ranks: AXCCL_TEST_DEVICE=cuda puts buffers into managed memory, which ranks see and tests can
// read and write, and uses streams of CUDA. AXCCL_TEST_GPU_MEMORY=device takes memory that processes can share instead,
// which tests can use on the GPU in software alone. The driver is loaded by name, so the tests build without a CUDA
// toolkit.
//
// Failures are GoogleTest failures.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include "axccl/axccl.h"
#include "nccl.h"

namespace axccl::harness {

// Whether this run is on GPUs.
bool OnGpu();

// On the device of the calling thread, 0 if it has none (gpu_driver.h); it has its context afterwards. Null after a
// failure.
void* GpuAllocate(size_t bytes);
void GpuFree(void* memory);

// A vector in memory of either device. That of a GPU is not given back: that would wait for kernels, which may wait for
// what the test does next, and processes of runs are short.
template <class T>
struct DeviceAllocator {
  using value_type = T;
  T* allocate(size_t n) {
    return static_cast<T*>(OnGpu() ? GpuAllocate(n * sizeof(T)) : ::operator new(n * sizeof(T)));
  }
  void deallocate(T* memory, size_t) {
    if (!OnGpu()) ::operator delete(memory);
  }
  friend bool operator==(const DeviceAllocator&, const DeviceAllocator&) { return true; }
};
template <class T>
using DeviceVector = std::vector<T, DeviceAllocator<T>>;

// Streams of either device, as the run has it.
ncclResult_t CreateStream(axcclStream_t* stream);
ncclResult_t SynchronizeStream(axcclStream_t stream);
ncclResult_t QueryStream(axcclStream_t stream);
ncclResult_t DestroyStream(axcclStream_t stream);
// How work of `comm` on the stream ended. A stream of CUDA does not know, so there it is what ncclCommGetAsyncError
// says.
ncclResult_t EndOf(axcclStream_t stream, ncclComm_t comm);

}  // namespace axccl::harness
