// What a signal publishes to members on other machines, for a thread of the host to send (ProxyRing).
#pragma once

#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/portion.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

// The next place of the ring, and its number. Called by one thread. If the ring is full, waits until the host has sent
// some of it; null if it aborts the rank meanwhile.
AXCCL_DEVICE ProxyRing::Entry* NextPlace(Channel& channel, uint32_t* number) {
  ProxyRing& ring = *channel.ring;
  const uint32_t before = FetchAdd(channel.posted, 1);
  while (before - LoadAcquire(&ring.taken) >= ProxyRing::kEntries) {
    if (LoadRelaxed(&channel.control->abort) != 0) return nullptr;
    Backoff(1000);
  }
  *number = before + 1;
  return &ring.entries[before % ProxyRing::kEntries];
}

AXCCL_DEVICE_CALL inline void PostSlot(Channel& channel, uint32_t rank, uint32_t of_member, uint32_t on_device,
                                       uint64_t offset, uint32_t bytes) {
  uint32_t number = 0;
  ProxyRing::Entry* const place = NextPlace(channel, &number);
  if (place == nullptr) return;
  StoreRelaxed(&place->offset, offset);
  StoreRelaxed(&place->bytes, bytes);
  StoreRelaxed(&place->rank, rank);
  StoreRelaxed(&place->of_member, of_member);
  StoreRelaxed(&place->on_device, on_device);
  StoreRelease(&place->number, number);
}

AXCCL_DEVICE_CALL inline void PostLine(Channel& channel, uint32_t rank, uint32_t position, uint64_t offset,
                                       uint64_t value, uint64_t call) {
  uint32_t number = 0;
  ProxyRing::Entry* const place = NextPlace(channel, &number);
  if (place == nullptr) return;
  StoreRelaxed(&place->offset, offset);
  StoreRelaxed(&place->value, value);
  StoreRelaxed(&place->call, call);
  StoreRelaxed(&place->bytes, uint32_t{0});
  StoreRelaxed(&place->rank, rank);
  StoreRelaxed(&place->position, position);
  StoreRelaxed(&place->channel, channel.number);
  StoreRelease(&place->number, number);
}

// Posts a slot that travels with a signal.
AXCCL_DEVICE_CALL inline void PostFarSlot(const Context& c, const FarSlot& slot, uint64_t turn) {
  Channel& channel = *c.task.channel;
  const Cut& cut = c.task.cut;
  const uint64_t count =
      cut.whole != 0 ? cut.partition.count : plan::Resolve(cut.partition, c.lane, turn - c.turn, slot.data_part).count;
  if (count == 0) return;
  const Member& owner = channel.members()[slot.of_reader != 0 ? slot.reader : channel.self];
  PostSlot(channel, channel.members()[slot.reader].rank, slot.of_reader, cut.between == Member::kAdapters,
           static_cast<uint64_t>(owner.scratch[0] - owner.block) + OffsetOfSlot(c, channel.half_bytes, slot.slot, turn),
           static_cast<uint32_t>(count * c.element));
}

// Called by one thread, after the line of the signal has been stored, if the channel has a ring. Slots go before the
// lines.
AXCCL_DEVICE_CALL inline void PostSignal(const Context& c, const Step& step, uint64_t turn, const Line* line) {
  Channel& channel = *c.task.channel;
  for (uint32_t i = 0; i < step.parts; ++i) {
    const FarSlot& slot = c.program->far_slots()[step.operands + i];
    if (channel.members()[slot.reader].is_far != 0) PostFarSlot(c, slot, turn);
  }
  const uint64_t offset = reinterpret_cast<const uint8_t*>(line) - channel.members()[channel.self].block;
  const uint32_t last = step.peer == kAllPeers ? channel.size - 1 : static_cast<uint32_t>(step.peer);
  for (uint32_t p = step.peer == kAllPeers ? 0 : last; p <= last; ++p) {
    const Member& member = channel.members()[p];
    if (member.is_far == 0) continue;
    PostLine(channel, member.rank, p, offset, turn << 16 | step.value, uint64_t{c.signature} | (c.sequence + 1) << 32);
  }
}

}  // namespace axccl::kernels::cuda
