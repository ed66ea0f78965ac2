// Where the ranks of this process live, and the streams there: the driver's where it finds a GPU, else those of host
// devices.
//
// The driver is loaded by name, so that the program is built and runs without one. Not thread-safe. A call that fails
// ends the program.
#pragma once

#include "nccl.h"

namespace axccl::perf {

class Place {
 public:
  // On GPUs where there are any and AXCCL_DEVICE does not say host, which is told the library by the same variable.
  Place();

  bool on_gpus() const { return gpus_ > 0; }
  // Of rank `rank`: ranks go round the GPUs; on the host each has one of its own.
  int Device(int rank) const { return on_gpus() ? rank % gpus_ : rank; }
  // Makes a device the calling thread's.
  void Use(int device) const;
  // A new one on the device in use, apart from all others.
  cudaStream_t NewStream() const;
  void Wait(cudaStream_t stream) const;

 private:
  int gpus_ = 0;
};

}  // namespace axccl::perf
