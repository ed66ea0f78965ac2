#include "src/exec/layout.h"

namespace axccl::exec {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint32_t kPairEndpoints = 6;
constexpr uint64_t kPairScratch = 256u << 10;

}  // namespace

BlockLayout BlockLayout::Make(uint32_t ranks, uint32_t lanes, uint64_t scratch_bytes) {
  BlockLayout layout;
  layout.ranks = ranks;
  layout.channel.lanes = lanes;
  layout.channel.endpoints = 2 * ranks + 64;
  layout.channel.scratch_bytes = RoundUp(scratch_bytes, kPage);
  layout.released = sizeof(BlockHeader);
  uint64_t at = RoundUp(sizeof(BlockHeader) + ranks, kPage);
  layout.channel.records = at;
  at += RoundUp(kRecords * sizeof(OpRecord), 64);
  layout.channel.lines = at;
  at += uint64_t{lanes} * layout.channel.endpoints * plan::kRotation * sizeof(Line);
  layout.control = at = RoundUp(at, 64);
  at += kControlSlots * sizeof(ControlSlot);
  layout.pairs = at;
  layout.pair_bytes = RoundUp(kRecords * sizeof(OpRecord) + kPairEndpoints * plan::kRotation * sizeof(Line), 64);
  at += 2 * ranks * layout.pair_bytes;
  layout.channel.scratch = at = RoundUp(at, kPage);
  at += layout.channel.scratch_bytes;
  layout.pair_scratch = at;
  layout.pair_scratch_bytes = kPairScratch;
  at += ranks * kPairScratch;
  layout.bytes = RoundUp(at, kPage);
  return layout;
}

// Each block has two control parts for each peer (sending to it, receiving from it), and scratch for sending: only the
// sender's scratch is used by the schedules of a pair.
ChannelLayout BlockLayout::Pair(uint32_t src, uint32_t dst, uint32_t owner) const {
  const uint32_t peer = owner == src ? dst : src;
  const uint32_t index = 2 * peer + (owner == src ? 0 : 1);
  ChannelLayout pair;
  pair.lanes = 1;
  pair.endpoints = kPairEndpoints;
  pair.records = pairs + index * pair_bytes;
  pair.lines = pair.records + kRecords * sizeof(OpRecord);
  pair.scratch = pair_scratch + peer * pair_scratch_bytes;
  pair.scratch_bytes = pair_scratch_bytes;
  return pair;
}

}  // namespace axccl::exec
