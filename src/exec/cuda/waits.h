// Decides which operations on a GPU wait, and for how long, from what kernels report (kernels::cuda::Wait). Also counts
// the operations by protocol, which kernels report there, too.
//
// An operation counts as waiting while its strands keep reporting; computing or queued operations report nothing.
// Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/base/status.h"
#include "src/exec/channel/channel.h"
#include "src/exec/channel/start_stamps.h"
#include "src/exec/platform/rank_device.h"

namespace axccl::exec {

class CudaWaits {
 public:
  // The waits of one rank. `records`: `num` zeroed records in memory that kernels see, which must outlive this object.
  // After `notice_seconds` the user gets a notice, 0: never.
  CudaWaits(kernels::cuda::Wait* records, size_t num, double notice_seconds)
      : records_(records), channels_(num), notice_seconds_(notice_seconds) {}

  // Assigns a record to a channel, until it leaves. kInvalidUsage when all are taken.
  Result<kernels::cuda::Wait*> Enter(const Channel* channel);
  void Leave(const kernels::cuda::Wait* record);
  // For a created channel whose members have not been found: the position of the one that is missing; -1 once there is
  // none.
  void Misses(const kernels::cuda::Wait* record, int position);
  // The channel is of a pipeline, whose starts are stamped there.
  void Shows(const kernels::cuda::Wait* record, const StartStamps& stamps);
  // The next operation of the channel may wait that long, not as long as its owner says.
  void Allow(const kernels::cuda::Wait* record, uint64_t sequence, double seconds);
  // Calls of the channel are replayed, so the numbers of operations are not those that the host has counted.
  void Replays(const kernels::cuda::Wait* record);

  // kRemoteError when an operation waits and a member of its group is gone; kTimeout when one has waited too long, or
  // the mismatch if ranks made different calls. `calls` guards the channels' logs; this function does not wait for it.
  Status Check(std::mutex& calls);

  // The counts of all channels, including those that have left.
  DeviceStatistics counts();

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    const Channel* channel = nullptr;  // null: the record is free
    // Its name, if it is a created channel whose members had not been found when it entered.
    std::string created;
    StartStamps stamps;  // of a pipeline
    int missing = -1;
    bool replays = false;
    bool waits = false;  // operation `look` was seen to wait
    uint64_t look = 0;
    Clock::time_point since{};           // when that was first seen
    bool notified = false;               // the user got a notice about it
    std::map<uint32_t, double> allowed;  // by operation: seconds that it may wait
    int gone_for = 0;                    // reports since the member is known to be gone
    uint32_t gone = 0;                   // that member
  };

  Status Judge(const kernels::cuda::Wait& record, Watched* watched, std::mutex& calls) const;
  static double SecondsSince(Clock::time_point since);
  static Deadline DeadlineOf(const Watched& watched);
  static bool Overdue(const Watched& watched);
  void Notify(const kernels::cuda::Wait& record, Watched* watched) const;
  // "rank 2 in ncclAllReduce ... (operation 10)"
  std::string DescribeWait(const kernels::cuda::Wait& record, const Watched& watched) const;
  // "; not called by ranks 2, 3", as far as this rank knows.
  std::string Absent(const Watched& watched) const;
  Status TimedOut(const kernels::cuda::Wait& record, const Watched& watched) const;

  std::mutex mutex_;
  kernels::cuda::Wait* const records_;
  std::vector<Watched> channels_;  // by record
  const double notice_seconds_;
  DeviceStatistics counted_before_;  // of channels that have left
};

}  // namespace axccl::exec
