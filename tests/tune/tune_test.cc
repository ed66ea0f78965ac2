// The choice is sensible where the answer is obvious, always admissible, and the same on every rank.
#include "src/tune/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "src/plan/region.h"
#include "src/verify/verify.h"
#include "tests/algo/cases.h"

namespace axccl::tune {
namespace {

using plan::Contract;
using plan::Kind;

constexpr uint64_t kScratch = 1u << 20;
constexpr uint64_t kKi = 1u << 10, kMi = 1u << 20;

std::unique_ptr<Chooser> MakeChooser(std::string_view filter = "", uint64_t scratch = kScratch, int max_lanes = 1,
                                     cost::Machine machine = {}) {
  Result<std::unique_ptr<Chooser>> chooser = Chooser::Create(machine, filter, scratch, max_lanes);
  EXPECT_TRUE(chooser.ok()) << chooser.status().message();
  return chooser.ok() ? std::move(chooser).value() : nullptr;
}

Query Ask(Kind kind, int ranks, uint64_t bytes, Access access = Access::kNone, int root = 0) {
  return Query{Contract{kind, ranks, root}, bytes, DataType::kFloat32, access};
}

void ExpectSame(const Choice& a, const Choice& b) {
  EXPECT_EQ(a.algorithm, b.algorithm);
  EXPECT_EQ(a.lanes, b.lanes);
  EXPECT_EQ(a.tile_bytes, b.tile_bytes);
  EXPECT_EQ(a.seconds, b.seconds);
}

// Calls f for a wide range of queries.
template <class F>
void ForEachQuery(F f) {
  for (int k = 0; k < plan::kNumKinds; ++k) {
    for (int ranks : {1, 2, 3, 8, 16}) {
      const auto kind = static_cast<Kind>(k);
      if (kind == Kind::kSendRecv && ranks != 2) continue;
      for (Access access : {Access::kNone, Access::kCall, Access::kMapped}) {
        for (uint64_t bytes : {uint64_t{0}, uint64_t{8}, 4 * kKi, 100 * kKi + 4, 8 * kMi, uint64_t{5} << 32}) {
          f(Ask(kind, ranks, bytes, access));
        }
      }
    }
  }
}

TEST(Choose, SmallMessagesTakeOneHop) {
  const auto chooser = MakeChooser();
  for (Access access : {Access::kNone, Access::kCall, Access::kMapped}) {
    for (int ranks : {2, 4, 8}) {
      for (Kind kind : {Kind::kAllReduce, Kind::kBroadcast, Kind::kAllGather, Kind::kReduceScatter, Kind::kReduce}) {
        EXPECT_EQ(chooser->Choose(Ask(kind, ranks, 8, access)).algorithm, "oneshot") << KindName(kind) << ranks;
      }
    }
  }
}

TEST(Choose, LargeMappedMessagesAreNotStaged) {
  const auto chooser = MakeChooser();
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<Kind>(k);
    if (kind == Kind::kBarrier) continue;
    const Choice choice = chooser->Choose(Ask(kind, 2, 16 * kMi, Access::kMapped));
    EXPECT_EQ(choice.algorithm, "direct") << plan::KindName(kind);
    EXPECT_EQ(choice.tile_bytes, 0u);
  }
}

TEST(Choose, RanksThatWouldShareCacheLinesPullAndThoseThatWouldSharePagesPush) {
  const auto chooser = MakeChooser();
  for (int ranks : {2, 4, 8}) {
    Query query = Ask(Kind::kAllGather, ranks, 16 * kMi, Access::kMapped);
    EXPECT_EQ(chooser->Choose(query).algorithm, "direct") << ranks;
    query.short_runs = true;
    EXPECT_EQ(chooser->Choose(query).algorithm, "pull") << ranks;
    EXPECT_EQ(MakeChooser("direct")->Choose(query).algorithm, "direct") << ranks;
    query.contract.kind = Kind::kAllToAll;
    EXPECT_EQ(chooser->Choose(query).algorithm, "direct") << ranks;
    query.split_rows = true;
    EXPECT_EQ(chooser->Choose(query).algorithm, "push") << ranks;
    EXPECT_EQ(MakeChooser("direct")->Choose(query).algorithm, "direct") << ranks;
    query.contract.kind = Kind::kReduceScatter;
    for (bool group_order : {false, true}) {
      query.group_order = group_order;
      EXPECT_EQ(chooser->Choose(query).algorithm, "push") << ranks;
    }
    query.contract.kind = Kind::kScatter;
    EXPECT_EQ(chooser->Choose(query).algorithm, "direct") << ranks;
  }
}

// A rank that was stopped might write into plain memory of another process much later, when the application uses that
// memory again; such memory cannot be taken back. A filter is no exception.
TEST(Choose, RanksThatReadByCallNeverWriteIntoOthersBuffers) {
  constexpr Access access = Access::kCall;
  for (const char* only : {"", "direct", "push", "pull", "direct,ring", "push;allreduce:direct", "^oneshot,twoshot"}) {
    const auto chooser = MakeChooser(only, kScratch, 2);
    for (int k = 0; k < plan::kNumKinds; ++k) {
      const auto kind = static_cast<Kind>(k);
      for (int ranks = 2; ranks <= (kind == Kind::kSendRecv ? 2 : 8); ++ranks) {
        for (int root = 0; root < (plan::HasRoot(kind) ? ranks : 1); ++root) {
          std::map<std::string_view, bool> pushes;
          for (uint64_t bytes = 0; bytes <= 64 * kMi; bytes = bytes * 4 + 1) {
            for (const int look : {0, 1, 2, 3}) {
              Query query = Ask(kind, ranks, bytes, access, root);
              query.group_order = look == 1;
              query.short_runs = look == 2;
              query.split_rows = look == 3;
              const Choice choice = chooser->Choose(query);
              const auto [known, fresh] = pushes.try_emplace(choice.algorithm);
              if (fresh)
                known->second = plan::Pushes(algo::Generate(query.contract, choice.algorithm, choice.lanes).value());
              EXPECT_FALSE(known->second)
                  << only << " " << plan::KindName(kind) << " " << ranks << " " << bytes << ": " << choice.algorithm;
            }
          }
          if (kind == Kind::kBarrier) continue;
          const std::string_view direct = algo::ReadingAlgorithm(kind);
          EXPECT_FALSE(plan::Pushes(algo::Generate(Contract{kind, ranks, root}, direct, 2).value())) << direct;
        }
      }
    }
  }
}

TEST(Choose, LargeUnmappedAllReduceIsReducedOncePerByte) {
  const auto chooser = MakeChooser();
  for (int ranks : {2, 4, 8}) {
    EXPECT_EQ(chooser->Choose(Ask(Kind::kAllReduce, ranks, 16 * kMi)).algorithm, "twoshot") << ranks;
  }
}

TEST(Choose, DirectNeedsAccess) {
  const auto chooser = MakeChooser("direct");
  EXPECT_EQ(chooser->Choose(Ask(Kind::kAllReduce, 2, 8, Access::kMapped)).algorithm, "direct");
  EXPECT_EQ(chooser->Choose(Ask(Kind::kAllReduce, 2, 8, Access::kCall)).algorithm, "pull");
  EXPECT_EQ(chooser->Choose(Ask(Kind::kAllToAll, 2, 8, Access::kCall)).algorithm, "direct") << "only reads";
  EXPECT_NE(chooser->Choose(Ask(Kind::kAllReduce, 2, 16 * kMi, Access::kNone)).algorithm, "direct");
}

TEST(Choose, SlowCallsAreAvoidedAndFastOnesTaken) {
  cost::Machine slow, fast;
  slow.call_bytes_per_second = 1e8;
  fast.call_bytes_per_second = 1e12;
  const Query query = Ask(Kind::kAllGather, 2, 16 * kMi, Access::kCall);
  EXPECT_NE(MakeChooser("", kScratch, 1, slow)->Choose(query).algorithm, "pull");
  EXPECT_EQ(MakeChooser("", kScratch, 1, fast)->Choose(query).algorithm, "pull");
}

TEST(Choose, TheFilterDecidesIfItLeavesCandidates) {
  EXPECT_EQ(MakeChooser("ring")->Choose(Ask(Kind::kAllReduce, 4, 8)).algorithm, "ring");
  EXPECT_EQ(MakeChooser("Tree")->Choose(Ask(Kind::kAllReduce, 4, 64 * kMi)).algorithm, "tree");
  EXPECT_NE(MakeChooser("^oneshot")->Choose(Ask(Kind::kAllReduce, 4, 8)).algorithm, "oneshot");
  const auto mixed = MakeChooser("allreduce:rhd;allgather:bruck");
  EXPECT_EQ(mixed->Choose(Ask(Kind::kAllReduce, 4, 8)).algorithm, "rhd");
  EXPECT_EQ(mixed->Choose(Ask(Kind::kAllGather, 4, 8)).algorithm, "bruck");
  EXPECT_EQ(mixed->Choose(Ask(Kind::kBroadcast, 4, 8)).algorithm, "oneshot");
}

TEST(Choose, AFilterThatLeavesNothingIsIgnored) {
  ExpectSame(MakeChooser("bruck")->Choose(Ask(Kind::kAllReduce, 4, 8)),
             MakeChooser()->Choose(Ask(Kind::kAllReduce, 4, 8)));
  ExpectSame(MakeChooser("nvls")->Choose(Ask(Kind::kAllReduce, 4, kMi)),
             MakeChooser()->Choose(Ask(Kind::kAllReduce, 4, kMi)));
  EXPECT_EQ(MakeChooser("ring")->Choose(Ask(Kind::kBarrier, 4, 0)).algorithm, "oneshot");
}

TEST(Choose, GroupOrderPrecedesTheFilter) {
  for (const char* filter : {"", "ring", "tree,pairwise,rhd", "direct,ring", "oneshot,ring"}) {
    const auto chooser = MakeChooser(filter);
    ForEachQuery([&](Query query) {
      const std::string_view freely = chooser->Choose(query).algorithm;
      query.group_order = true;
      const std::string_view taken = chooser->Choose(query).algorithm;
      if (!plan::Reduces(query.contract.kind) || query.contract.ranks == 1) {
        EXPECT_EQ(taken, freely);
      } else if (query.contract.ranks > 2) {
        EXPECT_TRUE((std::set<std::string_view>{"direct", "pull", "oneshot", "twoshot"}.contains(taken))) << taken;
        if (std::string_view(filter) == "oneshot,ring") {
          EXPECT_EQ(taken, "oneshot");
        }
      }
    });
  }
  // Between two ranks the order of a relay depends on the root.
  const auto chooser = MakeChooser("tree");
  for (const int root : {0, 1}) {
    Query query = Ask(Kind::kReduce, 2, 4 * kMi, Access::kNone, root);
    query.group_order = true;
    verify::Facts facts;
    auto schedule = algo::Generate(query.contract, chooser->Choose(query).algorithm, 1);
    EXPECT_TRUE(verify::Verify(schedule.value(), &facts).ok());
    EXPECT_TRUE(facts.group_order) << root;
  }
}

TEST(Choose, RefusesAnUnknownAlgorithm) {
  const auto result = Chooser::Create(cost::Machine(), "wring", kScratch, 1);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
  EXPECT_NE(result.status().message().find("wring"), std::string_view::npos);
}

TEST(Choose, IsAlwaysAdmissible) {
  const auto chooser = MakeChooser();
  ForEachQuery([&](const Query& query) {
    const Choice choice = chooser->Choose(query);
    const auto& known = algo::Algorithms(query.contract.kind);
    ASSERT_NE(std::find(known.begin(), known.end(), choice.algorithm), known.end());
    EXPECT_TRUE(std::isfinite(choice.seconds));
    EXPECT_GE(choice.seconds, 0);
    const plan::Schedule schedule = algo::Generate(query.contract, choice.algorithm, choice.lanes).value();
    EXPECT_FALSE(schedule.direct && query.access == Access::kNone);
    if (schedule.direct || schedule.slots == 0) {
      EXPECT_EQ(choice.tile_bytes, 0u);
      return;
    }
    // The slots of one turn fit, for every size of the element.
    ASSERT_GT(choice.tile_bytes, 0u);
    const plan::Partition partition{uint64_t{1} << 40, choice.tile_bytes, 64, static_cast<uint32_t>(choice.lanes),
                                    schedule.parts};
    EXPECT_LE(plan::SlotElements(partition) * schedule.slots, kScratch);
    EXPECT_EQ(choice.tile_bytes % 64, 0u);
  });
}

TEST(Choose, StaysWithinTheSmallestScratch) {
  for (uint64_t scratch : {uint64_t{64}, uint64_t{4096}, 64 * kKi}) {
    const auto chooser = MakeChooser("", scratch);
    const Choice choice = chooser->Choose(Ask(Kind::kAllReduce, 8, kMi));
    const plan::Schedule schedule = algo::Generate(Contract{Kind::kAllReduce, 8, 0}, choice.algorithm, 1).value();
    EXPECT_LE(choice.tile_bytes / schedule.parts * schedule.slots, scratch);
    EXPECT_GT(choice.tile_bytes, 0u);
  }
  // Less than a line for each slot, and still an answer.
  EXPECT_EQ(MakeChooser("", 64)->Choose(Ask(Kind::kAllToAll, 8, kMi)).algorithm, "oneshot");
}

TEST(Choose, UsesLanesOnlyForAvailableCores) {
  cost::Machine many;
  many.cores = 16;
  EXPECT_EQ(MakeChooser("", kScratch, 4)->Choose(Ask(Kind::kAllReduce, 2, 64 * kMi, Access::kMapped)).lanes, 1);
  EXPECT_EQ(MakeChooser("", kScratch, 4, many)->Choose(Ask(Kind::kAllReduce, 2, 64 * kMi, Access::kMapped)).lanes, 4);
  EXPECT_EQ(MakeChooser("", kScratch, 4, many)->Choose(Ask(Kind::kAllReduce, 8, 64 * kMi, Access::kMapped)).lanes, 2);
  EXPECT_EQ(MakeChooser("", kScratch, 4, many)->Choose(Ask(Kind::kAllReduce, 2, 8, Access::kMapped)).lanes, 1);
  EXPECT_EQ(MakeChooser("", kScratch, 1, many)->Choose(Ask(Kind::kAllReduce, 2, 64 * kMi, Access::kMapped)).lanes, 1);
}

// The order of questions, the root and the Chooser have no effect, because ranks choose separately and must agree.
TEST(Choose, DependsOnMachineFilterAndQueryAlone) {
  const auto forward = MakeChooser(), backward = MakeChooser();
  std::vector<Query> queries;
  ForEachQuery([&](const Query& q) { queries.push_back(q); });
  std::vector<Choice> first, second(queries.size());
  for (const Query& q : queries) first.push_back(forward->Choose(q));
  for (size_t i = queries.size(); i-- > 0;) second[i] = backward->Choose(queries[i]);
  for (size_t i = 0; i < queries.size(); ++i) {
    ExpectSame(first[i], second[i]);
    ExpectSame(first[i], forward->Choose(queries[i]));
  }
  for (int root : {1, 5, 7}) {
    ExpectSame(forward->Choose(Ask(Kind::kBroadcast, 8, kMi, Access::kNone, root)),
               forward->Choose(Ask(Kind::kBroadcast, 8, kMi)));
  }
}

plan::Placement Machines(int machines, int ranks_each) {
  std::vector<int> machine_of;
  for (int i = 0; i < machines * ranks_each; ++i) machine_of.push_back(i / ranks_each);
  return plan::Placement::Of(machine_of);
}

Query AskAcross(Kind kind, int machines, int ranks_each, uint64_t bytes) {
  Query query = Ask(kind, machines * ranks_each, bytes);
  query.placement = Machines(machines, ranks_each);
  return query;
}

cost::Machine SlowLink() {
  cost::Machine machine;
  machine.cores = 8;
  machine.link_bytes_per_second = 1e9;
  return machine;
}

TEST(ChooseAcrossMachines, LargeCallsCrossOnce) {
  const auto chooser = MakeChooser("", kScratch, 1, SlowLink());
  for (const auto& [h, g] : {std::pair(2, 4), std::pair(2, 2), std::pair(4, 4)}) {
    for (Kind kind : {Kind::kAllReduce, Kind::kReduceScatter, Kind::kAllGather}) {
      const Choice choice = chooser->Choose(AskAcross(kind, h, g, 16 * kMi));
      EXPECT_EQ(choice.algorithm, "hierarchical") << plan::KindName(kind) << " " << h << " x " << g;
      // The link's time and not much more: half of the data both ways on two machines, and so on.
      if (kind == Kind::kAllReduce) {
        const double least = 2.0 * (h - 1) / h * 16 * kMi / SlowLink().link_bytes_per_second;
        EXPECT_GE(choice.seconds, least);
        EXPECT_LE(choice.seconds, 1.6 * least) << h << " x " << g;
      }
    }
  }
}

// A ring crosses as seldom if neighbours are on one machine, and nearly always if they are not.
TEST(ChooseAcrossMachines, ChainsFollowTheMachines) {
  const auto chooser = MakeChooser("", kScratch, 1, SlowLink());
  for (Kind kind : {Kind::kBroadcast, Kind::kReduce}) {
    Query query = AskAcross(kind, 2, 4, 16 * kMi);
    const double least = 16 * kMi / SlowLink().link_bytes_per_second;
    EXPECT_LE(chooser->Choose(query).seconds, 1.3 * least) << plan::KindName(kind);
    query.placement = plan::Placement::Of(std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1});
    EXPECT_EQ(chooser->Choose(query).algorithm, "hierarchical") << plan::KindName(kind);
    EXPECT_LE(chooser->Choose(query).seconds, 1.3 * least) << plan::KindName(kind);
  }
}

