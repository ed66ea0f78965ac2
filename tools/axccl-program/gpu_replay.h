// A rank's rounds of a replay (replay.h) on its GPU: calls are put on its streams one after the other without waiting
// for them, and events of the streams tell when each began and ended. A send goes out on a stream of its channel, after
// all that comes before it.
#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "tools/axccl-program/gpus.h"
#include "tools/axccl-program/rank_channels.h"
#include "tools/axccl-program/ranks.h"
#include "tools/axccl-program/replay.h"

namespace axccl::tools {

// Used by one thread, whose device is the rank's.
class GpuReplay : public RankTask {
 public:
  // `sites`: the rank's calls of a round. What they refer to and the communicator must outlive it.
  GpuReplay(int ranks, std::vector<const CallSite*> sites, int rounds, int rank, ncclComm_t comm);
  ~GpuReplay() override;

  // kInvalidUsage for more calls of a round than there can be events for.
  Result<RankResult> Run() override;

 private:
  using TypeKey = std::pair<DataType, program::Ints>;
  struct Timed {
    void *begin = nullptr, *end = nullptr;  // events
  };

  Status Prepare();
  Status Round();
  Status Meet();
  Status Issue(const CallSite& site, const Timed& timed);
  Status Send(const CallSite& site, const Timed& timed);
  Status Receive(const CallSite& site);
  Status Collect(const CallSite& site);
  Status Finish();
  Status AddTimes(uint64_t base_nanoseconds);
  Result<void*> BufferOf(const program::TensorType& type, size_t use);

  const std::vector<const CallSite*> sites_;
  const int rounds_, rank_;
  const ncclComm_t comm_;
  const Gpus* gpus_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void *base_ = nullptr, *before_send_ = nullptr;  // events
  std::vector<Timed> timed_;                       // of the sites
  std::map<axcclChannel_t, cudaStream_t> sending_;
  std::map<std::pair<TypeKey, size_t>, void*> buffers_;  // by type and use
  RankResult result_;
  RankChannels channels_;
};

}  // namespace axccl::tools
