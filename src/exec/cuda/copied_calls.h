// Collective calls whose data copy engines move, so that it occupies no multiprocessor while it moves.
//
// NCCL promises for NCCL_CTA_POLICY_ZERO that it takes no CTA wherever it can, and demands for that what it demands for
// symmetric windows (its user guide, "Window Registration", "Zero-CTA Optimization"): all ranks register the buffers
// together, with NCCL_WIN_COLL_SYMMETRIC, and call with buffers at the same offset in the window. So each rank knows
// from its own call where the buffers of the others are, which need be neither exchanged nor waited for.
//
// Copy engines make a call if all ranks of the communicator have the policy and are on one machine, if it is of
// AXCCL_COPY_BYTES or more, on plain buffers, on the default channel, and
//
// - all_gather, all_to_all: the input is in a symmetric window; or the output of an all_gather that is in place;
// - broadcast: the output is in a symmetric window.
//
// A call is then stages, on the stream of the caller: copies, and then a kernel of one block, a barrier. The barriers
// are operations of the channel like any others: they come in its order, end when a peer dies, on an abort and at the
// deadline, compare what the ranks have called (and the offsets, so a rank whose buffers are elsewhere is an error),
// and can be captured. Copies wait for nothing but their stream.
//
// - all_gather, all_to_all: barrier, so that all inputs are there; the rank reads them; barrier, so that they may
//   change.
// - broadcast: the root copies its input to its output; barrier; every other rank reads another part from there;
//   barrier; it reads the other parts from the outputs of those that have read them; barrier. (With one link, the root
//   can send all data once, not once for each rank.)
//
// A rank reads the memory of others and writes its own output alone. So if a barrier ends early, the copies behind it,
// which cannot be taken back, bring data that is not valid, and harm nothing: what they read is mapped until the rank
// has none of them under way (CudaWindows), even if its owner has freed it.
//
// What this relies on (CUDA driver API): cuMemcpyAsync between memory of devices is made in the order of its stream,
// does not wait for the host, and reaches memory that its context has been given access to by cuMemSetAccess, on any
// device. What a kernel has stored is there for copies of other devices once a kernel that began after its end has told
// them so, by a release at the scope of the system. A rank's share of a window and its buffer are one memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/exec/call/call.h"
#include "src/exec/cuda/planes.h"
#include "src/exec/platform/window.h"

namespace axccl::exec {

// The windows of a rank, as its calls use them. Used by one thread at a time.
class CudaWindows {
 public:
  using Places = std::shared_ptr<const WindowPlaces>;

  // `share`: of this rank. What is deregistered is forgotten.
  void Add(const OwnShare& share, const Window& window);
  // The symmetric window of all ranks in which [memory, memory + bytes) is, at an offset at which all of them have as
  // much; null if there is none.
  struct Found {
    Places places;
    uint64_t offset = 0;
    // The same place in the share of a rank.
    uint64_t At(int rank) const { return places->flat + static_cast<uint64_t>(rank) * places->stride + offset; }
  };
  Found Find(const void* memory, uint64_t bytes) const;

  // Keeps a window's memory mapped for what has been enqueued, or, if that was captured, as long as the rank.
  void Keep(const Places& places, bool captured);
  // To be called when nothing is under way. Returns what was kept for that, because unmapping may take long.
  std::vector<Places> TakeKept() { return std::exchange(kept_, {}); }
  bool keeps() const { return !kept_.empty(); }
  // Whether there are windows, symmetric or not, that are not deregistered.
  bool any() const {
    return std::any_of(lives_.begin(), lives_.end(), [](const auto& life) { return !life.expired(); });
  }
  // Nothing will be enqueued any more.
  void Clear();

 private:
  struct Share {
    uint64_t begin = 0, end = 0;
    std::weak_ptr<const void> life;
    std::weak_ptr<const WindowPlaces> places;
  };
  std::vector<std::weak_ptr<const void>> lives_;  // of all windows
  std::vector<Share> shares_;
  std::vector<Places> kept_, kept_for_graphs_;
};

// What copy engines do for a rank's call.
struct CopiedCall {
  // Copies, then a barrier.
  using Stage = std::vector<Plane>;
  std::vector<Stage> stages;  // as many on all ranks
  uint32_t signature = 0;     // of what is the same on all ranks
  CudaWindows::Places window;

  // Nothing if kernels have to make it. `ranks`: of the communicator.
  static std::optional<CopiedCall> Of(const Call& call, int rank, int ranks, const CudaWindows& windows);
};

}  // namespace axccl::exec
