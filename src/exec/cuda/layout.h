// The contents of a rank's device memory: lines, packed slots of both kinds, announcements and scratch of the default
// channel and of its pair channels. All ranks compute the same layout from the same numbers.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "src/exec/layout.h"

namespace axccl::exec {

// Where in the rank's device memory a channel is.
enum class CudaPlace : uint8_t {
  kDefault,
  kPair,      // for messages
  kSelf,      // for local copies
  kCreated,   // created by the rank, or for messages of such a channel: in an area
  kPipeline,  // of a pipeline: likewise
};
inline bool IsInArea(CudaPlace place) { return place == CudaPlace::kCreated || place == CudaPlace::kPipeline; }

// Offsets from the start of a rank's device memory. At ChannelLayout::announcements there is one
// kernels::cuda::Announcement for each parity, and behind them announcement_words of views for each; there are no
// records.
struct CudaLayout {
  uint32_t peers = 0;
  ChannelLayout channel;
  // Control parts, one for each peer, and behind those to receive by one for local copies.
  uint64_t sending = 0, receiving = 0;
  uint64_t sending_bytes = 0, receiving_bytes = 0;  // bytes of one
  uint64_t pair_scratch = 0;
  uint64_t pair_scratch_bytes = 0;  // for each peer
  uint32_t num_areas = 0;
  uint64_t areas = 0;       // for channels that the rank creates
  uint64_t area_bytes = 0;  // bytes of one
  uint64_t area_scratch_bytes = 0;
  uint64_t bytes = 0;  // in total

  // `far`: ranks are on several machines.
  static CudaLayout Make(uint32_t ranks, uint32_t lanes, uint64_t scratch_bytes, uint32_t areas, bool far);
  // The pair channel src -> dst in the memory of `owner`, which is one of the two. If both are `owner`, the channel for
  // local copies, which has neither packed slots nor scratch.
  ChannelLayout Pair(uint32_t src, uint32_t dst, uint32_t owner) const;
  // A created channel in an area of its owner, which must be zero up to the announcements when the channel is new.
  ChannelLayout Area(uint32_t area) const;
  // The same for a plan of that many lanes and endpoints, which uses neither packed slots nor scratch, and has one
  // operand: all other room is for lines. AreaLines is how many lines, in pairs of copies, there is room for.
  ChannelLayout AreaForPlan(uint32_t area, uint32_t plan_lanes, uint32_t plan_endpoints) const;
  uint64_t AreaLines() const;
};

}  // namespace axccl::exec
