// What a signal publishes to members on other machines, for a thread of the host to send (ProxyRing).
#pragma once

#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

// Called by one thread. If the ring is full, it waits until the host has sent some of it, or aborts the rank.
AXCCL_DEVICE void Post(Channel& channel, const ProxyRing::Entry& entry) {
  ProxyRing& ring = *channel.ring;
  const uint32_t before = FetchAdd(channel.posted, 1);
  while (before - LoadAcquire(&ring.taken) >= ProxyRing::kEntries) {
    if (LoadRelaxed(&channel.control->abort) != 0) return;
    Backoff(1000);
  }
  ProxyRing::Entry& place = ring.entries[before % ProxyRing::kEntries];
  StoreRelaxed(&place.offset, entry.offset);
  StoreRelaxed(&place.value, entry.value);
  StoreRelaxed(&place.call, entry.call);
  StoreRelaxed(&place.bytes, entry.bytes);
  StoreRelaxed(&place.rank, entry.rank);
  StoreRelaxed(&place.position, entry.position);
  StoreRelaxed(&place.channel, channel.number);
  StoreRelaxed(&place.of_member, entry.of_member);
  StoreRelease(&place.number, before + 1);
}

// Posts the slots of a signal for one member.
AXCCL_DEVICE void PostSlots(const Context& c, const Step& step, uint32_t position, uint64_t turn) {
  Channel& channel = *c.task.channel;
  const Cut& cut = c.task.cut;
  const uint64_t set = turn % kRotation * channel.half_bytes + cut.sets.OffsetOf(turn);
  for (uint32_t i = 0; i < step.parts; ++i) {
    const FarSlot& slot = c.program->far_slots()[step.operands + i];
    if (slot.reader != position) continue;
    const uint64_t count = cut.whole != 0 ? cut.partition.count
                                          : plan::Resolve(cut.partition, c.lane, turn - c.turn, slot.data_part).count;
    if (count == 0) continue;
    const Member& owner = channel.members()[slot.of_reader != 0 ? position : channel.self];
    const uint64_t index = uint64_t{c.lane} * c.program->slots + slot.slot;
    ProxyRing::Entry entry;
    entry.offset = static_cast<uint64_t>(owner.scratch - owner.block) + set + index * cut.slot_bytes;
    entry.bytes = static_cast<uint32_t>(count * c.element);
    entry.rank = channel.members()[position].rank;
    entry.of_member = slot.of_reader;
    Post(channel, entry);
  }
}

// Called by one thread, after the line of the signal has been stored, if the channel has a ring.
AXCCL_DEVICE_CALL inline void PostSignal(const Context& c, const Step& step, uint64_t turn, const Line* line) {
  Channel& channel = *c.task.channel;
  const uint32_t first = step.peer == kAllPeers ? 0 : static_cast<uint32_t>(step.peer);
  const uint32_t last = step.peer == kAllPeers ? channel.size - 1 : first;
  for (uint32_t p = first; p <= last; ++p) {
    const Member& member = channel.members()[p];
    if (member.is_far == 0) continue;
    PostSlots(c, step, p, turn);
    ProxyRing::Entry entry;
    entry.offset =
        static_cast<uint64_t>(reinterpret_cast<const uint8_t*>(line) - channel.members()[channel.self].block);
    entry.value = turn << 16 | step.value;
    entry.call = uint64_t{c.signature} | (c.sequence + 1) << 32;
    entry.rank = member.rank;
    entry.position = p;
    Post(channel, entry);
  }
}

}  // namespace axccl::kernels::cuda