// If waits for the network dominate, more lanes wait at the same time.
TEST(ChooseAcrossMachines, LanesCoverWaits) {
  const auto one = MakeChooser("", kScratch, 1), four = MakeChooser("", kScratch, 4);
  const Query query = AskAcross(Kind::kAllReduce, 2, 4, 16 * kMi);
  const Choice choice = four->Choose(query);
  EXPECT_GT(choice.lanes, 1);
  EXPECT_LT(choice.seconds, one->Choose(query).seconds);
  EXPECT_EQ(four->Choose(AskAcross(Kind::kAllReduce, 2, 4, 8)).lanes, 1);
  // The slots of all lanes fit.
  const auto schedule = algo::Generate(query.contract, choice.algorithm, choice.lanes, query.placement).value();
  EXPECT_LE(choice.tile_bytes / schedule.parts * schedule.slots * schedule.lanes, kScratch);
}

// Nothing to share inside machines, or nothing to save between them.
TEST(ChooseAcrossMachines, OtherPlansWhereLevelsDoNotPay) {
  const auto chooser = MakeChooser("", kScratch, 1, SlowLink());
  for (uint64_t bytes : {uint64_t{8}, 4 * kKi, 16 * kMi}) {
    EXPECT_NE(chooser->Choose(AskAcross(Kind::kAllReduce, 4, 1, bytes)).algorithm, "hierarchical") << bytes;
    EXPECT_NE(chooser->Choose(Ask(Kind::kAllReduce, 4, bytes)).algorithm, "hierarchical") << bytes;
  }
  EXPECT_NE(chooser->Choose(AskAcross(Kind::kAllReduce, 2, 2, 8)).algorithm, "hierarchical");
  // All data of an all-to-all must cross, whichever rank sends them.
  EXPECT_NE(chooser->Choose(AskAcross(Kind::kAllToAll, 2, 4, 16 * kMi)).algorithm, "hierarchical");
}

