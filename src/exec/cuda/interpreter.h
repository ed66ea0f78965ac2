// The interpreter kernel on one device. Loaded at its first use; lives as long as the process. Thread-safe.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "src/base/status.h"
#include "src/device/cuda/device.h"

namespace axccl::exec {

class CudaInterpreter {
 public:
  static constexpr unsigned kLeastThreads = 64, kMostThreads = kernels::cuda::kMaxThreads;

  static Result<const CudaInterpreter*> Of(const device::cuda::Device& device);

  // Threads of a block of which a strand moves `bytes`: as many as there are words of 16 bytes, so that small calls
  // have few threads at their barriers. Whole warps, because rows require them.
  static unsigned ThreadsFor(uint64_t bytes);

  // The blocks that the device runs at a time, with the most threads.
  uint32_t resident_blocks() const { return resident_blocks_; }
  // The stream is one of the device, and if its handle stands for a stream of the current context, that is the
  // device's.
  Status Launch(kernels::cuda::Launch* launch, unsigned blocks, unsigned threads, CUstream stream) const;
  // Runs the probe and waits for its end.
  Status Run(kernels::cuda::MulticastProbe* probe) const;

 private:
  Status Load(const device::cuda::Device& device);

  Status Launch(CUfunction function, void* parameter, unsigned blocks, unsigned threads, CUstream stream) const;

  const device::cuda::Device* device_ = nullptr;
  CUfunction run_ = nullptr, run_one_ = nullptr, probe_ = nullptr;
  bool has_domains_ = false;  // of memory: the device orders the accesses of each apart
  uint32_t resident_blocks_ = 1;
};

}  // namespace axccl::exec
