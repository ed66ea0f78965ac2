// Plans in two levels: the verifier proves them for all placements of ranks, and the traffic between machines is
// counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <string>
#include <tuple>
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

Schedule Make(Kind kind, const Placement& placement, int root = 0, std::string_view algorithm = kHierarchical) {
  return Generate(Contract{kind, placement.ranks(), root}, algorithm, 1, placement).value();
}

// What leaves and enters each machine in a turn: blocks of data, and signals.
struct Traffic {
  std::vector<double> out, in;
  std::vector<int> messages;
};

// A slot that is written for a rank on another machine crosses once for each rank that reads it, whether it is that
// rank's slot or the writer's.
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

// Numbers of machines around the powers of two, sizes that are not multiples of each other, ranks in mixed order.
std::vector<Placement> ManyPlacements() {
  std::vector<Placement> placements;
  for (const auto& machine_of : SomeMachines()) placements.push_back(Placement::Of(machine_of));
  for (const int h : {2, 3, 4, 5, 6, 7, 8, 9}) placements.push_back(Even(h, 2));
  placements.push_back(Even(2, 8));
  placements.push_back(Even(4, 4));
  placements.push_back(Even(5, 3));
  const std::vector<std::vector<int>> uneven = {
      {0, 1, 2, 3, 4, 5, 6, 0},
      {0, 0, 0, 0, 0, 1, 2, 3, 4},
      {0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 3},
      {3, 1, 2, 0, 3, 1, 2, 0, 1, 1, 2, 4, 4},
      {0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0, 5},
  };
  for (const auto& machine_of : uneven) placements.push_back(Placement::Of(machine_of));
  return placements;
}

