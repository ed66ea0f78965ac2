// What an operation sends to ranks that do not share this rank's memory: with its signals, the slots they publish, and
// before the first of them what it has called.
#include <algorithm>
#include <cstddef>

#include "src/base/sizes.h"
#include "src/exec/host/operation.h"

namespace axccl::exec {
namespace {

using Sent = transport::RemoteRank::Stretch;

// Slots are whole lines: what is between them and less than a line belongs to the first, and is sent along.

void Append(std::vector<Sent>* stretches, const Sent& next) {
  if (!stretches->empty()) {
    Sent& last = stretches->back();
    const uint64_t end = last.offset + last.bytes;
    const bool follows = next.offset >= end && next.offset - end < kCacheLine;
    if (follows && last.of_peer == next.of_peer && !last.guarded && !next.guarded) {
      last.bytes = static_cast<uint32_t>(next.offset + next.bytes - last.offset);
      return;
    }
  }
  stretches->push_back(next);
}

}  // namespace

// A record says what was called; where ranks tell each other of their operands with it, that, too.
void Operation::AppendRecord(std::vector<Sent>* stretches) const {
  const ChannelLayout& layout = channel_->own().layout;
  const OpRecord* record = layout.RecordOf(channel_->own().block, sequence_);
  const bool short_one = call_.views == nullptr;
  const auto bytes = static_cast<uint32_t>(
      short_one ? offsetof(OpRecord, word) + (OpRecord::kPlan + 1) * sizeof(uint64_t) : sizeof(OpRecord));
  const uint64_t told = record->word[OpRecord::kDetails].load(std::memory_order_relaxed);
  if (call_.uneven() && told > OpRecord::kRoom) {
    const uint64_t offset = layout.announcements + sequence_ % 2 * layout.announcement_words * sizeof(uint64_t);
    stretches->push_back(Sent{offset, static_cast<uint32_t>(told * sizeof(uint64_t)), false, false});
  }
  stretches->push_back(Sent{layout.records + sequence_ % kRecords * sizeof(OpRecord), bytes, false, true});
}

void Operation::AppendSlot(const Outbound::Slot& slot, uint32_t lane, uint16_t endpoint, uint64_t turn,
                           std::vector<Sent>* stretches) const {
  const Program& program = *prepared_->program;
  const int16_t in_line = prepared_->inline_slots ? program.inline_endpoint[slot.slot] : int16_t{-1};
  if (!slot.of_reader && in_line == static_cast<int16_t>(endpoint)) return;  // the line has it
  const uint64_t count =
      prepared_->whole
          ? call_.count
          : plan::Resolve(prepared_->partition, lane, turn - channel_->turns().next(), slot.data_part).count;
  if (count == 0) return;
  plan::Operand operand{plan::Buffer::kScratch, slot.of_reader ? slot.reader : static_cast<uint16_t>(channel_->self()),
                        0, slot.slot, 1};
  const OperandPlace place = channel_->plans().PlaceOfSlot(*prepared_, lane, operand);
  const uint64_t offset = place.offset[turn % plan::kRotation] + (in_line < 0 ? prepared_->SetOffset(turn) : 0);
  Append(stretches, Sent{offset, static_cast<uint32_t>(count * ElementSize(call_.type)), slot.of_reader, false});
}

void Operation::SendSignal(const Step& step, uint32_t lane, uint64_t turn) {
  const uint32_t index = static_cast<uint32_t>(&step - prepared_->program->lanes[lane].data());
  const std::span<const Outbound::Slot> slots = prepared_->outbound->With(lane, index);
  const uint64_t line = channel_->own().layout.OffsetOfLine(lane, step.endpoint, turn);
  std::vector<Sent>& stretches = workspace_.stretches();
  const int first = step.peer == plan::kAllPeers ? 0 : step.peer;
  const int last = step.peer == plan::kAllPeers ? channel_->size() - 1 : step.peer;
  for (int p = first; p <= last; ++p) {
    const Member& member = channel_->member(p);
    if (member.remote == nullptr) continue;
    stretches.clear();
    uint64_t& told = workspace_.SentTo(p);
    if (told != sequence_ + 1) AppendRecord(&stretches);
    told = sequence_ + 1;
    for (const Outbound::Slot& slot : slots) {
      if (slot.reader == p) AppendSlot(slot, lane, step.endpoint, turn, &stretches);
    }
    member.remote->Send(member.remote_area, stretches, line);
  }
}

}  // namespace axccl::exec
