// Uneven calls on GPU ranks, where each piece is a call of its own: a broadcast or a reduction for each rank of an
// all-gather or a reduce-scatter, a message for each pair of ranks else.
//
// They are enqueued as one group. Ranks that give different numbers of rows are told as ranks that call different
// things: by the call in which they differ, after those before it.
#pragma once

#include "src/api/calls.h"
#include "src/api/channels.h"

namespace axccl::api {

// kInvalidUsage for numbers that are read when the call starts, which host ranks alone can do. `call` is uneven.
Status EnqueuePieces(const char* name, const ChannelPin& pin, const exec::Call& call, comm::StreamRef stream);

}  // namespace axccl::api
