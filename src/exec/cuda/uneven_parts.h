// Uneven calls on GPU ranks, where each piece is a call of its own: a broadcast or a reduction for each rank of an
// all-gather or a reduce-scatter, otherwise a message for each pair of ranks.
//
// They are enqueued as one group. Ranks that pass different numbers of rows look like ranks that make different calls:
// the error belongs to the call in which they differ, after the calls before it.
#pragma once

#include <vector>

#include "src/base/status.h"
#include "src/exec/call/call.h"

namespace axccl::exec {

// An even call that is part of an uneven one.
struct UnevenPart {
  enum class On : uint8_t { kChannel, kRank, kSend, kReceive };

  Call call;
  On on = On::kChannel;  // all ranks of the channel, this one alone, or this one and `peer`
  int peer = -1;
};

// Returns the parts of the uneven `call` on rank `rank` of `ranks`, in the order in which they are enqueued.
// kInvalidUsage for numbers that are read when the call starts, which only host ranks support, and if a rank sends
// itself other numbers of rows than it expects.
Result<std::vector<UnevenPart>> PartsOfUneven(const Call& call, int rank, int ranks);

}  // namespace axccl::exec
