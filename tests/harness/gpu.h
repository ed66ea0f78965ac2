// Runs the suites on GPU ranks: AXCCL_TEST_DEVICE=cuda puts buffers into managed memory, which ranks see and tests
// can read and write, and uses CUDA streams. AXCCL_TEST_GPU_MEMORY=pinned uses pinned memory of the host instead, and
// AXCCL_TEST_GPU_MEMORY=device memory that processes can share, which tests can access only on the GPU in software.
// AXCCL_TEST_OWN_GPUS=1 puts each rank on a GPU of its own. The driver is loaded by name, so the tests build without a
// CUDA toolkit.
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

// Allocates on the device of the calling thread, 0 if it has none (gpu_driver.h), and leaves the thread its context.
// Null after a failure.
void* GpuAllocate(size_t bytes);
void GpuFree(void* memory);

// A vector in memory of either device. GPU memory is not freed, because that would wait for kernels, which may wait for
// what the test does next; the processes of runs are short.
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

// Streams of the run's kind of device.
ncclResult_t CreateStream(axcclStream_t* stream);
ncclResult_t SynchronizeStream(axcclStream_t stream);
ncclResult_t QueryStream(axcclStream_t stream);
ncclResult_t DestroyStream(axcclStream_t stream);
// The result of the work of `comm` on the stream. A CUDA stream has none, so there it is the result of
// ncclCommGetAsyncError.
ncclResult_t EndOf(axcclStream_t stream, ncclComm_t comm);

}  // namespace axccl::harness