TEST(ChooseAcrossMachines, TheFilterNamesIt) {
  for (uint64_t bytes : {uint64_t{8}, 16 * kMi}) {
    const Query across = AskAcross(Kind::kAllReduce, 2, 4, bytes);
    EXPECT_EQ(MakeChooser("hierarchical", kScratch, 1, SlowLink())->Choose(across).algorithm, "hierarchical");
    EXPECT_NE(MakeChooser("^hierarchical", kScratch, 1, SlowLink())->Choose(across).algorithm, "hierarchical");
    // If there is none, all algorithms are admitted.
    ExpectSame(MakeChooser("hierarchical")->Choose(Ask(Kind::kAllReduce, 4, bytes)),
               MakeChooser()->Choose(Ask(Kind::kAllReduce, 4, bytes)));
  }
}

TEST(ChooseAcrossMachines, GroupOrderIsKept) {
  const auto chooser = MakeChooser("", kScratch, 1, SlowLink());
  for (Kind kind : {Kind::kAllReduce, Kind::kReduceScatter, Kind::kReduce}) {
    Query query = AskAcross(kind, 2, 4, 16 * kMi);
    query.group_order = true;
    const Choice choice = chooser->Choose(query);
    verify::Facts facts;
    const auto schedule = algo::Generate(query.contract, choice.algorithm, 1, query.placement);
    ASSERT_TRUE(verify::Verify(schedule.value(), &facts).ok());
    EXPECT_TRUE(facts.group_order) << choice.algorithm;
  }
}

