// What an op board shows (op_board.h), also as bytes for a process on another machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/exec/layout.h"

namespace axccl::comm {

struct BoardOp {
  // kFailed: it had not ended when the rank failed, died, or destroyed or aborted its communicator.
  enum class State : uint8_t { kUnderWay, kFailed, kEnqueued, kDone };
  static constexpr size_t kMostText = 191;

  State state;
  exec::ChannelSlot::Use use;              // without kOfCommunicator
  std::optional<int64_t> channel_id = {};  // of the created channel that it is on, if it is on one
  int peer = -1;                           // of a message: the other rank
  uint64_t sequence;                       // among the operations of its channel
  uint64_t count = 0;                      // elements of a block
  uint64_t bytes = 0;                      // of these elements; 0: not known
  std::string call = {};                   // as error texts describe it, cut to kMostText
  // Of the start of a pipeline: chunks of both sides, and of them those declared ready and there; -1: not known.
  int64_t in_chunks = 0, out_chunks = 0;
  int64_t in_ready = 0, out_there = 0;
};

struct Board {
  // First those under way, then failed ones, then the rest; those of one channel newest first.
  std::vector<BoardOp> ops;
  size_t total = 0;  // may be more, of a rank on another machine
};

// At most `limit` bytes: operations that do not fit are left out, the last ones first.
std::vector<std::byte> PackBoard(const Board& board, size_t limit);
// Returns false if these are not the bytes of a board.
bool UnpackBoard(std::span<const std::byte> bytes, Board* board);

}  // namespace axccl::comm
