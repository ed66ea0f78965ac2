// One rank's collectives and messages, as calls of the library's public API: on channels in group order, so their bits
// are those of the reference. A rank has one channel for each group of its collectives, and for each pair of ranks and
// channel number of its messages: some 4000 at most, which is the limit of a communicator.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "axccl/axccl.h"
#include "src/base/status.h"
#include "src/program/program.h"

namespace axccl::tools {

// Whether the rank has to do with the others in this operation, which is one of communication.
bool TakesPart(const program::Operation& operation, int64_t rank);

// Of elements in row-major order. Refers to the type's sizes.
axcclView_t ViewOf(const program::TensorType& type, const void* data);

// Used by one thread. An error names rank, operation and what the library says.
class RankChannels {
 public:
  static constexpr int64_t kCollectives = -1;  // not the number of a channel

  // The communicator must outlive it.
  RankChannels(int ranks, int rank, ncclComm_t comm) : ranks_(ranks), rank_(rank), comm_(comm) {}
  ~RankChannels();
  RankChannels(const RankChannels&) = delete;

  // The channel of a group's collectives, or that with this number of messages from ranks[0] to ranks[1].
  Result<axcclChannel_t> ChannelOf(const program::Ints& ranks, int64_t number);
  // A collective of these ranks.
  Status Call(const program::Operation& operation, const program::Ints& ranks, std::span<const axcclView_t> in,
              std::span<const axcclView_t> out, axcclChannel_t channel, cudaStream_t stream);
  Status Check(ncclResult_t result, const program::Operation& operation) const;

 private:
  const int ranks_, rank_;
  const ncclComm_t comm_;
  std::map<std::pair<int64_t, program::Ints>, axcclChannel_t> channels_;
};

}  // namespace axccl::tools
