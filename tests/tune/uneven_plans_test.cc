// The plans for blocks of different sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "src/tune/tune.h"
#include "tests/algo/cases.h"

namespace axccl::tune {
namespace {

using plan::Kind;

constexpr Kind kUnevenKinds[] = {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll, Kind::kGather,
                                 Kind::kScatter};

bool IsMove(const plan::Op& op) { return op.kind == plan::OpKind::kCopy || op.kind == plan::OpKind::kReduce; }

// A rank could not know how long a block is that it moves from slot to slot.
TEST(UnevenPlans, EveryMoveHasABlockWhoseLengthIsKnown) {
  for (const std::vector<int>& machine_of : algo::SomeMachines()) {
    const plan::Placement placement = plan::Placement::Of(machine_of);
    const int ranks = static_cast<int>(machine_of.size());
    for (const Kind kind : kUnevenKinds) {
      for (const int root : {0, plan::HasRoot(kind) ? ranks - 1 : 0}) {
        const std::string_view algorithm = UnevenAlgorithm(kind, Access::kNone, placement);
        auto schedule = algo::Generate({kind, ranks, root}, algorithm, 1, placement);
        ASSERT_TRUE(schedule.ok()) << algorithm;
        EXPECT_EQ(schedule->parts, 1) << algorithm;
        for (const auto& lanes : schedule->program) {
          for (const plan::Op& op : lanes[0].ops) {
            if (!IsMove(op)) continue;
            const bool known = !std::all_of(op.dst.begin(), op.dst.end(), plan::IsSlot) ||
                               !std::all_of(op.src.begin(), op.src.end(), plan::IsSlot);
            EXPECT_TRUE(known) << plan::KindName(kind) << " " << algorithm << " " << algo::Describe(placement);
          }
        }
      }
    }
  }
}

TEST(UnevenPlans, AllGathersBetweenMachinesCrossOnce) {
  const plan::Placement two = plan::Placement::Of(std::vector<int>{0, 0, 1}), apart = plan::Placement::Of({{0, 1, 2}});
  EXPECT_EQ(UnevenAlgorithm(Kind::kAllGather, Access::kNone, two), "hierarchical");
  EXPECT_EQ(UnevenAlgorithm(Kind::kAllToAll, Access::kNone, two), "oneshot");
  EXPECT_EQ(UnevenAlgorithm(Kind::kAllGather, Access::kNone, apart), "oneshot");
  EXPECT_EQ(UnevenAlgorithm(Kind::kAllGather, Access::kCall, {}), "oneshot");
  EXPECT_EQ(UnevenAlgorithm(Kind::kAllGather, Access::kMapped, {}), "direct");
}

}  // namespace
}  // namespace axccl::tune
