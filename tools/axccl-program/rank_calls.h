// One rank's collectives and messages on the host (rank_channels.h), each waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "axccl/axccl.h"
#include "src/base/status.h"
#include "src/program/program.h"
#include "src/program/tensor.h"
#include "tools/axccl-program/rank_channels.h"

namespace axccl::tools {

// What a rank did when. Plain bytes: processes send them to each other.
struct RankEvent {
  program::Id operation = 0;  // of the rank's part
  bool communication = false;
  uint64_t begin = 0, end = 0;  // nanoseconds of the machine's monotonic clock
  uint64_t live_bytes = 0;      // while it was executed
};

uint64_t MonotonicNanoseconds();

// Used by one thread. An error names rank, operation and what the library says. Sends may be under way then, so the
// communicator must be aborted before this object is destroyed.
class RankCalls {
 public:
  using Shared = std::shared_ptr<const program::Tensor>;

  // All of these must outlive it. It waits for its work on `stream`.
  RankCalls(int ranks, int rank, ncclComm_t comm, axcclStream_t stream);
  ~RankCalls();
  RankCalls(const RankCalls&) = delete;

  // Fills the results. A rank that is in no group changes nothing.
  Status Collect(const program::Operation& operation, const std::vector<Shared>& operands,
                 std::vector<program::Tensor>* results);
  // Does not wait for the recv, and keeps the value until then. `event`: must outlive this object; its end becomes the
  // time at which the message has been taken, at the latest in Finish. May be null.
  Status Send(const program::Operation& operation, const Shared& value, RankEvent* event);
  // Fills the result, or returns the value that the rank has sent to itself.
  Result<Shared> Receive(const program::Operation& operation, program::Tensor* result);
  // Waits for all sends.
  Status Finish();
  // Waits for all ranks of the communicator, which must call it in the same order as their calls.
  Status Meet();

 private:
  // Drops what has been sent.
  Status DropSent();

  const int rank_;
  const ncclComm_t comm_;
  const axcclStream_t stream_;
  RankChannels channels_;
  // The stream of each channel of messages, and those under way on it.
  struct Sending {
    axcclStream_t stream = nullptr;
    std::vector<Shared> values;
  };
  std::map<axcclChannel_t, Sending> sending_;
  std::map<int64_t, std::deque<Shared>> to_itself_;  // messages, by channel number
};

}  // namespace axccl::tools
