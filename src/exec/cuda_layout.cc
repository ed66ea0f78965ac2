#include "src/exec/cuda_layout.h"

#include <algorithm>

namespace axccl::exec {
namespace {

using kernels::cuda::Announcement;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAnnouncements = 2 * sizeof(Announcement);
constexpr uint64_t kViewBytes = 256u << 10;  // announced at a time: of 1500 operands
constexpr uint32_t kPairEndpoints = 6;
constexpr uint64_t kPairScratch = 512u << 10;
constexpr uint64_t kPairViewBytes = 16u << 10;  // of 97 operands
// Created channels have less of everything, as there may be many.
constexpr uint32_t kAreaLanes = 16;
constexpr uint64_t kAreaScratch = 512u << 10;
constexpr uint64_t kAreaViewBytes = 64u << 10;

static_assert(sizeof(Line) == sizeof(kernels::cuda::Line));

// Of a lane: what has several lanes is too large for packed slots.
constexpr uint64_t PackedBytes(uint32_t endpoints) {
  return uint64_t{endpoints} * plan::kRotation * kernels::cuda::kPackedSlotBytes;
}

}  // namespace

CudaLayout CudaLayout::Make(uint32_t ranks, uint32_t lanes, uint64_t scratch_bytes, uint32_t areas) {
  CudaLayout layout;
  layout.channel.lanes = lanes;
  layout.channel.endpoints = 2 * ranks + 64;
  uint64_t at = uint64_t{lanes} * layout.channel.endpoints * plan::kRotation * sizeof(Line);
  layout.channel.packed = at;
  at += PackedBytes(layout.channel.endpoints);
  layout.channel.announcements = at;
  layout.channel.announcement_words = kViewBytes / sizeof(uint64_t);
  at += kAnnouncements + 2 * kViewBytes;
  layout.pairs = at;
  layout.pair_bytes =
      kPairEndpoints * plan::kRotation * sizeof(Line) + PackedBytes(kPairEndpoints) + kAnnouncements + 2 * kPairViewBytes;
  at += 2 * ranks * layout.pair_bytes;
  layout.channel.scratch = at = RoundUp(at, kPage);
  layout.channel.scratch_bytes = RoundUp(scratch_bytes, kPage);
  at += layout.channel.scratch_bytes;
  layout.pair_scratch = at;
  layout.areas = at = RoundUp(at + ranks * kPairScratch, kPage);
  layout.num_areas = areas;
  const ChannelLayout first = layout.Area(0);
  layout.area_bytes = RoundUp(first.scratch + first.scratch_bytes - layout.areas, kPage);
  layout.bytes = at + areas * layout.area_bytes;
  return layout;
}

ChannelLayout CudaLayout::Area(uint32_t area) const {
  ChannelLayout created;
  created.lanes = std::min(channel.lanes, kAreaLanes);
  created.endpoints = channel.endpoints;
  created.lines = areas + area * area_bytes;
  created.packed = created.lines + uint64_t{created.lanes} * created.endpoints * plan::kRotation * sizeof(Line);
  created.announcements = created.packed + PackedBytes(created.endpoints);
  created.announcement_words = kAreaViewBytes / sizeof(uint64_t);
  created.scratch = RoundUp(created.announcements + kAnnouncements + 2 * kAreaViewBytes, kPage);
  created.scratch_bytes = std::min(channel.scratch_bytes, kAreaScratch);
  return created;
}

// Only the sender's scratch is used by the schedules of a pair.
ChannelLayout CudaLayout::Pair(uint32_t src, uint32_t dst, uint32_t owner) const {
  const uint32_t peer = owner == src ? dst : src;
  ChannelLayout pair;
  pair.lanes = 1;
  pair.endpoints = kPairEndpoints;
  pair.lines = pairs + (2 * peer + (owner == src ? 0 : 1)) * pair_bytes;
  pair.packed = pair.lines + kPairEndpoints * plan::kRotation * sizeof(Line);
  pair.announcements = pair.packed + PackedBytes(kPairEndpoints);
  pair.announcement_words = kPairViewBytes / sizeof(uint64_t);
  pair.scratch = pair_scratch + peer * kPairScratch;
  pair.scratch_bytes = kPairScratch;
  return pair;
}

}  // namespace axccl::exec
