// The contents of a GPU rank's device memory: parts do not overlap, and there is room for what schedules use.
#include "src/exec/cuda/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/algo/algo.h"
#include "src/exec/channel/slot_stretch.h"

namespace axccl::exec {
namespace {

constexpr uint32_t kLanes = 64, kAreas = 3;
constexpr uint64_t kScratch = 2u << 20;

CudaLayout Layout(uint32_t ranks, bool far = false, uint32_t areas = kAreas) {
  return CudaLayout::Make(ranks, kLanes, kScratch, areas, far);
}

struct Region {
  std::string name;
  uint64_t begin, bytes;
};

// In the order of their addresses. `worded`, `rowed`: endpoints that have slots of words and of rows.
void AddControl(const ChannelLayout& channel, const std::string& name, uint32_t worded, uint32_t rowed,
                std::vector<Region>* regions) {
  const uint64_t lines = uint64_t{channel.lanes} * channel.endpoints * plan::kRotation * sizeof(Line);
  regions->push_back({name + " lines", channel.lines, lines});
  if (worded != 0) {
    regions->push_back({name + " words", channel.packed, worded * plan::kRotation * kernels::cuda::kPackedSlotBytes});
    regions->push_back({name + " rows", channel.rows, rowed * plan::kRotation * kernels::cuda::kRowedSlotBytes});
  }
  const uint64_t views = channel.announcement_words * sizeof(uint64_t);
  regions->push_back({name + " announcements", channel.announcements,
                      plan::kRotation * (sizeof(kernels::cuda::Announcement) + views)});
}

std::vector<uint32_t> PeersOf(uint32_t owner, uint32_t ranks) {
  std::vector<uint32_t> peers;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    if (rank != owner) peers.push_back(rank);
  return peers;
}

void AddPairs(const CudaLayout& layout, uint32_t owner, uint32_t ranks, std::vector<Region>* regions) {
  for (const uint32_t peer : PeersOf(owner, ranks))
    AddControl(layout.Pair(owner, peer, owner), "to " + std::to_string(peer), 1, 1, regions);
  for (const uint32_t peer : PeersOf(owner, ranks))
    AddControl(layout.Pair(peer, owner, owner), "from " + std::to_string(peer), 0, 0, regions);
  AddControl(layout.Pair(owner, owner, owner), "local copies", 0, 0, regions);
}

void ExpectApart(const std::vector<Region>& regions) {
  for (size_t i = 0; i + 1 < regions.size(); ++i) {
    EXPECT_LE(regions[i].begin + regions[i].bytes, regions[i + 1].begin) << regions[i].name;
    EXPECT_EQ(regions[i].begin % sizeof(Line), 0u) << regions[i].name;
  }
}

class CudaLayoutTest : public testing::TestWithParam<uint32_t> {};

TEST_P(CudaLayoutTest, PartsAreApart) {
  const uint32_t ranks = GetParam();
  for (const bool far : {false, true}) {
    const CudaLayout layout = Layout(ranks, far);
    std::vector<Region> regions;
    const uint32_t worded = ranks > 2 ? ranks - 1 : 1;
    AddControl(layout.channel, "channel", worded, ranks <= 16 ? worded : 1, &regions);
    const uint32_t owner = ranks / 2;
    AddPairs(layout, owner, ranks, &regions);
    regions.push_back({"scratch", layout.channel.scratch, layout.channel.scratch_bytes});
    for (const uint32_t peer : PeersOf(owner, ranks)) {
      const ChannelLayout pair = layout.Pair(owner, peer, owner);
      regions.push_back({"scratch to " + std::to_string(peer), pair.scratch, pair.scratch_bytes});
    }
    for (uint32_t area = 0; area < kAreas; ++area) {
      const ChannelLayout created = layout.Area(area);
      AddControl(created, "area", std::max(ranks, 8u) - 1, 1, &regions);
      regions.push_back({"scratch of an area", created.scratch, created.scratch_bytes});
    }
    regions.push_back({"end", layout.bytes, 0});
    ExpectApart(regions);
  }
}

// Where adapters reach devices, a rank on another machine has mirrors of the two in different places.
TEST_P(CudaLayoutTest, SlotsOfTheChannelAndOfMessagesAreNotPublishedAsOne) {
  const CudaLayout layout = Layout(GetParam(), true);
  transport::Reach::Stretch last{layout.channel.scratch + layout.channel.scratch_bytes - kCacheLine, kCacheLine};
  EXPECT_FALSE(Extend(&last, {layout.Pair(1, 0, 1).scratch, kCacheLine}));
  EXPECT_FALSE(Extend(&last, {layout.Pair(0, 1, 0).scratch, kCacheLine}));
}

TEST_P(CudaLayoutTest, APlanHasAWholeArea) {
  const CudaLayout layout = Layout(GetParam());
  const auto lines = static_cast<uint32_t>(layout.AreaLines());
  std::vector<Region> regions;
  AddControl(layout.AreaForPlan(1, 1, lines), "plan", 0, 0, &regions);
  regions.push_back({"next", layout.Area(2).lines, 0});
  ExpectApart(regions);
}

// Those of pipelines, as far as the device has lanes for them.
TEST_P(CudaLayoutTest, AreasHaveLinesForPlans) {
  const int ranks = static_cast<int>(GetParam());
  constexpr uint32_t kByDefault = 16;
  const uint64_t lines = std::min(Layout(GetParam()).AreaLines(), Layout(GetParam(), false, kByDefault).AreaLines());
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<plan::Kind>(k);
    if (kind == plan::Kind::kSendRecv && ranks != 2) continue;
    for (const std::string_view algorithm : algo::ChunkedAlgorithms(kind)) {
      if (algorithm != algo::kChunkedDirect) continue;
      auto schedule = algo::GenerateChunked({kind, ranks, 0}, algorithm, {.slices = 4, .produced = true});
      ASSERT_TRUE(schedule.ok());
      EXPECT_LE(uint64_t{schedule->lanes} * schedule->endpoints, lines) << plan::KindName(kind);
    }
  }
}

// Each slot takes a cache line at least.
void ExpectRoom(const plan::Schedule& schedule, const ChannelLayout& channel, const std::string& name) {
  EXPECT_LE(schedule.endpoints, channel.endpoints) << name;
  EXPECT_LE(uint64_t{schedule.slots} * plan::kRotation * channel.lanes * kCacheLine, channel.scratch_bytes) << name;
}

void ExpectRoomForAll(uint32_t ranks, const plan::Placement& placement) {
  const CudaLayout layout = Layout(ranks, !placement.is_flat());
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<plan::Kind>(k);
    if (kind == plan::Kind::kSendRecv) continue;
    for (const std::string_view algorithm : algo::Algorithms(kind, placement)) {
      for (const int root : {0, static_cast<int>(ranks) - 1}) {
        if (root != 0 && !plan::HasRoot(kind)) continue;
        auto schedule = algo::Generate({kind, static_cast<int>(ranks), root}, algorithm, 1, placement);
        ASSERT_TRUE(schedule.ok());
        const std::string name = std::string(plan::KindName(kind)) + " by " + std::string(algorithm);
        ExpectRoom(*schedule, layout.channel, name);
        ExpectRoom(*schedule, layout.Area(0), name);
      }
    }
  }
}

