// Which operations on a GPU wait, and for how long: what kernels write down (kernels::cuda::Wait) judged by the host.
// And how many went by which protocol, which is written down there, too.
//
// An operation waits as long as its strands tell so; what only computes, or is behind other work on its stream, tells
// nothing. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/base/status.h"
#include "src/exec/channel.h"
#include "src/exec/rank_device.h"

namespace axccl::exec {

class CudaWaits {
 public:
  // Of one rank. `records`: `num` zeroed ones in memory that kernels see, which outlives this. `seconds`: an operation
  // may wait, 0: for ever; after `notice_seconds` the user is told, 0: never.
  CudaWaits(kernels::cuda::Wait* records, size_t num, double seconds, double notice_seconds)
      : records_(records), channels_(num), seconds_(seconds), notice_seconds_(notice_seconds) {}

  // The record of a channel, until it leaves. kInvalidUsage when all are taken.
  Result<kernels::cuda::Wait*> Enter(const Channel* channel);
  void Leave(const kernels::cuda::Wait* record);
  // Of a created channel whose members have not met: the one that is missing; -1 once they have.
  void Misses(const kernels::cuda::Wait* record, int position);
  // Calls of the channel are replayed, so that the numbers of operations are not those that the host has counted.
  void Replays(const kernels::cuda::Wait* record);

  // kRemoteError when an operation waits and a member of its group is gone, kTimeout when one has waited too long, or
  // what was called differently if that is why. `calls` guards what the channels have written down, and is not waited
  // for.
  Status Check(std::mutex& calls);

  // Of all channels there are and were.
  DeviceStatistics packed();

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    const Channel* channel = nullptr;  // null: the record is free
    std::string created;               // as what, if it is a created one whose members had not met when it came
    int missing = -1;
    bool replays = false;
    bool waits = false;  // operation `look` has been seen to wait
    uint64_t look = 0;
    Clock::time_point since{};  // when that was first seen
    bool told = false;          // the user, of that
    int gone_for = 0;           // looks at a member that was gone already
    uint32_t gone = 0;          // that member
  };

  Status Judge(const kernels::cuda::Wait& record, Watched* watched, std::mutex& calls) const;
  static double SecondsSince(Clock::time_point since);
  bool Overdue(const Watched& watched) const { return seconds_ > 0 && SecondsSince(watched.since) > seconds_; }
  void Tell(const kernels::cuda::Wait& record, Watched* watched) const;
  // "rank 2 in ncclAllReduce ... (operation 10)"
  std::string DescribeWait(const kernels::cuda::Wait& record, const Watched& watched) const;
  // "; ranks that have not called it: 2 3", as far as it is known
  std::string Absent(const Watched& watched) const;
  Status TimedOut(const kernels::cuda::Wait& record, const Watched& watched) const;

  std::mutex mutex_;
  kernels::cuda::Wait* const records_;
  std::vector<Watched> channels_;  // by record
  const double seconds_, notice_seconds_;
  DeviceStatistics packed_before_;  // of channels that have left
};

}  // namespace axccl::exec
