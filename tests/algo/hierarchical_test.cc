// Plans in two levels: proved by the verifier wherever ranks are, and what crosses between machines counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "src/verify/verify.h"
#include "tests/algo/cases.h"

namespace axccl::algo {
namespace {

using plan::Buffer;
using plan::Contract;
using plan::Kind;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Placement;
using plan::Schedule;

// `machines` of so many ranks each, one after the other.
Placement Even(int machines, int ranks_each) {
  std::vector<int> machine_of;
  for (int i = 0; i < machines * ranks_each; ++i) machine_of.push_back(i / ranks_each);
  return Placement::Of(machine_of);
}

Schedule Make(Kind kind, const Placement& placement, int root = 0, std::string_view algorithm = kHierarchical) {
  return Generate(Contract{kind, placement.ranks(), root}, algorithm, 1, placement).value();
}

// What leaves and enters each machine in a turn: blocks of data, and signals.
struct Traffic {
  std::vector<double> out, in;
  std::vector<int> messages;
};

// A slot written for a rank elsewhere, its own or the writer's, crosses once for each rank that reads it.
Traffic Count(const Schedule& s, const Placement& p) {
  Traffic t{std::vector<double>(p.machines()), std::vector<double>(p.machines()), std::vector<int>(p.machines())};
  std::map<std::pair<int, int>, std::set<int>> readers;
  for (int r = 0; r < p.ranks(); ++r) {
    for (const Op& op : s.program[r][0].ops) {
      for (const Operand& o : op.src) {
        for (int i = 0; o.buffer == Buffer::kScratch && i < o.parts; ++i) readers[{o.rank, o.part + i}].insert(r);
      }
    }
  }
  for (int r = 0; r < p.ranks(); ++r) {
    for (const Op& op : s.program[r][0].ops) {
      if (op.kind == OpKind::kSignal) {
        for (int q = 0; q < p.ranks(); ++q) {
          t.messages[p.MachineOf(r)] += (op.peer == q || op.peer == plan::kAllPeers) && p.Apart(q, r);
        }
      }
      for (const Operand& o : op.dst) {
        for (int i = 0; o.buffer == Buffer::kScratch && i < o.parts; ++i) {
          for (int q : readers[{o.rank, o.part + i}]) {
            if (!p.Apart(q, r)) continue;
            t.out[p.MachineOf(r)] += 1.0 / s.parts;
            t.in[p.MachineOf(q)] += 1.0 / s.parts;
          }
        }
      }
    }
  }
  return t;
}

TEST(Hierarchical, IsProvedWhereverRanksAre) {
  std::vector<Placement> placements;
  for (const auto& machine_of : SomeMachines()) placements.push_back(Placement::Of(machine_of));
  placements.push_back(Even(2, 8));
  placements.push_back(Even(4, 4));
  placements.push_back(Even(5, 3));
  for (const Placement& placement : placements) {
    ForEachHierarchical(placement.ranks(), [&](const Contract& contract) {
      for (int lanes : {1, 2}) {
        SCOPED_TRACE(Describe(contract, kHierarchical, lanes) + " " + Describe(placement));
        Result<Schedule> schedule = Generate(contract, kHierarchical, lanes, placement);
        ASSERT_TRUE(schedule.ok()) << schedule.status().message();
        EXPECT_EQ(schedule->placement, placement);
        EXPECT_EQ(*schedule, Generate(contract, kHierarchical, lanes, placement).value());
        verify::Facts facts;
        const Status status = verify::Verify(*schedule, &facts);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(facts.complete, Complete(*schedule));
        EXPECT_EQ(facts.complete, !plan::HasRoot(contract.kind));
      }
    });
  }
}

TEST(Hierarchical, IsForPlacementsWithLevelsOnly) {
  for (const Placement& placement : {Placement(), Even(1, 4), Even(4, 1)}) {
    const auto& known = Algorithms(Kind::kAllReduce, placement);
    EXPECT_EQ(std::count(known.begin(), known.end(), kHierarchical), 0);
    const auto result = Generate(Contract{Kind::kAllReduce, 4, 0}, kHierarchical, 1, placement);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.status().message().find("several machines"), std::string_view::npos) << result.status().message();
  }
  const auto result = Generate(Contract{Kind::kAllReduce, 5, 0}, "ring", 1, Even(2, 2));
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("placement of 4 ranks"), std::string_view::npos) << result.status().message();
}

// Algorithms that do not mind machines have one schedule wherever ranks are.
TEST(Hierarchical, LeavesTheOthersAlone) {
  ForEachAlgorithm(4, [](const Contract& contract, std::string_view algorithm) {
    EXPECT_EQ(Generate(contract, algorithm, 2, Even(2, 2)).value(), Generate(contract, algorithm, 2).value());
  });
}

