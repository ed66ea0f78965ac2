// One rank's collectives and messages, as calls of the library's public API: on channels in group order, so their bits
// are those of the reference. A rank has one channel for each group of its collectives, and for each pair of ranks and
// channel number of its messages: some 4000 at most, which is the limit of a communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "axccl/axccl.h"
#include "src/base/status.h"
#include "src/program/program.h"
#include "src/program/tensor.h"

namespace axccl::tools {

// What a rank did when. Plain bytes: processes send them to each other.
struct RankEvent {
  program::Id operation = 0;  // of the rank's part
  bool communication = false;
  uint64_t begin = 0, end = 0;  // nanoseconds of the machine's monotonic clock
  uint64_t live_bytes = 0;      // while it was executed
};

uint64_t MonotonicNanoseconds();

// Whether the rank has to do with the others in this operation, which is one of communication.
bool TakesPart(const program::Operation& operation, int64_t rank);

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
  // The channel of a group's collectives, or that with this number of messages from ranks[0] to ranks[1].
  Result<axcclChannel_t> ChannelOf(const program::Ints& ranks, int64_t number);
  Status Call(const program::Operation& operation, const program::Ints& ranks, std::span<const axcclView_t> in,
              std::span<const axcclView_t> out, axcclChannel_t channel);
  Status Check(ncclResult_t result, const program::Operation& operation) const;
  // Drops what has been sent.
  Status DropSent();

  const int ranks_, rank_;
  const ncclComm_t comm_;
  const axcclStream_t stream_;
  std::map<std::pair<int64_t, program::Ints>, axcclChannel_t> channels_;
  // The stream of each channel of messages, and those under way on it.
  struct Sending {
    axcclStream_t stream = nullptr;
    std::vector<Shared> values;
  };
  std::map<axcclChannel_t, Sending> sending_;
  std::map<int64_t, std::deque<Shared>> to_itself_;  // messages, by channel number
};

}  // namespace axccl::tools
