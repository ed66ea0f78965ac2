#include "src/exec/cuda/layout.h"

#include <algorithm>

#include "src/base/sizes.h"

namespace axccl::exec {
namespace {

using kernels::cuda::Announcement;

constexpr uint64_t kAnnouncements = 2 * sizeof(Announcement);
static_assert(kAnnouncements % kernels::cuda::kRowBytes == 0);
constexpr uint64_t kViewBytes = 256u << 10;  // announced at a time: enough for 1500 operands
constexpr uint32_t kPairEndpoints = 6;
constexpr uint64_t kPairScratch = 512u << 10;
constexpr uint64_t kPairViewBytes = 16u << 10;  // enough for 97 operands
// Created channels have less of everything, because there may be many.
constexpr uint32_t kAreaLanes = 16;
constexpr uint64_t kAreaScratch = 512u << 10;
constexpr uint64_t kAreaViewBytes = 64u << 10;

static_assert(sizeof(Line) == sizeof(kernels::cuda::Line));

// Packed slots of one lane: data that needs several lanes is too large for packed slots.
constexpr uint64_t PackedBytes(uint32_t endpoints) {
  return uint64_t{endpoints} * plan::kRotation * kernels::cuda::kPackedSlotBytes;
}
constexpr uint64_t kRowsBytes = kernels::cuda::kRowedEndpoints * plan::kRotation * kernels::cuda::kRowedSlotBytes;

// All of these bytes must be zero when a channel is new. What follows them also begins at a row.
struct Flags {
  uint64_t lines, packed, rows, end;

  static constexpr Flags At(uint64_t at, uint32_t lanes, uint32_t endpoints) {
    const uint64_t packed = at + uint64_t{lanes} * endpoints * plan::kRotation * sizeof(Line);
    const uint64_t rows = packed + PackedBytes(endpoints);
    return {at, packed, rows, rows + kRowsBytes};
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

}  // namespace

CudaLayout CudaLayout::Make(uint32_t ranks, uint32_t lanes, uint64_t scratch_bytes, uint32_t areas) {
  CudaLayout layout;
  layout.channel.lanes = lanes;
  layout.channel.endpoints = 2 * ranks + 64;
  Flags::At(0, lanes, layout.channel.endpoints).PutInto(&layout.channel);
  layout.channel.announcement_words = kViewBytes / sizeof(uint64_t);
  uint64_t at = layout.channel.announcements + kAnnouncements + 2 * kViewBytes;
  layout.pairs = at;
  layout.pair_bytes = Flags::At(0, 1, kPairEndpoints).end + kAnnouncements + 2 * kPairViewBytes;
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
  Flags::At(areas + area * area_bytes, created.lanes, created.endpoints).PutInto(&created);
  created.announcement_words = kAreaViewBytes / sizeof(uint64_t);
  created.scratch = RoundUp(created.announcements + kAnnouncements + 2 * kAreaViewBytes, kPage);
  created.scratch_bytes = std::min(channel.scratch_bytes, kAreaScratch);
  return created;
}

ChannelLayout CudaLayout::AreaForPlan(uint32_t area, uint32_t plan_lanes, uint32_t plan_endpoints) const {
  ChannelLayout of_plan = Area(area);
  of_plan.lanes = plan_lanes;
  of_plan.endpoints = plan_endpoints;
  of_plan.packed = of_plan.rows = of_plan.lines;
  of_plan.scratch_bytes = 0;
  return of_plan;
}

uint64_t CudaLayout::AreaLines() const {
  const ChannelLayout area = Area(0);
  return (area.announcements - area.lines) / (plan::kRotation * sizeof(Line));
}

// The schedules of a pair use only the sender's scratch.
ChannelLayout CudaLayout::Pair(uint32_t src, uint32_t dst, uint32_t owner) const {
  const uint32_t peer = owner == src ? dst : src;
  ChannelLayout pair;
  pair.lanes = 1;
  pair.endpoints = kPairEndpoints;
  Flags::At(pairs + (2 * peer + (owner == src ? 0 : 1)) * pair_bytes, 1, kPairEndpoints).PutInto(&pair);
  pair.announcement_words = kPairViewBytes / sizeof(uint64_t);
  pair.scratch = pair_scratch + peer * kPairScratch;
  pair.scratch_bytes = kPairScratch;
  return pair;
}

}  // namespace axccl::exec