TEST_P(CudaLayoutTest, EveryScheduleHasRoom) { ExpectRoomForAll(GetParam(), {}); }

INSTANTIATE_TEST_SUITE_P(Ranks, CudaLayoutTest, testing::Values(1, 2, 3, 5, 7, 8, 9, 13, 16, 31, 32, 33, 64));

TEST(CudaLayoutOfMachines, EveryScheduleHasRoom) {
  for (const auto& [machines, each] :
       {std::pair{2, 1}, {2, 2}, {2, 4}, {2, 8}, {3, 5}, {4, 2}, {4, 4}, {8, 1}, {13, 3}}) {
    std::vector<int> machine_of;
    for (int rank = 0; rank < machines * each; ++rank) machine_of.push_back(rank / each);
    ExpectRoomForAll(static_cast<uint32_t>(machine_of.size()), plan::Placement::Of(machine_of));
  }
}

// What a rank of 8 takes of a device with the most lanes: with the 1 MiB for calls, no more than 6 MB.
TEST(CudaLayout, IsSmall) {
  constexpr uint64_t kForCalls = 1u << 20;
  EXPECT_LE(CudaLayout::Make(8, kLanes, kScratch, 0, false).bytes + kForCalls, 4'300'000u);
  EXPECT_LE(CudaLayout::Make(8, kLanes, kScratch, 16, false).bytes + kForCalls, 6'000'000u);
}

}  // namespace
}  // namespace axccl::exec
