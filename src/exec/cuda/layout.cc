#include "src/exec/cuda/layout.h"

#include <algorithm>

#include "src/base/sizes.h"

namespace axccl::exec {
namespace {

using kernels::cuda::Announcement;

constexpr uint64_t kAnnouncements = 2 * sizeof(Announcement);
static_assert(kAnnouncements % kernels::cuda::kRowBytes == 0);
static_assert(sizeof(Line) == sizeof(kernels::cuda::Line));

// Schedules use at most `ranks` endpoints and a few, one for each peer or for each parent and child in a tree.
constexpr uint32_t kFewRanks = 8, kMoreEndpoints = 4;
constexpr uint32_t kPairEndpoints = 6;
// Created channels have less of everything, because there may be many. If there may, each gets few of a device's blocks
// (CudaRank::ShareOf), on most devices no more than these lanes.
constexpr uint32_t AreaLanes(uint32_t areas) { return areas > 8 ? 8 : 16; }

// Of views, for each parity: calls on more operands go through scratch.
constexpr uint64_t kViewBytes = 64u << 10;     // 390 operands
constexpr uint64_t kAreaViewBytes = 8u << 10;  // 48 operands
constexpr uint64_t kPairViewBytes = 4u << 10;  // 24 operands
constexpr uint64_t kPlanViewBytes = RoundUp(sizeof(kernels::cuda::ViewPlace), sizeof(Line));

// Scratch. Ranks of one machine reach each other's buffers, so little data goes through these. Between machines all
// data does, and a turn costs the messages of both ranks and a wait for them.
constexpr uint64_t kPairScratch = 64u << 10;
constexpr uint64_t kFarScratch = 512u << 10;  // for each peer, and of a created channel
// Of a created channel: the schedules of many ranks have several slots for each, and every lane has a line for a slot.
constexpr uint64_t AreaScratch(uint32_t ranks) {
  const uint64_t further = std::max(ranks, kFewRanks) - kFewRanks;
  return std::min<uint64_t>((40u << 10) + further * (8u << 10), kFarScratch);
}

// Packed slots of one lane: data that needs several lanes is too large for packed slots.
constexpr uint64_t WordsBytes(uint32_t endpoints) {
  return uint64_t{endpoints} * plan::kRotation * kernels::cuda::kPackedSlotBytes;
}
constexpr uint64_t RowsBytes(uint32_t endpoints) {
  return uint64_t{endpoints} * plan::kRotation * kernels::cuda::kRowedSlotBytes;
}

// All of these bytes must be zero when a channel is new. What follows them also begins at a row.
struct Flags {
  uint64_t lines, packed, rows, end;

