#include "src/exec/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/algo/algo.h"

namespace axccl::exec {
namespace {

struct Region {
  std::string name;
  uint64_t begin, bytes;
};

void AddControl(const ChannelLayout& channel, const std::string& name, std::vector<Region>* regions) {
  const uint64_t lines = uint64_t{channel.lanes} * channel.endpoints * plan::kRotation;
  regions->push_back({name + " records", channel.records, channel.num_records * sizeof(OpRecord)});
  regions->push_back({name + " lines", channel.lines, lines * sizeof(Line)});
}

// All regions in the block of `owner`. Both directions share the scratch of a pair: only the sender's is used.
std::vector<Region> Regions(const BlockLayout& layout, uint32_t owner) {
  std::vector<Region> regions{{"header", 0, sizeof(BlockHeader)}, {"released", layout.released, layout.ranks}};
  AddControl(layout.channel, "channel", &regions);
  regions.push_back({"calls", layout.calls, kControlCalls * ControlEntry::Bytes(layout.ranks)});
  regions.push_back({"contributions", layout.contributions, 2 * kControlSlots * kControlSlotBytes});
  regions.push_back({"keys", layout.keys, kChannelWords * sizeof(uint64_t)});
  regions.push_back({"slots", layout.slots, kMaxChannels * ChannelSlot::Bytes(layout.ranks)});
  regions.push_back({"created", layout.created, kMaxChannels * OpRecord::kCallWords * sizeof(uint64_t)});
  regions.push_back({"scratch", layout.channel.scratch, layout.channel.scratch_bytes});
  for (uint32_t peer = 0; peer < layout.ranks; ++peer) {
    if (peer == owner) continue;
    const std::string name = "pair " + std::to_string(peer);
    const ChannelLayout sending = layout.Pair(owner, peer, owner), receiving = layout.Pair(peer, owner, owner);
    AddControl(sending, name + " sending", &regions);
    AddControl(receiving, name + " receiving", &regions);
    for (const ChannelLayout& pair : {sending, receiving}) {
      if (pair.apart != 0) regions.push_back({name + " apart", pair.apart, sizeof(Apart)});
    }
    if (sending.apart != 0) continue;
    regions.push_back({name + " scratch", sending.scratch, sending.scratch_bytes});
    for (const ChannelLayout& pair : {sending, receiving})
      regions.push_back({name + " announcements", pair.announcements, 2 * pair.announcement_words * sizeof(uint64_t)});
  }
  return regions;
}

class LayoutTest : public testing::TestWithParam<uint32_t> {};

TEST_P(LayoutTest, RegionsDoNotOverlapAndAreAligned) {
  const uint32_t ranks = GetParam();
  for (const uint32_t lanes : {1u, 2u, 8u}) {
    for (const uint64_t scratch : {1ull, 4096ull, 65536ull, (2ull << 20) + 5}) {
      const BlockLayout layout = BlockLayout::Make(ranks, lanes, scratch, lanes == 2);
      EXPECT_GE(layout.channel.scratch_bytes, scratch);
      EXPECT_EQ(layout.channel.scratch_bytes / plan::kRotation % 64, 0u)
          << "a turn's part of the scratch begins within a line";
      EXPECT_EQ(layout.bytes % 4096, 0u);
      for (uint32_t owner = 0; owner < ranks; owner += std::max(1u, ranks / 3)) {
        std::vector<Region> regions = Regions(layout, owner);
        std::sort(regions.begin(), regions.end(), [](const Region& a, const Region& b) { return a.begin < b.begin; });
        for (size_t i = 0; i + 1 < regions.size(); ++i)
          ASSERT_LE(regions[i].begin + regions[i].bytes, regions[i + 1].begin)
              << regions[i].name << " and " << regions[i + 1].name << ", " << lanes << " lanes, scratch " << scratch;
        ASSERT_LE(regions.back().begin + regions.back().bytes, layout.bytes);
        for (const Region& region : regions) {
          if (region.name != "released") {
            ASSERT_EQ(region.begin % 64, 0u) << region.name;
          }
        }
      }
    }
  }
}

TEST_P(LayoutTest, BothEndsOfAPairSeeTheSameSize) {
  const BlockLayout layout = BlockLayout::Make(GetParam(), 1, 65536);
  for (uint32_t peer = 1; peer < GetParam(); ++peer) {
    const ChannelLayout source = layout.Pair(0, peer, 0), destination = layout.Pair(0, peer, peer);
    EXPECT_EQ(source.endpoints, destination.endpoints);
    EXPECT_EQ(source.lanes, destination.lanes);
    EXPECT_EQ(source.scratch_bytes, destination.scratch_bytes);
  }
}

TEST_P(LayoutTest, LinesAndRecordsStayInTheirRegion) {
  const BlockLayout layout = BlockLayout::Make(GetParam(), 3, 65536);
  const ChannelLayout& channel = layout.channel;
  std::byte* const base = nullptr;
  auto offset = [](const void* p) { return reinterpret_cast<uint64_t>(p); };
  const uint64_t lines_end = channel.lines + 3ull * channel.endpoints * plan::kRotation * sizeof(Line);
  std::vector<uint64_t> seen;
  for (uint32_t lane = 0; lane < 3; ++lane) {
    for (uint32_t endpoint = 0; endpoint < channel.endpoints; ++endpoint) {
      for (uint64_t turn : {uint64_t{0}, uint64_t{1}, ~uint64_t{0} >> 16}) {
        const uint64_t at = offset(channel.LineOf(base, lane, endpoint, turn));
        ASSERT_GE(at, channel.lines);
        ASSERT_LE(at + sizeof(Line), lines_end);
        if (turn < 2) seen.push_back(at);
      }
    }
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end()) << "two endpoints share a line";
  for (uint64_t sequence = 0; sequence < 40; ++sequence) {
    const uint64_t at = offset(channel.RecordOf(base, sequence));
    ASSERT_EQ(at, channel.records + sequence % kRecords * sizeof(OpRecord));
  }
}

// The layout has all endpoints that generators use.
TEST_P(LayoutTest, EveryScheduleFindsItsEndpoints) {
  const int ranks = static_cast<int>(GetParam());
  const BlockLayout layout = BlockLayout::Make(GetParam(), 2, 65536);
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<plan::Kind>(k);
    if (kind == plan::Kind::kSendRecv) continue;
    for (const std::string_view algorithm : algo::Algorithms(kind)) {
      const auto schedule = algo::Generate(plan::Contract{kind, ranks, 0}, algorithm, 2);
      ASSERT_TRUE(schedule.ok());
      EXPECT_LE(schedule.value().endpoints, layout.channel.endpoints) << plan::KindName(kind) << " " << algorithm;
    }
  }
}

TEST_P(LayoutTest, CreatedChannelsHaveRoomForAll) {
  const uint32_t size = GetParam();
  for (const uint32_t lanes : {1u, 8u}) {
    for (const uint64_t scratch : {1ull, 65536ull, 8ull << 20}) {
      uint64_t bytes = 0;
      const ChannelLayout channel = ChannelLayout::Created(size, lanes, scratch, &bytes);
      std::vector<Region> regions;
      AddControl(channel, "channel", &regions);
      regions.push_back({"scratch", channel.scratch, channel.scratch_bytes});
      regions.push_back({"end", bytes, 0});
      for (size_t i = 0; i + 1 < regions.size(); ++i) {
        EXPECT_LE(regions[i].begin + regions[i].bytes, regions[i + 1].begin) << regions[i].name;
        EXPECT_EQ(regions[i].begin % 64, 0u) << regions[i].name;
      }
      EXPECT_EQ(bytes % 4096, 0u);
      const BlockLayout block = BlockLayout::Make(size, lanes, scratch);
      EXPECT_EQ(channel.endpoints, block.channel.endpoints);
      EXPECT_EQ(channel.lanes, block.channel.lanes);
    }
  }
}

// There may be thousands of pipelines, and each takes whole pages of the heap.
TEST(PlanLayout, OfAPipelineOf8RanksIsOnePage) {
  uint64_t bytes = 0;
  const ChannelLayout channel = ChannelLayout::ForPlan(8, 2, 0, kRecordsOfPipeline, &bytes);
  std::vector<Region> regions;
  AddControl(channel, "channel", &regions);
  regions.push_back({"announcements", channel.announcements, 2 * channel.announcement_words * sizeof(uint64_t)});
  regions.push_back({"end", bytes, 0});
  for (size_t i = 0; i + 1 < regions.size(); ++i)
    EXPECT_LE(regions[i].begin + regions[i].bytes, regions[i + 1].begin) << regions[i].name;
  EXPECT_LE(bytes, kPage);
  std::byte* const base = nullptr;
  for (uint64_t sequence = 0; sequence < 40; ++sequence)
    EXPECT_EQ(reinterpret_cast<std::byte*>(channel.RecordOf(base, sequence)) - base,
              static_cast<ptrdiff_t>(sequence % kRecordsOfPipeline * sizeof(OpRecord)));
}

INSTANTIATE_TEST_SUITE_P(Ranks, LayoutTest, testing::Values(1, 2, 3, 5, 8, 13, 31, 32, 33, 64));

// The channels of a pair have few endpoints, one lane, and scratch at the sender only.
TEST(PairLayout, SchedulesOfTwoFitIn) {
  const ChannelLayout pair = BlockLayout::Make(2, 1, 65536).Pair(0, 1, 0);
  for (const auto kind : {plan::Kind::kSendRecv, plan::Kind::kBarrier}) {
    for (const std::string_view algorithm : algo::Algorithms(kind)) {
      const auto schedule = algo::Generate(plan::Contract{kind, 2, 0}, algorithm, 1);
      ASSERT_TRUE(schedule.ok());
      EXPECT_LE(schedule.value().endpoints, pair.endpoints);
      for (const auto& lanes : schedule.value().program) {
        for (const plan::Op& op : lanes[0].ops) {
          for (const auto* operands : {&op.dst, &op.src}) {
            for (const plan::Operand& operand : *operands) {
              EXPECT_TRUE(operand.buffer != plan::Buffer::kScratch || operand.rank == 0) << algorithm;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace axccl::exec
