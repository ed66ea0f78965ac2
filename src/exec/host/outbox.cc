#include "src/exec/host/outbox.h"

#include <algorithm>
#include <cstddef>

#include "src/exec/channel/slot_stretch.h"

namespace axccl::exec {
namespace {

using transport::Reach;
using Stretches = std::vector<Reach::Stretch>;

void Append(Stretches* stretches, const Reach::Stretch& next) {
  if (stretches->empty() || !Extend(&stretches->back(), next)) stretches->push_back(next);
}

// Appends the op record from its sequence number on, and the operand announcement if it did not fit in the record.
void AppendRecord(const Binding& binding, Stretches* stretches) {
  const ChannelLayout& layout = binding.channel->own().layout;
  const bool short_one = binding.call.views == nullptr;
  constexpr size_t kBegin = offsetof(OpRecord, sequence);
  const size_t end = offsetof(OpRecord, word) + (short_one ? OpRecord::kPlan + 1 : OpRecord::kWords) * sizeof(uint64_t);
  if (binding.announced_words > OpRecord::kRoom) {
    const uint64_t half = binding.sequence % 2 * layout.announcement_words * sizeof(uint64_t);
    const auto announced = static_cast<uint32_t>(binding.announced_words * sizeof(uint64_t));
    stretches->push_back({layout.announcements + half, announced, false, false});
  }
  stretches->push_back(
      {layout.OffsetOfRecord(binding.sequence) + kBegin, static_cast<uint32_t>(end - kBegin), false, true});
}

void AppendSlot(const Binding& binding, const Outbound::Slot& slot, uint32_t lane, uint16_t endpoint, uint64_t turn,
                Stretches* stretches) {
  const Channel& channel = *binding.channel;
  const Prepared& prepared = *binding.prepared;
  const int16_t in_line = prepared.inline_slots ? prepared.program->inline_endpoint[slot.slot] : int16_t{-1};
  if (!slot.of_reader && in_line == static_cast<int16_t>(endpoint)) return;  // the line carries it
  const uint64_t count =
      prepared.whole ? binding.call.count
      : prepared.slicing.slices != 0
          ? plan::Resolve(prepared.slicing, slot.data_part).count
          : plan::Resolve(prepared.partition, lane, turn - binding.host->turns().next(), slot.data_part).count;
  if (count == 0) return;
  const uint16_t owner = slot.of_reader ? slot.reader : static_cast<uint16_t>(channel.self());
  const plan::Operand operand{plan::Buffer::kScratch, owner, 0, slot.slot, 1};
  const OperandPlace place = binding.host->plans().PlaceOfSlot(prepared, lane, operand);
  const uint64_t offset = place.offset[turn % plan::kRotation] + (in_line < 0 ? prepared.sets.OffsetOf(turn) : 0);
  const auto bytes = static_cast<uint32_t>(count * ElementSize(binding.call.type));
  Append(stretches, {offset, bytes, slot.of_reader, false});
}

// Makes the slots that travel with a signal to the member at `p` visible there, and then the line at that offset; a
// last signal that is kept goes with what follows.
void Publish(const Binding& binding, int p, const Step& step, uint32_t lane, uint64_t turn, uint64_t line) {
  const Prepared& prepared = *binding.prepared;
  const uint32_t index = static_cast<uint32_t>(&step - prepared.program->lanes[lane].data());
  Stretches& stretches = binding.workspace().stretches();
  stretches.clear();
  uint64_t& sent = binding.workspace().SentTo(p);
  if (sent != binding.sequence + 1) AppendRecord(binding, &stretches);
  sent = binding.sequence + 1;
  for (const Outbound::Slot& slot : prepared.outbound->With(lane, index)) {
    if (slot.reader == p) AppendSlot(binding, slot, lane, step.endpoint, turn, &stretches);
  }
  const Member& member = binding.channel->member(p);
  if (binding.keeps_signals && binding.IsLast(turn)) return member.reach->PublishLater(member.mirror, stretches, line);
  member.reach->Publish(member.mirror, stretches, line);
}

uint64_t LineOf(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn) {
  return binding.channel->own().layout.OffsetOfLine(lane, step.endpoint, turn);
}

}  // namespace

void Outbox::SendSignal(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn) {
  const Members& members = binding.channel->members();
  for (const int p : members.Mirrored(step.peer)) {
    if (members.IsConnected(p)) {
      Publish(binding, p, step, lane, turn, LineOf(binding, step, lane, turn));
    } else {
      held_.push_back({p, &step, lane});
    }
  }
}

// A line already has its last value, so all slots go before it.
void Outbox::SendHeld(const Binding& binding, uint64_t turn) {
  const Members& members = binding.channel->members();
  const auto first = std::stable_partition(held_.begin(), held_.end(),
                                           [&](const Held& held) { return !members.IsConnected(held.position); });
  for (auto held = first; held != held_.end(); ++held)
    Publish(binding, held->position, *held->step, held->lane, turn, transport::Reach::kNoLine);
  for (auto held = first; held != held_.end(); ++held) {
    const Member& member = binding.channel->member(held->position);
    member.reach->Publish(member.mirror, {}, LineOf(binding, *held->step, held->lane, turn));
  }
  held_.erase(first, held_.end());
}

}  // namespace axccl::exec