// If messages are expensive, a logarithmic number of them is best; if bytes are, each should cross once.
TEST(ChooseAcrossMachines, ManyMachinesPassSmallDataOnInFewRounds) {
  const auto chooser = MakeChooser("", 4 * kScratch, 1, SlowLink());
  for (const auto& [h, g] : {std::pair(64, 4), std::pair(64, 2)}) {
    SCOPED_TRACE(std::to_string(h) + " x " + std::to_string(g));
    for (Kind kind : {Kind::kAllGather, Kind::kAllToAll})
      EXPECT_EQ(chooser->Choose(AskAcross(kind, h, g, 8)).algorithm, "hierarchical_bruck") << plan::KindName(kind);
    // The fewest messages.
    EXPECT_EQ(chooser->Choose(AskAcross(Kind::kAllReduce, h, g, 8)).algorithm, "hierarchical_leader");
    EXPECT_EQ(chooser->Choose(AskAcross(Kind::kReduceScatter, h, g, 8)).algorithm, "hierarchical_rhd");
    for (Kind kind : {Kind::kBroadcast, Kind::kReduce})
      EXPECT_EQ(chooser->Choose(AskAcross(kind, h, g, 8)).algorithm, "hierarchical_tree") << plan::KindName(kind);
    // In between a few rounds of few bytes, then each byte once.
    EXPECT_EQ(chooser->Choose(AskAcross(Kind::kAllReduce, h, g, 256 * kKi)).algorithm, "hierarchical_rhd");
    const Choice large = chooser->Choose(AskAcross(Kind::kAllReduce, h, g, 64 * kMi));
    EXPECT_TRUE(large.algorithm == "hierarchical" || large.algorithm == "hierarchical_rhd") << large.algorithm;
    EXPECT_LE(large.seconds, 1.3 * 2 * (h - 1) / h * 64 * kMi / SlowLink().link_bytes_per_second);
    const Choice chain = chooser->Choose(AskAcross(Kind::kBroadcast, h, g, 256 * kMi));
    EXPECT_TRUE(chain.algorithm == "hierarchical" || chain.algorithm == "ring") << chain.algorithm;
  }
}

