#include "src/plan/turns.h"

#include <gtest/gtest.h>

#include <set>

namespace axccl::plan {
namespace {

TEST(LineIndex, CountsLinesByCopyEndpointAndLane) {
  std::set<uint64_t> lines;
  for (uint32_t lane = 0; lane < 3; ++lane) {
    for (uint32_t endpoint = 0; endpoint < 5; ++endpoint) {
      for (uint64_t turn = 6; turn < 6 + kRotation; ++turn) {
        EXPECT_TRUE(lines.insert(LineIndex(5, lane, endpoint, turn)).second);
        EXPECT_EQ(LineIndex(5, lane, endpoint, turn), LineIndex(5, lane, endpoint, turn + kRotation));
      }
    }
  }
  EXPECT_EQ(*lines.begin(), 0u);
  EXPECT_EQ(*lines.rbegin() + 1, lines.size());
}

TEST(SlotSets, AreUsedInRotationAndOneMoreNowAndThen) {
  constexpr uint64_t kSets = 3, kBytes = 64, kTurnsPerSet = SlotSets::kTurnsPerSet;
  constexpr SlotSets sets{kBytes, kSets};
  std::set<uint64_t> used;
  for (uint64_t turn = 0; turn < kTurnsPerSet; ++turn) used.insert(sets.OffsetOf(turn));
  EXPECT_EQ(used, (std::set<uint64_t>{0}));
  for (uint64_t turn = kTurnsPerSet; turn < 2 * kTurnsPerSet; ++turn) used.insert(sets.OffsetOf(turn));
  EXPECT_EQ(used, (std::set<uint64_t>{0, kBytes}));
  for (uint64_t turn = 9 * kTurnsPerSet; turn < 9 * kTurnsPerSet + kSets * kRotation; turn += kRotation) {
    EXPECT_EQ(sets.OffsetOf(turn), turn / kRotation % kSets * kBytes);
    EXPECT_EQ(sets.OffsetOf(turn + 1), sets.OffsetOf(turn)) << "the other half, likewise";
  }
  EXPECT_EQ((SlotSets{kBytes, 1}).OffsetOf(100), 0u);
}

constexpr Run RunOf(uint64_t plan, uint64_t slot_bytes, bool complete) {
  return {{7, plan}, slot_bytes, complete, false};
}
static_assert(!NeedsBarrier(Run(), RunOf(1, 64, false)), "nothing has run");
static_assert(!NeedsBarrier(RunOf(1, 64, true), RunOf(2, 128, true)));
static_assert(!NeedsBarrier(RunOf(1, 64, false), RunOf(1, 64, false)), "a plan may follow itself");
static_assert(NeedsBarrier(RunOf(1, 64, false), RunOf(1, 128, false)), "not with slots elsewhere");
static_assert(NeedsBarrier(RunOf(1, 64, false), RunOf(2, 64, true)));
static_assert(NeedsBarrier(RunOf(1, 64, true), RunOf(2, 64, false)));
static_assert(!NeedsBarrier({{7, 3}, 0, false, true}, RunOf(2, 64, false)), "after a barrier");

}  // namespace
}  // namespace axccl::plan
