#include "src/comm/board.h"

#include <cstring>
#include <utility>

namespace axccl::comm {
namespace {

// The number of operations, then each as this and its text.
struct WireOp {
  uint8_t state, use, created, text_bytes;
  int32_t peer;
  int64_t channel_id;
  uint64_t sequence, count, bytes;
  int64_t in_chunks, out_chunks, in_ready, out_there;
};
static_assert(sizeof(WireOp) == 72 && BoardOp::kMostText <= UINT8_MAX);

// Takes an object from the front.
template <typename T>
bool Take(std::span<const std::byte>* bytes, T* object) {
  if (bytes->size() < sizeof(T)) return false;
  std::memcpy(object, bytes->data(), sizeof(T));
  *bytes = bytes->subspan(sizeof(T));
  return true;
}

void Append(const void* from, size_t bytes, std::vector<std::byte>* to) {
  const auto* const first = static_cast<const std::byte*>(from);
  to->insert(to->end(), first, first + bytes);
}

}  // namespace

std::vector<std::byte> PackBoard(const Board& board, size_t limit) {
  std::vector<std::byte> bytes;
  const uint64_t total = board.total;
  Append(&total, sizeof(total), &bytes);
  for (const BoardOp& op : board.ops) {
    if (bytes.size() + sizeof(WireOp) + op.call.size() > limit) break;
    const WireOp wire{static_cast<uint8_t>(op.state),
                      static_cast<uint8_t>(op.use),
                      op.channel_id.has_value(),
                      static_cast<uint8_t>(op.call.size()),
                      op.peer,
                      op.channel_id.value_or(0),
                      op.sequence,
                      op.count,
                      op.bytes,
                      op.in_chunks,
                      op.out_chunks,
                      op.in_ready,
                      op.out_there};
    Append(&wire, sizeof(wire), &bytes);
    Append(op.call.data(), op.call.size(), &bytes);
  }
  return bytes;
}

bool UnpackBoard(std::span<const std::byte> bytes, Board* board) {
  uint64_t total = 0;
  if (!Take(&bytes, &total)) return false;
  board->ops.clear();
  while (!bytes.empty()) {
    WireOp wire;
    if (!Take(&bytes, &wire) || wire.text_bytes > bytes.size() || wire.text_bytes > BoardOp::kMostText) return false;
    if (wire.state > static_cast<uint8_t>(BoardOp::State::kDone) || wire.use > exec::ChannelSlot::kPipeline ||
        wire.created > 1)
      return false;
    BoardOp op{.state = static_cast<BoardOp::State>(wire.state),
               .use = static_cast<exec::ChannelSlot::Use>(wire.use),
               .peer = wire.peer,
               .sequence = wire.sequence,
               .count = wire.count,
               .bytes = wire.bytes,
               .call = {reinterpret_cast<const char*>(bytes.data()), wire.text_bytes},
               .in_chunks = wire.in_chunks,
               .out_chunks = wire.out_chunks,
               .in_ready = wire.in_ready,
               .out_there = wire.out_there};
    if (wire.created != 0) op.channel_id = wire.channel_id;
    bytes = bytes.subspan(wire.text_bytes);
    board->ops.push_back(std::move(op));
  }
  board->total = static_cast<size_t>(total);
  return total >= board->ops.size() && total <= INT32_MAX;
}

}  // namespace axccl::comm
