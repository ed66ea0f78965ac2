// The op board: which operations a rank of this machine has under way, and which were the last ones.
//
// Ranks write records of their operations into their blocks, and how far each has come (exec/layout.h). This reads
// them, of the own rank and of peers whose memory is mapped here. It takes no lock that an operation holds, and changes
// nothing but the count of users of created channels, so it works on ranks that hang, are stopped, or have died. Any
// thread may call it while the communicator is alive.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/status.h"
#include "src/comm/communicator.h"
#include "src/exec/channel/recorded_call.h"
#include "src/exec/layout.h"

namespace axccl::comm {

struct BoardOp {
  // kFailed: it had not ended when the rank failed, died, or destroyed or aborted its communicator.
  enum class State : uint8_t { kUnderWay, kFailed, kEnqueued, kDone };

  State state;
  exec::ChannelSlot::Use use;         // without kOfCommunicator
  std::optional<int64_t> channel_id;  // of the created channel that it is on, if it is on one
  int peer = -1;                      // of a message: the other rank
  uint64_t sequence;                  // among the operations of its channel
  exec::RecordedCall call;
  // Of the start of a pipeline: chunks of both sides, and of them those declared ready and there; -1: not known.
  int64_t in_chunks = 0, out_chunks = 0;
  int64_t in_ready = 0, out_there = 0;
};

// The operations of that rank: first those under way, then failed ones, then the rest; those of one channel newest
// first. kInvalidUsage: the rank shares no memory with this one.
Result<std::vector<BoardOp>> ReadOpBoard(const Communicator& comm, int rank);

}  // namespace axccl::comm
