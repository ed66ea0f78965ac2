// The devices of this process's ranks, and their streams: the driver's if it finds a GPU, otherwise those of host
// devices.
//
// Not thread-safe. A call that fails ends the program.
#pragma once

#include "nccl.h"
#include "src/base/cuda_driver.h"

namespace axccl::perf {

class Place {
 public:
  // Uses GPUs if there are any, unless AXCCL_DEVICE, which the library reads as well, is "host".
  Place();
  // On GPUs.
  static const CudaDriver& Driver();

  bool on_gpus() const { return gpus_ > 0; }
  // The device of rank `rank`: ranks are assigned to the GPUs in turn; on the host each has one of its own.
  int Device(int rank) const { return on_gpus() ? rank % gpus_ : rank; }
  // Makes a device current to the calling thread.
  void Use(int device) const;
  // Returns a new stream on the current device, separate from all others.
  cudaStream_t NewStream() const;
  void Wait(cudaStream_t stream) const;

 private:
  int gpus_ = 0;
};

}  // namespace axccl::perf
