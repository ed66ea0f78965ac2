#include "src/comm/op_board.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>

#include "src/base/sizes.h"
#include "src/comm/channel_slots.h"
#include "src/exec/channel/recorded_call.h"
#include "src/exec/channel/start_stamps.h"
#include "src/plan/contract.h"

namespace axccl::comm {
namespace {

using exec::ChannelSlot;
using exec::OpRecord;

// Which pages of shared memory have been written. Reading others would make them occupy memory.
class WrittenPages {
 public:
  WrittenPages(const std::byte* memory, uint64_t bytes)
      : begin_(reinterpret_cast<uintptr_t>(memory) / kPage * kPage),
        pages_((reinterpret_cast<uintptr_t>(memory) + bytes - begin_ + kPage - 1) / kPage) {
    // Where the system does not say so, all count.
    if (mincore(reinterpret_cast<void*>(begin_), pages_.size() * kPage, pages_.data()) != 0)
      std::fill(pages_.begin(), pages_.end(), uint8_t{1});
  }
  bool Has(const void* object, size_t bytes) const {
    const uintptr_t at = reinterpret_cast<uintptr_t>(object) - begin_;
    return (pages_[at / kPage] & 1) != 0 && (pages_[(at + bytes - 1) / kPage] & 1) != 0;
  }

 private:
  const uintptr_t begin_;
  std::vector<unsigned char> pages_;
};

// A channel of the rank whose board is read.
struct BoardChannel {
  ChannelSlot::Use use = ChannelSlot::kCalls;
  std::optional<int64_t> id = {};
  std::byte* records = nullptr;
  uint32_t num_records = 0;
  int position = 0, size = 1;  // of the rank in the group, and of the group
  int peer = -1;
};

class BoardReader {
 public:
  BoardReader(const Communicator& comm, const exec::Member& member)
      : ranks_(comm.identity().ranks), layout_(comm.block().layout()), member_(member) {}

  std::vector<BoardOp> Read() {
    // Before the records: what has ended by then is seen to have ended.
    const bool failed = HasFailed();
    ReadChannel({.records = BlockOf(member_) + layout_.channel.records,
                 .num_records = static_cast<uint32_t>(layout_.channel.num_records),
                 .position = member_.rank,
                 .size = ranks_});
    ReadPairs();
    ReadCreated();
    if (failed) {
      for (BoardOp& op : ops_) {
        if (op.state != BoardOp::State::kDone) op.state = BoardOp::State::kFailed;
      }
    }
    std::stable_sort(ops_.begin(), ops_.end(), [](const BoardOp& a, const BoardOp& b) { return a.state < b.state; });
    return std::move(ops_);
  }

 private:
  bool HasFailed() const { return member_.header->error.load(std::memory_order_acquire) != 0 || exec::IsGone(member_); }
  void ReadChannel(const BoardChannel& channel);
  void ReadRecord(const BoardChannel& channel, const OpRecord& record);
  bool ReadStamps(const exec::RecordedStamps& stamps, bool produced, BoardOp* op) const;
  void ReadPairs();
  void ReadCreated();
  void ReadSlot(uint32_t place, uint64_t word);

