// Host ranks that each do a task: a thread or a process of this machine for each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "src/base/status.h"
#include "src/program/reference.h"
#include "tools/axccl-program/rank_calls.h"

namespace axccl::tools {

// Each has a host device of its own.
inline constexpr int kMostRanks = 1024;

// Those of all ranks that this process has.
struct RankRange {
  int first = 0, count = 0;

  bool Has(int64_t rank) const { return rank >= first && rank < first + count; }
};

struct RankResult {
  program::Tensors outputs;
  uint64_t peak_bytes = 0;
  std::vector<RankEvent> events;
  std::vector<double> seconds;  // of each repetition, from a meeting of all ranks until this one has sent all
  std::string verdict;          // of all ranks, where they have compared what they gave: lines, none if it is right
};

// What a rank does with its communicator. Used by one thread.
class RankTask {
 public:
  virtual ~RankTask() = default;
  // After an error, the communicator is aborted before the task is destroyed.
  virtual Result<RankResult> Run() = 0;
};
// Called by the rank's thread, in its process. `stream`: null if ranks are GPUs.
using MakeTask = std::function<std::unique_ptr<RankTask>(int rank, ncclComm_t comm, axcclStream_t stream)>;

// A way to run the ranks of a program.
using Start = std::function<Result<std::vector<RankResult>>(int ranks, const MakeTask& make)>;

// A rank from its first call of the library to its last, on the calling thread; a GPU if AXCCL_DEVICE is cuda. An error
// is passed to `failed` before the communicator is aborted: what other ranks say after that is its consequence.
Result<RankResult> RunRank(int ranks, int rank, const ncclUniqueId& id, const MakeTask& make,
                           const std::function<void(const Status&)>& failed);

// The results of all ranks. An error is that of the rank that had one first, and names it. kInvalidUsage for more than
// kMostRanks.
Result<std::vector<RankResult>> RunRanksOnThreads(int ranks, const MakeTask& make);
// Likewise of those of a job that are here. The results of others are empty: other processes have them, and
// NCCL_COMM_ID says where all meet.
Result<std::vector<RankResult>> RunRanksHere(int ranks, RankRange here, const MakeTask& make);
// Likewise with a process for each rank; none of them is left at the end, nor if the caller dies. The library must not
// have been used in this process before, which must have one thread.
Result<std::vector<RankResult>> RunRanksOnProcesses(int ranks, const MakeTask& make);

}  // namespace axccl::tools
