// The interpreter kernel on one device. Loaded at its first use; lives as long as the process. Thread-safe.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::exec {

class CudaInterpreter {
 public:
  static Result<const CudaInterpreter*> Of(const device::cuda::Device& device);

  // The blocks that the device runs at a time, with the most threads and shared memory.
  uint32_t resident_blocks() const { return resident_blocks_; }
  // The shared memory of blocks that copy in bulk, beyond what the kernel declares; 0: the device does not.
  uint32_t ring_bytes() const { return ring_bytes_; }
  // Strands move `bytes` at most, so small calls have few threads at their barriers, and take no shared memory for
  // copies in bulk. The stream is one of the device, and if its handle stands for a stream of the current context, that
  // is the device's.
  Status Launch(kernels::cuda::Launch* launch, unsigned blocks, uint64_t bytes, CUstream stream) const;
  // Runs the probe and waits for its end.
  Status Run(kernels::cuda::MulticastProbe* probe) const;

 private:
  struct Shape {
    unsigned blocks, threads, dynamic_shared_bytes;
  };

  Status Load(const device::cuda::Device& device);
  Status FindRing(const device::cuda::Device& device);
  Shape ShapeOf(unsigned blocks, uint64_t bytes) const;
  Status Launch(CUfunction function, void* parameter, const Shape& shape, CUstream stream) const;

  const device::cuda::Device* device_ = nullptr;
  CUfunction run_ = nullptr, run_one_ = nullptr, probe_ = nullptr;
  bool has_domains_ = false;  // of memory: the device orders the accesses of each apart
  uint32_t resident_blocks_ = 1, ring_bytes_ = 0;
};

}  // namespace axccl::exec
