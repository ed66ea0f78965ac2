#include "src/exec/layout.h"

#include <algorithm>

#include "src/base/sizes.h"

namespace axccl::exec {
namespace {

constexpr uint32_t kPairEndpoints = 6;
constexpr uint64_t kPairControl = kRecords * sizeof(OpRecord) + kPairEndpoints * plan::kRotation * sizeof(Line);
constexpr uint64_t kPairScratch = 256u << 10;
// Between machines a turn costs the messages of both ranks and a wait for them, so it moves more. Where there are many
// ranks, each has room for each other one in its block and in every mirror of that.
constexpr uint32_t kRanksWithMoreRoom = 64;
constexpr uint64_t MirroredPairScratch(uint32_t ranks) { return (ranks <= kRanksWithMoreRoom ? 1024u : 512u) << 10; }
constexpr uint64_t kPairAnnouncements = 2 * kPairAnnouncementWords * sizeof(uint64_t);
// Limit for created channels. There may be thousands, and allocations of less than 2 MiB lie close together in the
// heap.
constexpr uint64_t kMostCreatedScratch = 1u << 20;

// Places records and lines of a channel of `ranks` ranks at `at`; returns their end.
uint64_t PlaceControl(uint32_t ranks, uint32_t lanes, uint64_t at, ChannelLayout* channel) {
  channel->lanes = lanes;
  channel->endpoints = 2 * ranks + 64;
  channel->records = at;
  channel->lines = at + RoundUp(kRecords * sizeof(OpRecord), kCacheLine);
  return channel->lines + uint64_t{lanes} * channel->endpoints * plan::kRotation * sizeof(Line);
}

// Likewise for announcements.
uint64_t PlaceAnnouncements(uint64_t at, ChannelLayout* channel) {
  channel->announcements = at;
  channel->announcement_words = kAnnouncementWords;
  return at + 2 * kAnnouncementWords * sizeof(uint64_t);
}

}  // namespace

BlockLayout BlockLayout::Make(uint32_t ranks, uint32_t lanes, uint64_t scratch_bytes, bool mirrored) {
  BlockLayout layout;
  layout.ranks = ranks;
  layout.channel.scratch_bytes = RoundUp(scratch_bytes, kPage);
  layout.released = sizeof(BlockHeader);
  uint64_t at = PlaceControl(ranks, lanes, RoundUp(sizeof(BlockHeader) + ranks, kPage), &layout.channel);
  layout.calls = at = RoundUp(at, kCacheLine);
  at += kControlCalls * ControlEntry::Bytes(ranks);
  layout.contributions = at;
  at += 2 * kControlSlots * kControlSlotBytes;
  layout.keys = at;
  at += kChannelWords * sizeof(std::atomic<uint64_t>);
  layout.slots = at;
  at += kMaxChannels * ChannelSlot::Bytes(ranks);
  layout.created = at;
  at += kMaxChannels * sizeof(std::atomic<uint64_t>) * OpRecord::kCallWords;
  layout.pairs = at;
  layout.pair_bytes = RoundUp(kPairControl + sizeof(Apart), kCacheLine);
  at += 2 * ranks * layout.pair_bytes;
  layout.channel.scratch = at = RoundUp(at, kPage);
  at += layout.channel.scratch_bytes;
  at = PlaceAnnouncements(at, &layout.channel);
  if (mirrored) {
    layout.pair_scratch = at;
    at += ranks * MirroredPairScratch(ranks);
    layout.pair_announcements = at;
    at += 2 * ranks * kPairAnnouncements;
  }
  layout.bytes = RoundUp(at, kPage);
  return layout;
}

ChannelLayout ChannelLayout::Created(uint32_t size, uint32_t lanes, uint64_t scratch_bytes, uint64_t* bytes) {
  ChannelLayout layout;
  layout.scratch = RoundUp(PlaceControl(size, lanes, 0, &layout), kPage);
  layout.scratch_bytes = std::min(RoundUp(scratch_bytes, kPage), kMostCreatedScratch);
  *bytes = PlaceAnnouncements(layout.scratch + layout.scratch_bytes, &layout);
  return layout;
}

ChannelLayout ChannelLayout::ForPlan(uint32_t lanes, uint32_t endpoints, uint64_t scratch_bytes, int num_records,
                                     uint64_t* bytes) {
  // Address and reach of input and output, and their strides.
  constexpr uint64_t kWordsOfOperand = RoundUp(4 + 2 * tensor::kMaxDims, kCacheLine / sizeof(uint64_t));
  ChannelLayout layout;
  layout.lanes = lanes;
  layout.endpoints = endpoints;
  layout.num_records = static_cast<uint64_t>(num_records);
  layout.lines = RoundUp(layout.num_records * sizeof(OpRecord), kCacheLine);
  layout.announcements = layout.lines + uint64_t{lanes} * endpoints * plan::kRotation * sizeof(Line);
  layout.announcement_words = kWordsOfOperand;
  *bytes = layout.announcements + 2 * kWordsOfOperand * sizeof(uint64_t);
  if (scratch_bytes == 0) return layout;
  layout.scratch = RoundUp(*bytes, kPage);
  layout.scratch_bytes = RoundUp(scratch_bytes, kPage);
  *bytes = layout.scratch + layout.scratch_bytes;
  return layout;
}

// Each block has two control parts for each peer (sending to it, receiving from it), and scratch for sending: the
// schedules of a pair use only the sender's scratch.
ChannelLayout BlockLayout::Pair(uint32_t src, uint32_t dst, uint32_t owner) const {
  const uint32_t peer = owner == src ? dst : src;
  const uint32_t index = 2 * peer + (owner == src ? 0 : 1);
  ChannelLayout pair;
  pair.lanes = 1;
  pair.endpoints = kPairEndpoints;
  pair.records = pairs + index * pair_bytes;
  pair.lines = pair.records + kRecords * sizeof(OpRecord);
  pair.scratch_bytes = pair_scratch == 0 ? kPairScratch : MirroredPairScratch(ranks);
  pair.announcement_words = kPairAnnouncementWords;
  if (pair_scratch == 0) {
    pair.apart = pair.records + kPairControl;
  } else {
    pair.scratch = pair_scratch + peer * pair.scratch_bytes;
    pair.announcements = pair_announcements + index * kPairAnnouncements;
  }
  return pair;
}

}  // namespace axccl::exec
