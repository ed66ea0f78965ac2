// Scratch that a rank takes besides that of its block, once large calls have gone through the latter because buffers
// cannot be mapped: managed memory, CUDA's pools, or allocations that come and go (AXCCL_GROWN_SCRATCH_BYTES).
//
// Kernels count the calls that could have used more scratch, the same on all ranks (kernels::cuda::Wait::cramped).
// After kPatience of them each rank takes its own when it is looked after (RankDevice::Attend), and offers it to the
// others like a buffer (CudaBuffers). It is used from the first call on before which all ranks have mapped that of all
// others, which kernels agree on as they do on buffers (kernels::cuda::Task::grown); no rank waits for another one to
// take it. If a rank cannot have or offer it, or another one cannot map it, the rank declines; then all give theirs
// back, which no kernel has used, and none tries again.
//
// CUDA lets a driver wait for all kernels of the context when it allocates memory of a device, or maps or frees it
// (programming guide, "Implicit Synchronization"), and those of the library wait for other ranks. So Attend is called
// only while none of this process is under way, and none can be launched (ranks.h). Kernels of the application are
// taken to end by themselves, except where there are windows or pipelines, by which they may wait for other ranks.
// What peers do is what they do for buffers: they map it while kernels run.
//
// The memory is of cuMemCreate alone, which in practice waits for nothing, unlike cuMemAlloc. Peers have it as a file.
// It is freed when its rank is destroyed, after all have disconnected.
#pragma once

#include <cstdint>
#include <optional>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/exec/channel/members.h"
#include "src/exec/cuda/buffers.h"
#include "transports/cuda_ipc/exports.h"
#include "transports/cuda_ipc/memory.h"

namespace axccl::exec {

// Used by one thread at a time.
class GrownScratch {
 public:
  // `bytes`: the same on all `ranks`.
  GrownScratch(const device::cuda::Device& device, int rank, int ranks, uint64_t bytes)
      : device_(device), rank_(rank), ranks_(ranks), bytes_(bytes) {}
  // No rank may use it any more.
  ~GrownScratch() { Free(); }
  GrownScratch(const GrownScratch&) = delete;
  GrownScratch& operator=(const GrownScratch&) = delete;

  static constexpr uint64_t kPatience = 4;

  uint64_t bytes() const { return bytes_; }
  // For a call: the number under which all ranks find it; kernels::cuda::kUnmapped unless all have mapped it.
  uint32_t Find(const CudaBuffers& buffers) const;

  // Whether Attend has something to do. `cramped`: calls so far that could have used it.
  bool IsDue(const CudaBuffers& buffers, uint64_t cramped) const;
  // Takes it, or gives it back if another rank does without.
  void Attend(CudaBuffers* buffers);

 private:
  Status Take(CudaBuffers* buffers);
  Status WhyNot(const CudaBuffers& buffers) const;
  void Free();

  const device::cuda::Device& device_;
  const int rank_, ranks_;
  const uint64_t bytes_;
  bool declined_ = false;
  cuda_ipc::Memory memory_;
  std::optional<cuda_ipc::Exports::Place> place_;
};

}  // namespace axccl::exec