TEST(ChooseAcrossMachines, TwoMachinesPassNothingOnUnlessAsked) {
  const auto chooser = MakeChooser("", kScratch, 1, SlowLink());
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<Kind>(k);
    if (kind == Kind::kSendRecv) continue;
    for (uint64_t bytes : {uint64_t{8}, 64 * kKi, 16 * kMi}) {
      const std::string_view taken = chooser->Choose(AskAcross(kind, 2, 4, bytes)).algorithm;
      // That all-reduce takes one hop instead of two, with the same bytes on two machines.
      const char* const few = bytes == 8 ? "hierarchical_leader" : bytes == 64 * kKi ? "hierarchical_bruck" : "";
      const bool gathers = kind == Kind::kAllReduce && taken == few;
      EXPECT_TRUE(gathers || !taken.starts_with("hierarchical_")) << plan::KindName(kind) << " " << taken;
    }
    for (std::string_view algorithm : algo::HierarchicalAlgorithms(kind)) {
      const Choice asked = MakeChooser(algorithm, kScratch, 1, SlowLink())->Choose(AskAcross(kind, 2, 4, 64 * kKi));
      EXPECT_EQ(asked.algorithm, algorithm) << plan::KindName(kind);
    }
  }
}

// Candidates that are skipped by default would not have been chosen.
TEST(ChooseAcrossMachines, SkippedCandidatesAreNoBetter) {
  cost::Machine fast;
  fast.cores = 8;
  fast.link_bytes_per_second = 2.5e10;
  fast.network_signal_seconds = 3e-6;
  fast.network_message_seconds = 2e-7;
  for (const cost::Machine& machine : {SlowLink(), fast}) {
    const auto chooser = MakeChooser("", 4 * kScratch, 1, machine);
    for (const auto& [h, g] : {std::pair(2, 4), std::pair(3, 2), std::pair(4, 4), std::pair(16, 4)}) {
      for (int k = 0; k < plan::kNumKinds; ++k) {
        const auto kind = static_cast<Kind>(k);
        if (kind == Kind::kSendRecv) continue;
        for (std::string_view algorithm : algo::Algorithms(kind, Machines(h, g))) {
          const auto only = MakeChooser(algorithm, 4 * kScratch, 1, machine);
          for (uint64_t bytes : {uint64_t{8}, 4 * kKi, 128 * kKi, 16 * kMi}) {
            const Choice asked = only->Choose(AskAcross(kind, h, g, bytes));
            const Choice free = chooser->Choose(AskAcross(kind, h, g, bytes));
            if (asked.algorithm == algorithm) {  // and not one that lacks what it needs
              EXPECT_LE(free.seconds, asked.seconds * 1.1)
                  << plan::KindName(kind) << " " << h << " x " << g << " " << bytes << ": not " << algorithm;
            }
          }
        }
      }
    }
  }
}

