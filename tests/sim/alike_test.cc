// One machine that stands for all machines, compared with all.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "src/algo/builder.h"
#include "src/sim/engine.h"
#include "tests/algo/cases.h"

namespace axccl::sim {
namespace {

using algo::Even;
using plan::Contract;
using plan::Kind;
using plan::Placement;
using plan::Schedule;

// The program of machine 0 if all machines have the same; else the reason why they differ.
Result<Program> StandsForAll(const Schedule& s, const Placement& p) {
  AXCCL_ASSIGN_OR_RETURN(const Program first, CompileOne(s, p, 0));
  for (int m = 1; m < p.machines(); ++m) {
    AXCCL_ASSIGN_OR_RETURN(const Program other, CompileOne(s, p, m));
    if (other != first) return MakeStatus(Code::kInvalidUsage, "machine %d does something else", m);
  }
  return first;
}

// Fast and slow networks, and one in which the number of messages dominates.
std::vector<Fabric> Fabrics() {
  std::vector<Fabric> fabrics(3);
  fabrics[1].nic_bytes_per_second = 1e9;
  fabrics[2].message_seconds = 1e-4;
  return fabrics;
}

// Exactly equal, because the same additions are made in the same order.
void ExpectSameTimes(const Program& one, const Program& all, int machines) {
  for (const Fabric& fabric : Fabrics()) {
    for (const uint64_t turns : {1, 4}) {
      const Outcome some = Execute(one, fabric, 12345, turns).value(),
                    every = Execute(all, fabric, 12345, turns).value();
      EXPECT_EQ(some.seconds, every.seconds) << turns << " turns";
      EXPECT_EQ(some.operations * static_cast<uint64_t>(machines), every.operations);
      EXPECT_EQ(some.messages * static_cast<uint64_t>(machines), every.messages);
      for (const double sent : every.sent) EXPECT_EQ(sent, some.sent[0]);
      for (const double received : every.received) EXPECT_EQ(received, some.received[0]);
      for (size_t i = 0; i < every.busy.size(); ++i) EXPECT_EQ(every.busy[i], some.busy[i % some.busy.size()]);
    }
  }
}

class Alike : public ::testing::TestWithParam<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Machines, Alike,
                         ::testing::Values(std::pair(2, 2), std::pair(2, 8), std::pair(3, 5), std::pair(4, 4),
                                           std::pair(4, 8), std::pair(16, 2), std::pair(8, 8), std::pair(7, 1)),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "x" + std::to_string(info.param.second);
                         });

// Covers all algorithms, so that new ones are checked, too.
TEST_P(Alike, OneMachineTakesTheTimeOfAll) {
  const auto [machines, each] = GetParam();
  const Placement p = Even(machines, each);
  ASSERT_TRUE(AreAlike(p));
  std::set<std::string> done;
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const Contract contract{static_cast<Kind>(k), p.ranks(), 0};
    if (plan::HasRoot(contract.kind) || contract.kind == Kind::kSendRecv) continue;
    for (const std::string_view algorithm : algo::Algorithms(contract.kind, p)) {
      for (const int lanes : {1, 3}) {
        SCOPED_TRACE(algo::Describe(contract, algorithm, lanes));
        const Schedule s = algo::Generate(contract, algorithm, lanes, p).value();
        const Result<Program> one = StandsForAll(s, p);
        if (!one.ok()) continue;
        ExpectSameTimes(one.value(), CompileAll(s, p).value(), machines);
        done.insert(std::string(plan::KindName(contract.kind)) + " " + std::string(algorithm));
      }
    }
  }
  std::set<std::string> expected = {"all_reduce ring", "all_gather ring", "reduce_scatter ring", "all_to_all pairwise"};
  if (each > 1) {
    for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
      expected.insert(std::string(kind) + " hierarchical");
  }
  EXPECT_TRUE(std::includes(done.begin(), done.end(), expected.begin(), expected.end()))
      << ::testing::PrintToString(done);
}

