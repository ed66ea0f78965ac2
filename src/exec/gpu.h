// Ranks on GPUs, as a communicator sees them: memory that peers reach, channels on it, and launches on streams of CUDA.
//
// Built without a CUDA toolkit (gpu_none.cc), everything here says so. What is behind it otherwise is in cuda_*.
// Thread-safe, but for Connect, which comes before everything else.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/exec/call.h"
#include "src/exec/channel.h"

namespace axccl::exec {

// How many GPUs this process sees; an error says why it can use none.
Result<int> NumGpus();
// The one the calling thread has chosen (cudaSetDevice).
Result<int> CurrentGpu();
// Of a GPU: how many blocks of the interpreter are worth running on it.
Result<int> GpuMultiprocessors(int device);

// Memory of the calling thread's GPU. False when `memory` is not from there.
Result<void*> AllocateOnGpu(size_t bytes);
bool FreeOnGpu(void* memory);

// Where a rank's device memory is. Plain data, sent as bytes.
struct GpuAddress {
  std::array<uint8_t, 64> handle{};  // for other processes
  uint64_t pointer = 0;              // for its own
  std::array<uint8_t, 16> uuid{};    // of the device
  int32_t device = 0;
  uint32_t reserved = 0;
};

struct GpuOptions {
  int device = 0;
  int rank = 0, ranks = 1;
  uint32_t lanes = 1;
  uint64_t scratch_bytes = 0;
};

// The device side of one rank of a communicator.
class GpuRank {
 public:
  static Result<std::unique_ptr<GpuRank>> Create(const GpuOptions& options);
  // After Disconnect of all ranks that have connected.
  virtual ~GpuRank() = default;

  virtual GpuAddress address() const = 0;
  // `addresses` and `members` of all ranks, in their order.
  virtual Status Connect(const std::vector<GpuAddress>& addresses, const std::vector<Member>& members) = 0;
  // An error unless `call` can run here.
  virtual Status CheckCall(const Call& call) const = 0;
  // What a kernel found wrong; ok when nothing. `channel`: the default one, which knows the calls made on it.
  virtual Status TakeReport(const Channel& channel) = 0;
  // Makes all kernels of this rank end, soon.
  virtual void Abort() = 0;
  // Whether all that was launched outside of graphs is done.
  virtual bool Idle() = 0;
  // Waits for that. Only an abort or the end of the work makes it return.
  virtual void WaitIdle() = 0;
  // Lets go of the peers' memory; nothing runs here any more. The own memory stays for peers that still use it.
  virtual void Disconnect() = 0;
};

// A call for one rank. `channel`: of the host, which says who takes part.
struct GpuCall {
  GpuRank* rank = nullptr;
  Channel* channel = nullptr;
  Call call;
  bool local = false;  // a copy within the rank
  void* stream = nullptr;
};

// Enqueues calls that run concurrently (those on one channel one after the other), in as few launches as there are devices
// and calls on a channel.
Status LaunchOnGpus(const std::vector<GpuCall>& calls);

}  // namespace axccl::exec