TEST(Hierarchical, IsProvedForAllPlacements) {
  for (const Placement& placement : ManyPlacements()) {
    ForEachHierarchical(placement.ranks(), [&](const Contract& contract, std::string_view algorithm) {
      for (int lanes : {1, 2}) {
        SCOPED_TRACE(Describe(contract, algorithm, lanes) + " " + Describe(placement));
        Result<Schedule> schedule = Generate(contract, algorithm, lanes, placement);
        ASSERT_TRUE(schedule.ok()) << schedule.status().message();
        EXPECT_EQ(schedule->algorithm, algorithm);
        EXPECT_EQ(schedule->placement, placement);
        EXPECT_EQ(*schedule, Generate(contract, algorithm, lanes, placement).value());
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
    const auto known = Algorithms(Kind::kAllReduce, placement);
    for (std::string_view algorithm : HierarchicalAlgorithms(Kind::kAllReduce)) {
      EXPECT_EQ(std::count(known.begin(), known.end(), algorithm), 0);
      const auto result = Generate(Contract{Kind::kAllReduce, 4, 0}, algorithm, 1, placement);
      ASSERT_FALSE(result.ok());
      EXPECT_NE(result.status().message().find("several machines"), std::string_view::npos)
          << result.status().message();
    }
  }
  const auto result = Generate(Contract{Kind::kAllReduce, 5, 0}, "ring", 1, Even(2, 2));
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("placement of 4 ranks"), std::string_view::npos)
      << result.status().message();
}

// Algorithms that do not depend on machines have the same schedule for all placements.
TEST(Hierarchical, LeavesOtherAlgorithmsUnchanged) {
  ForEachAlgorithm(4, [](const Contract& contract, std::string_view algorithm) {
    EXPECT_EQ(Generate(contract, algorithm, 2, Even(2, 2)).value(), Generate(contract, algorithm, 2).value());
  });
}

TEST(HierarchicalVolume, EveryByteCrossesOnceAndFoldsDoNotCrossTwice) {
  for (const auto& [h, g] : {std::pair(2, 2), std::pair(2, 4), std::pair(3, 2), std::pair(4, 8), std::pair(7, 3)}) {
    const Placement p = Even(h, g);
    const double n = p.ranks();
    const Traffic all_reduce = Count(Make(Kind::kAllReduce, p), p), all_gather = Count(Make(Kind::kAllGather, p), p),
                  reduce_scatter = Count(Make(Kind::kReduceScatter, p), p),
                  all_to_all = Count(Make(Kind::kAllToAll, p), p);
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

// The minimum that each machine must get, for every placement.
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
      const Traffic broadcast = Count(Make(Kind::kBroadcast, p, root), p),
                    reduce = Count(Make(Kind::kReduce, p, root), p);
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

// Separate signals to every rank on other machines, compared with one to every machine.
TEST(HierarchicalVolume, ABarrierIsAMessageToEveryMachine) {
  const Placement p = Even(3, 4);
  EXPECT_EQ(Count(Make(Kind::kBarrier, p), p).messages, std::vector<int>(3, 2));
  EXPECT_EQ(Count(Make(Kind::kBarrier, p, 0, "oneshot"), p).messages, std::vector<int>(3, 4 * 8));
}

int Log2Up(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

int FarHops(const Schedule& s, const Placement& p) {
  return LongestChain(s, [&p](int a, int b) { return p.Apart(a, b); });
}

// For any number of rounds, what a machine lacks enters it once, and folds that others need leave it once.
TEST(HierarchicalVolume, PassingOnCarriesNoByteTwice) {
  for (const Placement& p : ManyPlacements()) {
    SCOPED_TRACE(Describe(p));
    const int n = p.ranks(), h = p.machines();
    for (const char* algorithm :
         {"hierarchical", "hierarchical_ring", "hierarchical_rhd", "hierarchical_bruck", "hierarchical_leader"}) {
      SCOPED_TRACE(algorithm);
      const auto has = [&](Kind kind) {
        const auto& names = HierarchicalAlgorithms(kind);
        return std::count(names.begin(), names.end(), algorithm) != 0;
      };
      const bool by_gather =
          algorithm == std::string_view("hierarchical_bruck") || algorithm == std::string_view("hierarchical_leader");
      const Traffic all_reduce = Count(Make(Kind::kAllReduce, p, 0, algorithm), p);
      for (int m = 0; m < h; ++m) {
        const int mine = static_cast<int>(p.RanksOf(m).size());
        EXPECT_NEAR(all_reduce.in[m], by_gather ? h - 1 : 2.0 * (h - 1) / h, 1e-9);
        EXPECT_NEAR(all_reduce.out[m], by_gather ? h - 1 : 2.0 * (h - 1) / h, 1e-9);
        if (has(Kind::kAllGather)) {
          EXPECT_NEAR(Count(Make(Kind::kAllGather, p, 0, algorithm), p).in[m], n - mine, 1e-9);
        }
        if (has(Kind::kReduceScatter)) {
          EXPECT_NEAR(Count(Make(Kind::kReduceScatter, p, 0, algorithm), p).out[m], n - mine, 1e-9);
        }
      }
    }
  }
}

TEST(HierarchicalVolume, HopsAndMessagesAreThoseOfTheForm) {
  for (const auto& [h, g] : {std::pair(2, 2), std::pair(3, 2), std::pair(4, 3), std::pair(6, 2), std::pair(8, 2)}) {
    SCOPED_TRACE(std::to_string(h) + " x " + std::to_string(g));
    const Placement p = Even(h, g);
    struct {
      Kind kind;
      const char* algorithm;
      int hops;
      int messages;  // per machine
    } const kCases[] = {
        {Kind::kAllReduce, "hierarchical", 2, 2 * g * (h - 1)},
        {Kind::kAllReduce, "hierarchical_ring", 2 * (h - 1), 2 * g * (h - 1)},
        {Kind::kAllReduce, "hierarchical_rhd", 2 * Log2Up(h), 2 * g * Log2Up(h)},
        {Kind::kAllReduce, "hierarchical_bruck", Log2Up(h), g * Log2Up(h)},
        {Kind::kAllReduce, "hierarchical_leader", Log2Up(h), Log2Up(h)},
        {Kind::kAllGather, "hierarchical_ring", h - 1, g * (h - 1)},
        {Kind::kAllGather, "hierarchical_bruck", Log2Up(h), g * Log2Up(h)},
        {Kind::kReduceScatter, "hierarchical_ring", h - 1, g * (h - 1)},
        {Kind::kReduceScatter, "hierarchical_rhd", Log2Up(h), g * Log2Up(h)},
        {Kind::kAllToAll, "hierarchical", 1, g * g * (h - 1) / g},
        {Kind::kAllToAll, "hierarchical_bruck", Log2Up(h), g * Log2Up(h)},
        {Kind::kBarrier, "hierarchical", 1, h - 1},
        {Kind::kBarrier, "hierarchical_bruck", Log2Up(h), Log2Up(h)},
    };
    for (const auto& c : kCases) {
      SCOPED_TRACE(std::string(plan::KindName(c.kind)) + " " + c.algorithm);
      const Schedule s = Make(c.kind, p, 0, c.algorithm);
      // If the number is not a power of two, the last round may not continue any chain of the round before.
      EXPECT_LE(FarHops(s, p), c.hops);
      if (std::has_single_bit(static_cast<unsigned>(h))) {
        EXPECT_EQ(FarHops(s, p), c.hops);
      }
      EXPECT_EQ(Count(s, p).messages, std::vector<int>(h, c.messages));
    }
  }
}

TEST(HierarchicalVolume, ARingHasTwoNeighbours) {
  for (const Placement& p : ManyPlacements()) {
    for (Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter}) {
      const Schedule s = Make(kind, p, 0, "hierarchical_ring");
      for (int r = 0; r < p.ranks(); ++r) {
        for (const Op& op : s.program[r][0].ops) {
          if (op.kind != OpKind::kSignal || !p.Apart(op.peer, r)) continue;
          const int distance = (p.MachineOf(op.peer) - p.MachineOf(r) + p.machines()) % p.machines();
          EXPECT_TRUE(distance == 1 || distance == p.machines() - 1) << Describe(p);
        }
      }
    }
  }
}

// Both trees of a column together are as deep as binary trees, and no machine sends more than two blocks' worth.
TEST(HierarchicalVolume, TreesAreShallowAndShareTheWork) {
  for (const auto& [h, g] : {std::pair(2, 2), std::pair(4, 2), std::pair(5, 3), std::pair(8, 2), std::pair(13, 2)}) {
    const Placement p = Even(h, g);
    SCOPED_TRACE(std::to_string(h) + " x " + std::to_string(g));
    const Schedule all_reduce = Make(Kind::kAllReduce, p, 0, "hierarchical_tree");
    EXPECT_LE(FarHops(all_reduce, p), 2 * Log2Up(h + 1));
    for (double out : Count(all_reduce, p).out) EXPECT_LE(out, 2.0 + 1e-9);
    for (int root = 0; root < p.ranks(); ++root) {
      const Schedule broadcast = Make(Kind::kBroadcast, p, root, "hierarchical_tree");
      const Schedule reduce = Make(Kind::kReduce, p, root, "hierarchical_tree");
      EXPECT_LE(FarHops(broadcast, p), Log2Up(h) + 1);
      EXPECT_LE(FarHops(reduce, p), Log2Up(h) + 1);
      const Traffic down = Count(broadcast, p), up = Count(reduce, p);
      for (int m = 0; m < h; ++m) {
        EXPECT_LE(down.out[m], 1.0 + 1e-9);
        EXPECT_NEAR(down.in[m], m == p.MachineOf(root) ? 0 : 1, 1e-9);
        EXPECT_LE(up.in[m], 1.0 + 1e-9);
        EXPECT_NEAR(up.out[m], m == p.MachineOf(root) ? 0 : 1, 1e-9);
      }
    }
  }
}

// A block for another machine crosses once for each bit of the distance.
TEST(HierarchicalVolume, BundlesCrossOnceForEveryBit) {
  for (const int h : {2, 3, 5, 8}) {
    const Placement p = Even(h, 3);
    int bits = 0;
    for (int d = 1; d < h; ++d) bits += std::popcount(static_cast<unsigned>(d));
    const Traffic t = Count(Make(Kind::kAllToAll, p, 0, "hierarchical_bruck"), p);
    for (int m = 0; m < h; ++m) {
      EXPECT_NEAR(t.out[m], 9 * bits, 1e-9) << h;
      EXPECT_NEAR(t.in[m], 9 * bits, 1e-9) << h;
    }
  }
}

// What a rank does in a turn: its signals and waits, and between these, how many parts it writes to which rank; ranks
// are relative to the rank `on` places before it.
std::vector<std::tuple<OpKind, int, int, int>> DoneBy(const Schedule& s, int rank, int on) {
  const int n = s.contract.ranks;
  std::vector<std::tuple<OpKind, int, int, int>> done;
  std::map<int, int> written;
  const auto before = [&](int peer) { return (peer - on + n) % n; };
  for (const Op& op : s.program[rank][0].ops) {
    for (const Operand& o : op.dst) written[before(o.rank)] += o.parts;
    if (op.kind != OpKind::kSignal && op.kind != OpKind::kWait) continue;
    for (const auto& [peer, parts] : std::exchange(written, {})) done.push_back({OpKind::kCopy, peer, parts, 0});
    done.push_back({op.kind, before(op.peer), op.endpoint, op.value});
  }
  for (const auto& [peer, parts] : written) done.push_back({OpKind::kCopy, peer, parts, 0});
  return done;
}

// With machines of one size, every machine does what its predecessor does, shifted by one machine, so the load is
// equal.
TEST(Hierarchical, AllMachinesOnACircleBehaveAlike) {
  for (const auto& [h, g] : {std::pair(3, 2), std::pair(4, 2), std::pair(5, 3)}) {
    const Placement p = Even(h, g);
    ForEachHierarchical(p.ranks(), [&, g = g](const Contract& contract, std::string_view algorithm) {
      if (plan::HasRoot(contract.kind) || algorithm == "hierarchical_tree") return;
      const Schedule s = Generate(contract, algorithm, 1, p).value();
      for (int r = 0; r < p.ranks(); ++r)
        EXPECT_EQ(DoneBy(s, r, 0), DoneBy(s, (r + g) % p.ranks(), g))
            << Describe(contract, algorithm, 1) << " rank " << r;
    });
  }
}

// Each rank needs only a few endpoints if it has one counterpart on every other machine, instead of one for every rank.
TEST(Hierarchical, EqualMachinesNeedFewEndpoints) {
  const Placement p = Even(8, 4);
  ForEachHierarchical(p.ranks(), [&](const Contract& contract, std::string_view algorithm) {
    if (plan::HasRoot(contract.kind)) return;
    EXPECT_LE(Generate(contract, algorithm, 1, p)->endpoints, 4 + 7) << Describe(contract, algorithm, 1);
  });
}

// Bundles of many machines take more slots than can be numbered; then there is no such schedule.
TEST(Hierarchical, BundlesAreNotOfferedWhereTheirSlotsDoNotFit) {
  std::vector<int> machine_of;
  for (int m = 0; m < 64; ++m) machine_of.push_back(m);
  for (int i = 0; i < 60; ++i) machine_of.push_back(0);
  const Placement lopsided = Placement::Of(machine_of);
  const auto offers = [](const Placement& p) {
    const auto names = Algorithms(Kind::kAllToAll, p);
    return std::count(names.begin(), names.end(), "hierarchical_bruck") != 0;
  };
  EXPECT_FALSE(offers(lopsided));
  EXPECT_TRUE(offers(Even(64, 2)));
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