// A machine that is generated for its ranks alone has the same program.
TEST_P(Alike, AMachineIsGeneratedLikeAll) {
  const auto [machines, each] = GetParam();
  const Placement p = Even(machines, each);
  for (const Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter}) {
    const Contract contract{kind, p.ranks(), 0};
    for (const std::string_view algorithm : {std::string_view("ring"), algo::kHierarchical}) {
      if (algorithm == algo::kHierarchical && !p.has_levels()) continue;
      SCOPED_TRACE(algo::Describe(contract, algorithm, 2));
      const Schedule all = algo::Generate(contract, algorithm, 2, p).value();
      for (const int m : {0, machines / 2}) {
        const Schedule part = algo::Generate(contract, algorithm, 2, p, p.RanksOf(m)).value();
        EXPECT_EQ(CompileOne(part, p, m).value(), CompileOne(all, p, m).value());
      }
    }
  }
}

TEST(AreAlike, IsForEqualNumbersInAscendingOrder) {
  const std::vector<int> uneven = {0, 0, 1}, mixed = {0, 1, 0, 1}, larger = {0, 1, 1, 1};
  EXPECT_FALSE(AreAlike(Placement()));
  EXPECT_FALSE(AreAlike(Placement::Of(uneven)));
  EXPECT_FALSE(AreAlike(Placement::Of(mixed)));
  EXPECT_FALSE(AreAlike(Placement::Of(larger)));
  EXPECT_TRUE(AreAlike(Even(2, 1)));
  EXPECT_TRUE(AreAlike(Even(3, 4)));
}

std::string WhyNot(const Schedule& s, const Placement& p) {
  const Result<Program> one = StandsForAll(s, p);
  EXPECT_FALSE(one.ok());
  EXPECT_EQ(one.status().code(), Code::kInvalidUsage);
  return std::string(one.status().message());
}

TEST(Alike, IsRefusedWhereMachinesDiffer) {
  const Placement p = Even(4, 2);
  const auto make = [&](Kind kind, const char* algorithm) {
    return algo::Generate({kind, 8, 0}, algorithm, 1, p).value();
  };
  EXPECT_NE(WhyNot(make(Kind::kAllReduce, "tree"), p).find("do"), std::string::npos);
  EXPECT_NE(WhyNot(make(Kind::kAllReduce, "oneshot"), p).find("signals all others at once"), std::string::npos);
  EXPECT_NE(WhyNot(make(Kind::kAllReduce, "rhd"), p).find("machine"), std::string::npos);
}

// Every difference of a machine is found: an operation more or less, its size, its peer and its time.
TEST(Alike, FindsEveryKindOfDifference) {
  const Placement p = Even(4, 4);
  const Schedule s = algo::Generate({Kind::kAllReduce, 16, 0}, algo::kHierarchical, 1, p).value();
  ASSERT_TRUE(StandsForAll(s, p).ok());
  int changed = 0;
  const size_t ops = s.program[4][0].ops.size();
  for (size_t i = 0; i < ops; ++i) {
    const auto expect_found = [&](auto change) {
      Schedule other = s;
      change(&other.program[4][0].ops, i);
      EXPECT_FALSE(StandsForAll(other, p).ok()) << "operation " << i;
      ++changed;
    };
    using Ops = std::vector<plan::Op>;
    expect_found([](Ops* o, size_t at) { o->erase(o->begin() + static_cast<long>(at)); });
    expect_found([](Ops* o, size_t at) { o->insert(o->begin() + static_cast<long>(at), (*o)[at]); });
    const plan::Op& op = s.program[4][0].ops[i];
    if (op.kind == plan::OpKind::kSignal || op.kind == plan::OpKind::kWait) {
      expect_found([](Ops* o, size_t at) { (*o)[at].peer = static_cast<int16_t>((*o)[at].peer == 5 ? 6 : 5); });
      if (op.kind == plan::OpKind::kWait) expect_found([](Ops* o, size_t at) { ++(*o)[at].value; });
    } else {
      expect_found([](Ops* o, size_t at) { ++(*o)[at].src[0].parts; });
      expect_found([](Ops* o, size_t at) { (*o)[at].dst.pop_back(); });
    }
  }
  EXPECT_GT(changed, 100);
}

}  // namespace
}  // namespace axccl::sim
