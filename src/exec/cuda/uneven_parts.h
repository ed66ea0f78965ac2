// Uneven calls on GPU ranks, where each piece is a call of its own: a broadcast or a reduction for each rank of an
// all-gather or a reduce-scatter, a message for each pair of ranks else.
//
// They are enqueued as one group. Ranks that give different numbers of rows look like ranks that call different things:
// the error is that of the call in which they differ, after those before it.
#pragma once

#include <vector>

#include "src/base/status.h"
#include "src/exec/call.h"

namespace axccl::exec {

// An even call that an uneven one is made of.
struct UnevenPart {
  enum class On : uint8_t { kChannel, kRank, kSend, kReceive };

  Call call;
  On on = On::kChannel;  // all ranks of the channel, this one alone, or this one and `peer`
  int peer = -1;
};

// Those of the uneven `call` on rank `rank` of `ranks`, in the order in which they are enqueued. kInvalidUsage for
// numbers that are read when the call starts, which host ranks alone can do, and where a rank gives itself other
// numbers of rows than it expects.
Result<std::vector<UnevenPart>> PartsOfUneven(const Call& call, int rank, int ranks);

}  // namespace axccl::exec