  // `worded`, `rowed`: endpoints that have slots of words, and of rows.
  static constexpr Flags At(uint64_t at, uint32_t lanes, uint32_t endpoints, uint32_t worded = 1, uint32_t rowed = 1) {
    const uint64_t packed = at + uint64_t{lanes} * endpoints * plan::kRotation * sizeof(Line);
    const uint64_t rows = packed + WordsBytes(worded);
    return {at, packed, rows, rows + RowsBytes(rowed)};
  }
  void PutInto(ChannelLayout* layout) const {
    layout->lines = lines;
    layout->packed = packed;
    layout->rows = rows;
    layout->announcements = end;
  }
};
static_assert(plan::kRotation * sizeof(Line) % kernels::cuda::kRowBytes == 0);
static_assert(kernels::cuda::kPackedSlotBytes % kernels::cuda::kRowBytes == 0);

uint64_t PairBytes(bool sends) {
  return Flags::At(0, 1, kPairEndpoints, sends, sends).end + kAnnouncements + 2 * kPairViewBytes;
}

}  // namespace

CudaLayout CudaLayout::Make(uint32_t ranks, uint32_t lanes, uint64_t scratch_bytes, uint32_t areas, bool far) {
  CudaLayout layout;
  layout.peers = ranks - 1;
  layout.channel.lanes = lanes;
  layout.channel.endpoints = std::max(ranks, kFewRanks) + kMoreEndpoints;
  Flags::At(0, lanes, layout.channel.endpoints, kernels::cuda::WordedEndpoints(ranks),
            kernels::cuda::RowedEndpoints(ranks))
      .PutInto(&layout.channel);
  layout.channel.announcement_words = kViewBytes / sizeof(uint64_t);
  uint64_t at = layout.channel.announcements + kAnnouncements + 2 * kViewBytes;
  layout.sending = at;
  layout.sending_bytes = PairBytes(true);
  layout.receiving = at += layout.peers * layout.sending_bytes;
  layout.receiving_bytes = PairBytes(false);
  at += ranks * layout.receiving_bytes;
  layout.channel.scratch = at = RoundUp(at, kPage);
  layout.channel.scratch_bytes = RoundUp(scratch_bytes, kPage);
  // A gap, so that what is posted of both is not published as one piece: far ranks have them in different places.
  layout.pair_scratch = at += layout.channel.scratch_bytes + kPage;
  layout.pair_scratch_bytes = far ? kFarScratch : kPairScratch;
  layout.areas = at += layout.peers * layout.pair_scratch_bytes;
  layout.area_scratch_bytes = std::min(layout.channel.scratch_bytes, far ? kFarScratch : AreaScratch(ranks));
  layout.num_areas = areas;
  const ChannelLayout first = layout.Area(0);
  layout.area_bytes = first.scratch + first.scratch_bytes - layout.areas;
  layout.bytes = at + areas * layout.area_bytes;
  return layout;
}

ChannelLayout CudaLayout::Area(uint32_t area) const {
  ChannelLayout created;
  created.lanes = std::min(channel.lanes, AreaLanes(num_areas));
  created.endpoints = channel.endpoints;
  const uint32_t worded = kernels::cuda::WordedEndpoints(std::max(peers + 1, kFewRanks));
  Flags::At(areas + area * area_bytes, created.lanes, created.endpoints, worded).PutInto(&created);
  created.announcement_words = kAreaViewBytes / sizeof(uint64_t);
  created.scratch = RoundUp(created.announcements + kAnnouncements + 2 * kAreaViewBytes, kPage);
  created.scratch_bytes = area_scratch_bytes;
  return created;
}

ChannelLayout CudaLayout::AreaForPlan(uint32_t area, uint32_t plan_lanes, uint32_t plan_endpoints) const {
  ChannelLayout of_plan;
  of_plan.lanes = plan_lanes;
  of_plan.endpoints = plan_endpoints;
  Flags::At(areas + area * area_bytes, plan_lanes, plan_endpoints, 0, 0).PutInto(&of_plan);
  of_plan.announcement_words = kPlanViewBytes / sizeof(uint64_t);
  return of_plan;
}

uint64_t CudaLayout::AreaLines() const {
  return (area_bytes - kAnnouncements - 2 * kPlanViewBytes) / (plan::kRotation * sizeof(Line));
}

// The schedules of a pair use only the sender's scratch, and pack only the sender's slots.
ChannelLayout CudaLayout::Pair(uint32_t src, uint32_t dst, uint32_t owner) const {
  const bool local = src == dst, sends = !local && owner == src;
  const uint32_t other = sends ? dst : src;
  const uint32_t peer = local ? peers : other > owner ? other - 1 : other;
  ChannelLayout pair;
  pair.lanes = 1;
  pair.endpoints = kPairEndpoints;
  const uint64_t at = sends ? sending + peer * sending_bytes : receiving + peer * receiving_bytes;
  Flags::At(at, 1, kPairEndpoints, sends, sends).PutInto(&pair);
  pair.announcement_words = kPairViewBytes / sizeof(uint64_t);
  pair.scratch = pair_scratch + peer * pair_scratch_bytes;
  pair.scratch_bytes = local ? 0 : pair_scratch_bytes;
  return pair;
}

}  // namespace axccl::exec
