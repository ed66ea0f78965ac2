#include "src/exec/cuda_layout.h"

namespace axccl::exec {
namespace {

using kernels::cuda::Announcement;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAnnouncements = 2 * sizeof(Announcement);
constexpr uint64_t kViewBytes = 256u << 10;  // announced at a time: of 1500 operands
constexpr uint32_t kPairEndpoints = 6;
constexpr uint64_t kPairScratch = 512u << 10;

static_assert(sizeof(Line) == sizeof(kernels::cuda::Line) && kLineData == kernels::cuda::kLineData);
static_assert(plan::kRotation == kernels::cuda::kRotation);

}  // namespace

CudaLayout CudaLayout::Make(uint32_t ranks, uint32_t lanes, uint64_t scratch_bytes) {
  CudaLayout layout;
  layout.channel.lanes = lanes;
  layout.channel.endpoints = 2 * ranks + 64;
  uint64_t at = uint64_t{lanes} * layout.channel.endpoints * plan::kRotation * sizeof(Line);
  layout.channel.announcements = at;
  layout.channel.announcement_words = kViewBytes / sizeof(uint64_t);
  at += kAnnouncements + 2 * kViewBytes;
  layout.pairs = at;
  layout.pair_bytes = kPairEndpoints * plan::kRotation * sizeof(Line) + kAnnouncements;
  at += 2 * ranks * layout.pair_bytes;
  layout.channel.scratch = at = RoundUp(at, kPage);
  layout.channel.scratch_bytes = RoundUp(scratch_bytes, kPage);
  at += layout.channel.scratch_bytes;
  layout.pair_scratch = at;
  layout.bytes = at + ranks * kPairScratch;
  return layout;
}

// Only the sender's scratch is used by the schedules of a pair.
ChannelLayout CudaLayout::Pair(uint32_t src, uint32_t dst, uint32_t owner) const {
  const uint32_t peer = owner == src ? dst : src;
  ChannelLayout pair;
  pair.lanes = 1;
  pair.endpoints = kPairEndpoints;
  pair.lines = pairs + (2 * peer + (owner == src ? 0 : 1)) * pair_bytes;
  pair.announcements = pair.lines + kPairEndpoints * plan::kRotation * sizeof(Line);
  pair.scratch = pair_scratch + peer * kPairScratch;
  pair.scratch_bytes = kPairScratch;
  return pair;
}

}  // namespace axccl::exec