TEST(ChooseAcrossMachines, ABarrierOfManyMachinesIsPassedOn) {
  EXPECT_EQ(BarrierAlgorithm({}), "oneshot");
  EXPECT_EQ(BarrierAlgorithm(Machines(4, 1)), "oneshot");
  EXPECT_EQ(BarrierAlgorithm(Machines(4, 2)), "hierarchical");
  EXPECT_EQ(BarrierAlgorithm(Machines(64, 2)), "hierarchical_bruck");
  for (const int h : {2, 8, 16, 64}) {
    const auto chooser = MakeChooser("", kScratch, 1, SlowLink());
    const auto kept = MakeChooser(BarrierAlgorithm(Machines(h, 2)), kScratch, 1, SlowLink());
    EXPECT_LE(kept->Choose(AskAcross(Kind::kBarrier, h, 2, 0)).seconds,
              1.5 * chooser->Choose(AskAcross(Kind::kBarrier, h, 2, 0)).seconds);
  }
}

// Different placements are distinguished, and each is costed once.
TEST(ChooseAcrossMachines, DependsOnThePlacement) {
  const auto one = MakeChooser("", kScratch, 1, SlowLink()), other = MakeChooser("", kScratch, 1, SlowLink());
  const Query contiguous = AskAcross(Kind::kAllReduce, 2, 4, 16 * kMi);
  Query mixed = contiguous, flat = contiguous;
  mixed.placement = plan::Placement::Of(std::vector<int>{0, 1, 0, 1, 0, 1, 0, 1});
  flat.placement = {};
  const Choice a = one->Choose(contiguous), b = one->Choose(mixed), c = one->Choose(flat);
  ExpectSame(c, other->Choose(flat));
  ExpectSame(b, other->Choose(mixed));
  ExpectSame(a, other->Choose(contiguous));
  EXPECT_LT(c.seconds, a.seconds);
  EXPECT_EQ(a.seconds, b.seconds);  // a plan in two levels does not depend on the order of ranks
}