TEST(HierarchicalVolume, EveryByteCrossesOnceAndFoldsDoNotCrossTwice) {
  for (const auto& [h, g] : {std::pair(2, 2), std::pair(2, 4), std::pair(3, 2), std::pair(4, 8), std::pair(7, 3)}) {
    const Placement p = Even(h, g);
    const double n = p.ranks();
    const Traffic all_reduce = Count(Make(Kind::kAllReduce, p), p), all_gather = Count(Make(Kind::kAllGather, p), p),
                  reduce_scatter = Count(Make(Kind::kReduceScatter, p), p), all_to_all = Count(Make(Kind::kAllToAll, p), p);
    for (int m = 0; m < h; ++m) {
      SCOPED_TRACE(std::to_string(h) + " x " + std::to_string(g) + " machine " + std::to_string(m));
      for (const auto way : {&Traffic::out, &Traffic::in}) {
        EXPECT_NEAR((all_reduce.*way)[m], 2.0 * (h - 1) / h, 1e-9);
        EXPECT_NEAR((all_gather.*way)[m], n - g, 1e-9);
        EXPECT_NEAR((reduce_scatter.*way)[m], n - g, 1e-9);
        EXPECT_NEAR((all_to_all.*way)[m], g * (n - g), 1e-9);
      }
      EXPECT_EQ(all_reduce.messages[m], 2 * g * (h - 1));
      EXPECT_EQ(all_gather.messages[m], g * (h - 1));
      EXPECT_EQ(reduce_scatter.messages[m], n - g);
      EXPECT_EQ(all_to_all.messages[m], n - g);
    }
  }
}

// What each machine must get at least, whatever lies where.
TEST(HierarchicalVolume, UnevenMachinesGetNoMoreThanTheyNeed) {
  for (const auto& machine_of : SomeMachines()) {
    const Placement p = Placement::Of(machine_of);
    SCOPED_TRACE(Describe(p));
    const int n = p.ranks(), h = p.machines();
    const Traffic all_reduce = Count(Make(Kind::kAllReduce, p), p), all_gather = Count(Make(Kind::kAllGather, p), p),
                  reduce_scatter = Count(Make(Kind::kReduceScatter, p), p);
    for (int m = 0; m < h; ++m) {
      const int mine = static_cast<int>(p.RanksOf(m).size());
      EXPECT_NEAR(all_reduce.in[m], 2.0 * (h - 1) / h, 1e-9);
      EXPECT_NEAR(all_reduce.out[m], 2.0 * (h - 1) / h, 1e-9);
      EXPECT_NEAR(all_gather.in[m], n - mine, 1e-9);
      EXPECT_NEAR(all_gather.out[m], mine * (h - 1), 1e-9);
      EXPECT_NEAR(reduce_scatter.in[m], mine * (h - 1), 1e-9);
      EXPECT_NEAR(reduce_scatter.out[m], n - mine, 1e-9);
    }
  }
}

TEST(HierarchicalVolume, ChainsCarryTheDataOnceOverEveryLink) {
  for (const auto& machine_of : SomeMachines()) {
    const Placement p = Placement::Of(machine_of);
    for (int root = 0; root < p.ranks(); ++root) {
      SCOPED_TRACE(Describe(p) + " root " + std::to_string(root));
      const Traffic broadcast = Count(Make(Kind::kBroadcast, p, root), p), reduce = Count(Make(Kind::kReduce, p, root), p);
      const Traffic gather = Count(Make(Kind::kGather, p, root), p), scatter = Count(Make(Kind::kScatter, p, root), p);
      for (int m = 0; m < p.machines(); ++m) {
        const bool at_root = m == p.MachineOf(root);
        const auto mine = static_cast<double>(p.RanksOf(m).size());
        const bool ends = m == (p.MachineOf(root) + p.machines() - 1) % p.machines();
        EXPECT_NEAR(broadcast.in[m], at_root ? 0 : 1, 1e-9);
        EXPECT_NEAR(broadcast.out[m], ends ? 0 : 1, 1e-9);
        EXPECT_NEAR(reduce.in[m], ends ? 0 : 1, 1e-9);
        EXPECT_NEAR(reduce.out[m], at_root ? 0 : 1, 1e-9);
        EXPECT_NEAR(gather.out[m], at_root ? 0 : mine, 1e-9);
        EXPECT_NEAR(scatter.in[m], at_root ? 0 : mine, 1e-9);
      }
    }
  }
}

// One by one to every rank elsewhere, against one to every machine.
TEST(HierarchicalVolume, ABarrierIsAMessageToEveryMachine) {
  const Placement p = Even(3, 4);
  EXPECT_EQ(Count(Make(Kind::kBarrier, p), p).messages, std::vector<int>(3, 2));
  EXPECT_EQ(Count(Make(Kind::kBarrier, p, 0, "oneshot"), p).messages, std::vector<int>(3, 4 * 8));
}

TEST(PlacementTest, IsCanonical) {
  const std::vector<int> machines = {7, 3, 7, 9}, alike = {1, 0, 1, 4}, other = {0, 0, 1, 2}, same = {5, 5, 5};
  const Placement p = Placement::Of(machines);
  EXPECT_EQ(p, Placement::Of(alike));
  EXPECT_NE(p, Placement::Of(other));
  EXPECT_EQ(Placement::Of(same), Placement());
  EXPECT_EQ(p.machines(), 3);
  EXPECT_EQ(p.RanksOf(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(p.LocalIndex(2), 1);
  EXPECT_EQ(p.MachineOf(3), 2);
  EXPECT_TRUE(p.Apart(1, 3));
  EXPECT_FALSE(p.Apart(0, 2));
  EXPECT_EQ(p.Fewest(4), 1);
  EXPECT_EQ(p.Most(4), 2);
  EXPECT_TRUE(p.has_levels());
  EXPECT_FALSE(Even(3, 1).has_levels());
  EXPECT_EQ(Placement().Most(5), 5);
  EXPECT_EQ(Placement().Fewest(5), 5);
}

}  // namespace
}  // namespace axccl::algo
