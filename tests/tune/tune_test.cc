// The choice: sane where anyone would know the answer, admissible always, and the same for everybody.
#include "src/tune/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "src/algo/algo.h"
#include "src/plan/region.h"
#include "src/verify/verify.h"

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
        EXPECT_EQ(chooser->Choose(Ask(kind, ranks, 8, access)).algorithm, "oneshot")
            << plan::KindName(kind) << " " << ranks;
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

TEST(Choose, LargeUnmappedAllReduceIsReducedOncePerByte) {
  const auto chooser = MakeChooser();
  for (int ranks : {2, 4, 8}) {
    EXPECT_EQ(chooser->Choose(Ask(Kind::kAllReduce, ranks, 16 * kMi)).algorithm, "twoshot") << ranks;
  }
}

TEST(Choose, DirectNeedsAccess) {
  const auto chooser = MakeChooser("direct");
  EXPECT_EQ(chooser->Choose(Ask(Kind::kAllReduce, 2, 8, Access::kMapped)).algorithm, "direct");
  EXPECT_EQ(chooser->Choose(Ask(Kind::kAllReduce, 2, 8, Access::kCall)).algorithm, "direct");
  EXPECT_NE(chooser->Choose(Ask(Kind::kAllReduce, 2, 16 * kMi, Access::kNone)).algorithm, "direct");
}

TEST(Choose, SlowCallsAreAvoidedAndFastOnesTaken) {
  cost::Machine slow, fast;
  slow.call_bytes_per_second = 1e8;
  fast.call_bytes_per_second = 1e12;
  const Query query = Ask(Kind::kAllGather, 2, 16 * kMi, Access::kCall);
  EXPECT_NE(MakeChooser("", kScratch, 1, slow)->Choose(query).algorithm, "direct");
  EXPECT_EQ(MakeChooser("", kScratch, 1, fast)->Choose(query).algorithm, "direct");
}

TEST(Choose, TheFilterDecidesWhereItLeavesSomething) {
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

TEST(Choose, GroupOrderGoesBeforeTheFilter) {
  for (const char* filter : {"", "ring", "tree,pairwise,rhd", "direct,ring", "oneshot,ring"}) {
    const auto chooser = MakeChooser(filter);
    ForEachQuery([&](Query query) {
      const std::string_view freely = chooser->Choose(query).algorithm;
      query.group_order = true;
      const std::string_view taken = chooser->Choose(query).algorithm;
      if (!plan::Reduces(query.contract.kind) || query.contract.ranks == 1) {
        EXPECT_EQ(taken, freely);
      } else if (query.contract.ranks > 2) {
        EXPECT_TRUE(taken == "direct" || taken == "oneshot" || taken == "twoshot") << filter << ": " << taken;
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
    // The slots of one turn fit, whatever the size of the element.
    ASSERT_GT(choice.tile_bytes, 0u);
    const plan::Partition partition{uint64_t{1} << 40, choice.tile_bytes, 64, static_cast<uint32_t>(choice.lanes),
                                    schedule.parts};
    EXPECT_LE(plan::SlotElements(partition) * schedule.slots, kScratch);
    EXPECT_EQ(choice.tile_bytes % 64, 0u);
  });
}

TEST(Choose, StaysWithinTheScratchHoweverLittle) {
  for (uint64_t scratch : {uint64_t{64}, uint64_t{4096}, 64 * kKi}) {
    const auto chooser = MakeChooser("", scratch);
    const Choice choice = chooser->Choose(Ask(Kind::kAllReduce, 8, kMi));
    const plan::Schedule schedule = algo::Generate(Contract{Kind::kAllReduce, 8, 0}, choice.algorithm, 1).value();
    EXPECT_LE(choice.tile_bytes / schedule.parts * schedule.slots, scratch);
    EXPECT_GT(choice.tile_bytes, 0u);
  }
  // Not even a line for each slot: still an answer.
  EXPECT_EQ(MakeChooser("", 64)->Choose(Ask(Kind::kAllToAll, 8, kMi)).algorithm, "oneshot");
}

TEST(Choose, UsesLanesOnlyForCoresThatAreThere) {
  cost::Machine many;
  many.cores = 16;
  EXPECT_EQ(MakeChooser("", kScratch, 4)->Choose(Ask(Kind::kAllReduce, 2, 64 * kMi, Access::kMapped)).lanes, 1);
  EXPECT_EQ(MakeChooser("", kScratch, 4, many)->Choose(Ask(Kind::kAllReduce, 2, 64 * kMi, Access::kMapped)).lanes, 4);
  EXPECT_EQ(MakeChooser("", kScratch, 4, many)->Choose(Ask(Kind::kAllReduce, 8, 64 * kMi, Access::kMapped)).lanes, 2);
  EXPECT_EQ(MakeChooser("", kScratch, 4, many)->Choose(Ask(Kind::kAllReduce, 2, 8, Access::kMapped)).lanes, 1);
  EXPECT_EQ(MakeChooser("", kScratch, 1, many)->Choose(Ask(Kind::kAllReduce, 2, 64 * kMi, Access::kMapped)).lanes, 1);
}

// Not the order of questions, not the root, not which Chooser: what ranks choose apart they must choose alike.
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
  for (const auto& mine : choices) {
    for (size_t i = 0; i < queries.size(); ++i) ExpectSame(mine[i], alone->Choose(queries[i]));
  }
}

}  // namespace
}  // namespace axccl::tune