// ---- why ----

// The explanation always names the choice that is made, and that choice is the fastest candidate.
TEST(Explain, EndsInTheChoice) {
  for (const char* filter : {"", "ring", "^oneshot,twoshot", "bruck"}) {
    const auto chooser = MakeChooser(filter, kScratch, 4, SlowLink());
    ForEachQuery([&](Query query) {
      if (query.contract.ranks == 8) query.placement = Machines(2, 4);
      for (const bool group_order : {false, true}) {
        query.group_order = group_order;
        const Decision decision = chooser->Explain(query);
        ExpectSame(decision.choice, chooser->Choose(query));
        ASSERT_GE(decision.chosen, 0);
        ExpectSame(decision.candidates[static_cast<size_t>(decision.chosen)].choice, decision.choice);
        EXPECT_EQ(decision.reason, Reason::kFastest);
        for (const Candidate& c : decision.candidates) {
          if (c.excluded != Exclusion::kNone) continue;
          EXPECT_GE(c.choice.seconds, decision.choice.seconds) << c.choice.algorithm;
        }
      }
    });
  }
}

TEST(Explain, SplitsTheTimeIntoPartsThatAddUp) {
  const auto chooser = MakeChooser("", kScratch, 4, SlowLink());
  ForEachQuery([&](Query query) {
    for (const bool across : {false, true}) {
      if (across && (query.contract.ranks == 1 || query.access != Access::kNone)) continue;
      query.placement = {};
      if (across) query.placement = Machines(query.contract.ranks, 1);
      const Choice choice = chooser->Choose(query);
      const Split split = chooser->SplitTime(query, choice);
      const double sum = split.steps + split.copies + split.messages + split.link;
      EXPECT_NEAR(sum, choice.seconds, 1e-9 + 1e-9 * choice.seconds);
      for (const double part : {split.steps, split.copies, split.messages, split.link}) EXPECT_GE(part, -1e-12);
      EXPECT_EQ(split.steps > 0, choice.seconds > 0) << plan::KindName(query.contract.kind);
      EXPECT_EQ(split.messages > 0, across) << plan::KindName(query.contract.kind);
      const bool data = query.block_bytes > 0 && query.contract.kind != Kind::kBarrier;
      EXPECT_EQ(split.link > 0, across && data) << plan::KindName(query.contract.kind);
    }
  });
  const Query small = AskAcross(Kind::kAllReduce, 2, 4, 8), large = AskAcross(Kind::kAllReduce, 2, 4, 64 * kMi);
  const Split latency = chooser->SplitTime(small, chooser->Choose(small));
  const Split bytes = chooser->SplitTime(large, chooser->Choose(large));
  EXPECT_GT(latency.messages, latency.link);
  EXPECT_GT(bytes.link, bytes.messages);
}

