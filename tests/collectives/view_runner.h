// Executes random calls on views (view_cases.h) on the ranks of one thread, and compares every byte of every buffer.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tests/collectives/view_cases.h"
#include "tests/harness/client.h"
#include "tests/harness/guarded_buffer.h"

namespace axccl::tests {

// The operands of a call.
using ViewCases = std::vector<ViewCase>;

// The place from which a rank makes a call: its index in the thread, its rank in the channel's group, channel and
// stream.
struct Seat {
  int member = 0;
  int rank = 0;
  axcclChannel_t channel = nullptr;
  cudaStream_t stream = nullptr;
};

struct DueCall {
  const ViewCases* cases = nullptr;
  Seat seat;
};

class ViewRunner {
 public:
  ViewRunner(harness::RankContext& context, harness::Clique& clique);
  ~ViewRunner();

  // Every rank of this thread makes the call on the default channel, with an NCCL call before and after it if `among`
  // is set. Returns false, with a test failure, if something is wrong.
  bool Enqueue(const ViewCases& cases, bool among);

  // Whether the calls' buffers fit beside those of the enqueued calls; if not, call Finish first.
  bool Fits(std::span<const DueCall> due) const;
  // One rank's call.
  ncclResult_t Enqueue(const ViewCases& cases, const Seat& seat);

  // Waits for all enqueued calls and checks them.
  bool Finish();

 private:
  struct Part;

  std::unique_ptr<Part> Prepare(const ViewCase& c, const Seat& seat, bool mapped);
  struct Tensor;
  Tensor Place(Part* part, const Seat& seat, const Placement& placement, harness::Random* random);
  ncclResult_t Launch(std::span<const std::unique_ptr<Part>> parts, const Seat& seat);
  ncclResult_t CallNccl(int member);

  harness::RankContext& context_;
  harness::Clique& clique_;
  std::vector<std::unique_ptr<harness::GuardedArena>> arenas_;  // two for each rank
  std::vector<std::unique_ptr<Part>> parts_;
  std::unique_ptr<harness::GuardedArena> flat_memory_;  // for the NCCL calls, an int for each member
  int* flat_ = nullptr;
};

}  // namespace axccl::tests