  const int ranks_;
  const exec::BlockLayout& layout_;
  const exec::Member& member_;
  std::vector<BoardOp> ops_;
};

void BoardReader::ReadChannel(const BoardChannel& channel) {
  const auto first = static_cast<ptrdiff_t>(ops_.size());
  const auto* const records = reinterpret_cast<const OpRecord*>(channel.records);
  const WrittenPages written(channel.records, channel.num_records * sizeof(OpRecord));
  for (uint32_t i = 0; i < channel.num_records; ++i) {
    if (written.Has(&records[i], sizeof(OpRecord))) ReadRecord(channel, records[i]);
  }
  std::sort(ops_.begin() + first, ops_.end(),
            [](const BoardOp& a, const BoardOp& b) { return a.sequence > b.sequence; });
}

// A record that is being rewritten is left out: its operation ended long ago, and the next one has not begun.
void BoardReader::ReadRecord(const BoardChannel& channel, const OpRecord& record) {
  const uint64_t name = record.sequence.load(std::memory_order_acquire);
  if (name == 0) return;
  BoardOp op{.state = BoardOp::State::kUnderWay, .use = channel.use, .channel_id = channel.id, .sequence = name - 1};
  const exec::RecordedCall call(record.word);
  const auto stamps = exec::RecordedStamps::Of(record.word);
  const uint64_t progress = record.progress.load(std::memory_order_acquire);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (record.sequence.load(std::memory_order_relaxed) != name) return;
  const OpRecord::State state = OpRecord::StateIn(progress);
  if (state == OpRecord::kDone) op.state = BoardOp::State::kDone;
  if (state == OpRecord::kEnqueued) op.state = BoardOp::State::kEnqueued;
  const unsigned kind = call.packed & 0xff;
  if (kind >= plan::kNumKinds) return;
  plan::Contract contract{static_cast<plan::Kind>(kind), channel.size};
  contract.root = std::min(static_cast<int>(call.packed >> 32 & 0xffff), channel.size - 1);
  if (contract.kind == plan::Kind::kSendRecv) op.peer = channel.peer;
  if (call.slices != 0) {
    const exec::Slices slices = exec::Slices::Unpack(call.slices);
    op.in_chunks = slices.slices * plan::InputBlocks(contract, channel.position);
    op.out_chunks = slices.slices * plan::OutputBlocks(contract, channel.position);
    op.in_ready = OpRecord::ReadyIn(progress);
    op.out_there = OpRecord::ThereIn(progress);
    if (state == OpRecord::kEnqueued && !ReadStamps(stamps, slices.produced, &op)) return;
  }
  op.count = call.count;
  const uint64_t type = call.packed >> 8 & 0xff;
  if (type < kNumDataTypes) op.bytes = op.count * ElementSize(static_cast<DataType>(type));
  op.call = call.Text().substr(0, BoardOp::kMostText);
  ops_.push_back(std::move(op));
}

// Of a GPU rank. Returns false if the pipeline is gone.
bool BoardReader::ReadStamps(const exec::RecordedStamps& recorded, bool produced, BoardOp* op) const {
  op->in_ready = op->out_there = -1;
  const auto num_in = static_cast<size_t>(op->in_chunks), num_out = static_cast<size_t>(op->out_chunks);
  if (recorded.offset == 0 || recorded.offset % kCacheLine != 0) return true;
  if (num_in > exec::StartStamps::kMostChunks || num_out > exec::StartStamps::kMostChunks) return true;
  const Result<std::byte*> memory = member_.reach->At(recorded.offset, exec::StartStamps::Bytes(num_in, num_out));
  if (!memory.ok() || memory.value() == nullptr) return true;
  const auto progress = exec::StartStamps(memory.value(), num_in, num_out).Read(recorded);
  if (!progress.has_value()) return false;
  op->in_ready = produced ? int64_t{progress->seen} : op->in_chunks;
  op->out_there = progress->came;
  if (progress->state == OpRecord::kUnderWay) op->state = BoardOp::State::kUnderWay;
  if (progress->state == OpRecord::kDone) op->state = BoardOp::State::kDone;
  return true;
}

// The messages of the communicator's own channel.
void BoardReader::ReadPairs() {
  const auto own = static_cast<uint32_t>(member_.rank);
  const auto num_records = static_cast<uint32_t>(exec::kRecords);
  for (uint32_t peer = 0; peer < static_cast<uint32_t>(ranks_); ++peer) {
    if (peer == own) continue;
    for (const bool sends : {true, false}) {
      const exec::ChannelLayout pair = layout_.Pair(sends ? own : peer, sends ? peer : own, own);
      ReadChannel({.use = ChannelSlot::kMessages,
                   .records = BlockOf(member_) + pair.records,
                   .num_records = num_records,
                   .position = sends ? 0 : 1,
                   .size = 2,
                   .peer = static_cast<int>(peer)});
    }
  }
}

void BoardReader::ReadCreated() {
  const WrittenPages written(BlockOf(member_) + layout_.keys, exec::kChannelWords * sizeof(uint64_t));
  for (uint32_t place = 0; place < exec::kChannelWords; ++place) {
    const std::atomic<uint64_t>* const key = layout_.KeyOf(BlockOf(member_), place);
    if (!written.Has(key, sizeof(*key))) continue;
    const uint64_t word = key->load(std::memory_order_seq_cst);
    if (word != 0 && SlotIn(word) != exec::kGoneSlot) ReadSlot(place, word);
  }
}

void BoardReader::ReadSlot(uint32_t place, uint64_t word) {
  const SlotUse use(layout_, member_, place, word);
  if (!use.valid()) return;
  ChannelSlot* const slot = layout_.SlotOf(BlockOf(member_), SlotIn(word));
  const uint32_t size = slot->size, records = slot->records, kind = slot->use & ~ChannelSlot::kOfCommunicator;
  if (size == 0 || size > static_cast<uint32_t>(ranks_) || kind > ChannelSlot::kPipeline) return;
  if (!std::has_single_bit(records) || records > exec::kRecords) return;
  const int32_t* const group = slot->Ranks();
  const int32_t* const self = std::find(group, group + size, member_.rank);
  if (self == group + size) return;
  const uint64_t offset = slot->offset.load(std::memory_order_relaxed);
  if (offset % kPage != 0) return;
  // A part that this process has no room to map is left out.
  const Result<std::byte*> part = member_.reach->At(offset, records * sizeof(OpRecord));
  if (!part.ok() || part.value() == nullptr) return;
  BoardChannel channel{.use = static_cast<ChannelSlot::Use>(kind),
                       .records = part.value(),
                       .num_records = records,
                       .position = static_cast<int>(self - group),
                       .size = static_cast<int>(size)};
  if ((slot->use & ChannelSlot::kOfCommunicator) == 0) channel.id = slot->on;
  if (size == 2) channel.peer = group[1 - channel.position];
  ReadChannel(channel);
}

}  // namespace

Board ReadLocalBoard(const Communicator& comm, int rank) {
  std::vector<BoardOp> ops = BoardReader(comm, comm.members()[static_cast<size_t>(rank)]).Read();
  const size_t total = ops.size();
  return {std::move(ops), total};
}

Result<Board> ReadOpBoard(const Communicator& comm, int rank) {
  if (comm.IsNear(rank)) return ReadLocalBoard(comm, rank);
  AXCCL_ASSIGN_OR_RETURN(const std::vector<std::byte> text, Ask(comm.far(), rank, &comm));
  Board board;
  if (!UnpackBoard(text, &board))
    return MakeStatus(Code::kRemoteError, "what came for the op board of rank %d is not one", rank);
  return board;
}

}  // namespace axccl::comm