TEST(Explain, NamesWhatIsExcludedAndWhy) {
  const auto of = [](const Decision& decision, std::string_view algorithm) {
    for (const Candidate& c : decision.candidates) {
      if (c.choice.algorithm == algorithm) return c;
    }
    ADD_FAILURE() << algorithm << " is missing";
    return Candidate();
  };
  Query query = Ask(Kind::kAllReduce, 4, kMi);
  Decision decision = MakeChooser("^ring")->Explain(query);
  EXPECT_EQ(of(decision, "ring").excluded, Exclusion::kFilter);
  EXPECT_TRUE(std::isfinite(of(decision, "ring").choice.seconds)) << "the time of an excluded candidate";
  EXPECT_EQ(of(decision, "direct").excluded, Exclusion::kAccess);
  EXPECT_EQ(of(decision, "twoshot").excluded, Exclusion::kNone);
  EXPECT_FALSE(decision.filter_ignored);
  query.group_order = true;
  decision = MakeChooser()->Explain(query);
  EXPECT_EQ(of(decision, "ring").excluded, Exclusion::kGroupOrder);
  EXPECT_EQ(of(decision, "oneshot").excluded, Exclusion::kNone);
  decision = MakeChooser("bruck")->Explain(Ask(Kind::kAllReduce, 4, kMi));
  EXPECT_TRUE(decision.filter_ignored);
  EXPECT_EQ(of(decision, "ring").excluded, Exclusion::kNone);
  decision = MakeChooser("", 64)->Explain(Ask(Kind::kAllToAll, 8, kMi));
  EXPECT_EQ(of(decision, "oneshot").excluded, Exclusion::kScratch);
  EXPECT_EQ(decision.chosen, -1);
  EXPECT_EQ(decision.reason, Reason::kNoScratch);
  query = Ask(Kind::kAllGather, 4, 16 * kMi, Access::kMapped);
  query.short_runs = true;
  EXPECT_EQ(MakeChooser()->Explain(query).reason, Reason::kShortRuns);
  query = Ask(Kind::kAllToAll, 4, 16 * kMi, Access::kMapped);
  query.split_rows = true;
  EXPECT_EQ(MakeChooser()->Explain(query).reason, Reason::kSplitRows);
}

// Every rank of every communicator has a Chooser; those of the same machine share the costs that one has found.
TEST(Choose, CostsAreFoundOncePerProcess) {
  cost::Machine machine;
  machine.op_seconds = 1.25e-8;  // only this test uses it
  const uint64_t before = NumCosted();
  auto first = MakeChooser("", kScratch, 1, machine);
  const Choice choice = first->Choose(Ask(Kind::kAllReduce, 64, 8));
  const uint64_t costed = NumCosted();
  for (int rank = 1; rank < 64; ++rank)
    ExpectSame(MakeChooser("", kScratch, 1, machine)->Choose(Ask(Kind::kAllReduce, 64, 1024 + 8)),
               first->Choose(Ask(Kind::kAllReduce, 64, 1024 + 8)));
  first = nullptr;
  ExpectSame(MakeChooser("", kScratch, 1, machine)->Choose(Ask(Kind::kAllReduce, 64, 8)), choice);
  EXPECT_EQ(NumCosted(), costed);  // another machine has costs of its own
  machine.op_seconds = 1.26e-8;
  (void)MakeChooser("", kScratch, 1, machine)->Choose(Ask(Kind::kAllReduce, 64, 8));
  EXPECT_GT(NumCosted(), costed);
  EXPECT_GT(costed, before);
}

TEST(Choose, IsSafeFromSeveralThreads) {
  const auto chooser = MakeChooser();
  const auto alone = MakeChooser();
  std::vector<Query> queries;
  ForEachQuery([&](const Query& q) { queries.push_back(q); });
  std::vector<std::vector<Choice>> choices(4);
  std::vector<std::thread> threads;
  for (auto& mine : choices) {
    threads.emplace_back([&] {
      for (const Query& q : queries) mine.push_back(chooser->Choose(q));
    });
  }
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < queries.size(); ++i) {
    for (const auto& mine : choices) ExpectSame(mine[i], alone->Choose(queries[i]));
  }
}

}  // namespace
}  // namespace axccl::tune
