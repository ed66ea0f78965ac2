// GPUs as the devices of ranks: their streams, events and memory, by the CUDA driver, which is loaded by name so that
// the program can be built and run without one.
//
// Thread-safe. Functions act on the device that the calling thread uses; handles belong to it.
#pragma once

#include <cstddef>
#include <string>

#include "axccl/axccl.h"
#include "src/base/status.h"

namespace axccl::tools {

// Whether AXCCL_DEVICE, which the library reads as well, is "cuda".
bool GpusWanted();

class Gpus {
 public:
  // The process's. kSystemError, which says why, if there is no driver or no GPU.
  static Result<const Gpus*> Get();

  // Makes the rank's GPU that of the calling thread: ranks are given to the GPUs in turn.
  Status Use(int rank) const;

  // Separate from all others.
  Result<cudaStream_t> NewStream() const;
  Status Wait(cudaStream_t stream) const;
  void Drop(cudaStream_t stream) const;

  Result<void*> NewEvent() const;
  Status Record(void* event, cudaStream_t stream) const;
  // What is put on the stream from now on waits for the event.
  Status WaitFor(void* event, cudaStream_t stream) const;
  // Of events that have happened.
  Result<double> SecondsBetween(void* begin, void* end) const;
  void DropEvent(void* event) const;

  Result<void*> NewZeros(size_t bytes) const;
  void DropMemory(void* memory) const;

 private:
  Gpus() = default;
  Status Load();

  int count_ = 0;
};

}  // namespace axccl::tools
