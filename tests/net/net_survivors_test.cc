// Ranks on several hosts of which some die, or which are cut off from each other: the survivors agree on who is left,
// and of two parts that cannot reach each other, at most one goes on.
//
// Every trial has its own seed, printed with a failure; AXCCL_TEST_SEED=<printed> replays all of them.
// AXCCL_TEST_FULL=1 makes 200 trials of deaths, and 100 cuts.
#include <gtest/gtest.h>

#include <cstdio>
#include <thread>
#include <vector>

#include "tests/comm/revoke_cases.h"
#include "tests/comm/survivors_trial.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Random;
using harness::RankContext;
using harness::TestHosts;

TEST(NetSurvivors, AgreeWhoeverDiesWhen) {
  const int trials = harness::FullTests() ? 200 : 10;
  const TrialTimes times(trials);
  for (int i = 0; i < trials && !HasFailure(); ++i) {
    const SurvivorsTrial trial =
        MakeSurvivorsTrial(harness::Scramble(harness::Seed(), 72, static_cast<uint64_t>(i)), 8);
    SCOPED_TRACE("trial " + std::to_string(i) + ": " + trial.text);
    RunOnHosts(2, trial.ranks,
               [&](const TestHosts&, RankContext& context) { RunSurvivorsTrial(context, trial, &times[i]); });
  }
  times.Print();
}

// ---- revoked communicators ----

struct Revoke {
  int hosts, ranks, by;
  bool busy;
};

class NetRevokeTest : public testing::TestWithParam<Revoke> {};
INSTANTIATE_TEST_SUITE_P(Shapes, NetRevokeTest,
                         testing::Values(Revoke{2, 4, 0, true}, Revoke{2, 4, 3, false}, Revoke{3, 3, 1, false},
                                         Revoke{2, 2, 1, true}));

TEST_P(NetRevokeTest, ReachesEveryHost) {
  const Revoke& revoke = GetParam();
  RunOnHosts(revoke.hosts, revoke.ranks,
             [&](const TestHosts&, RankContext& context) { RunRevoke(context, revoke.by, revoke.busy, 1000); });
}

// ---- cuts ----

struct CutTrial {
  int hosts = 2, ranks = 4;
  int cut = 1;         // the host that is cut off
  bool quorum = true;  // AXCCL_QUORUM
  bool lists = false;  // whether each side lists the other
  uint64_t delay_ns = 0;

  bool IsCut(int rank) const { return rank % hosts == cut; }
  int SizeOf(bool side) const {
    int size = 0;
    for (int rank = 0; rank < ranks; ++rank) size += IsCut(rank) == side ? 1 : 0;
    return size;
  }
  // The side that may go on.
  bool GoesOn(bool side) const {
    if (!quorum) return true;
    if (SizeOf(side) != SizeOf(!side)) return SizeOf(side) > SizeOf(!side);
    return side == IsCut(0);
  }
};

void RunCut(const TestHosts& hosts, RankContext& context, const CutTrial& trial) {
  const int rank = context.rank();
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  ASSERT_TRUE(context.Barrier());
  std::thread breaker;
  if (rank == 0)
    breaker = std::thread([&] {
      const uint64_t until = harness::NowNs() + trial.delay_ns;
      while (harness::NowNs() < until) std::this_thread::yield();
      EXPECT_TRUE(hosts.Cut(trial.cut, TestHosts::Way::kBoth));
    });
  uint64_t sum = 0;
  ncclResult_t result = ncclSuccess;
  ASSERT_TRUE(context.Step("until it breaks"));
  while (result == ncclSuccess && !context.AnyFailed()) result = Combine(clique.comm(), clique.stream(), 1, &sum);
  if (breaker.joinable()) breaker.join();
  EXPECT_EQ(result, ncclRemoteError) << ncclGetLastError(nullptr);
  std::vector<int> out;
  for (int other = 0; other < trial.ranks && trial.lists; ++other) {
    if (trial.IsCut(other) != trial.IsCut(rank)) out.push_back(other);
  }
  ASSERT_TRUE(context.Step("shrink"));
  ncclComm_t rest = nullptr;
  result = ncclCommShrink(clique.comm(), out.data(), static_cast<int>(out.size()), &rest, nullptr, NCCL_SHRINK_DEFAULT);
  if (trial.GoesOn(trial.IsCut(rank))) {
    ASSERT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_OK(Combine(rest, clique.stream(), 1, &sum));
    EXPECT_EQ(sum, static_cast<uint64_t>(trial.SizeOf(trial.IsCut(rank))));
    EXPECT_OK(ncclCommDestroy(rest));
  } else {
    EXPECT_EQ(result, ncclRemoteError);
    harness::ExpectLastErrorHas({"ncclCommShrink", "cannot reach", "AXCCL_QUORUM=0"});
  }
  EXPECT_OK(ncclCommAbort(clique.comm()));
  clique.ForgetComms();
}

TEST(NetSurvivors, OnePartGoesOnAfterACut) {
  const int trials = harness::FullTests() ? 100 : 6;
  for (int i = 0; i < trials && !HasFailure(); ++i) {
    const uint64_t seed = harness::Scramble(harness::Seed(), 73, static_cast<uint64_t>(i));
    Random random(seed);
    CutTrial trial;
    trial.hosts = static_cast<int>(2 + random.Below(2));
    trial.ranks = static_cast<int>(static_cast<uint64_t>(trial.hosts) + random.Below(4));
    trial.cut = static_cast<int>(random.Below(static_cast<uint64_t>(trial.hosts)));
    trial.lists = random.OneIn(2);
    trial.quorum = i != 0;
    trial.delay_ns = random.Below(20'000'000);
    SCOPED_TRACE("trial " + std::to_string(i) + ": seed " + std::to_string(seed) + ", " + std::to_string(trial.ranks) +
                 " ranks on " + std::to_string(trial.hosts) + " hosts, cut off: " + std::to_string(trial.cut));
    RunOnHosts(trial.hosts, trial.ranks,
               [&](const TestHosts& hosts, RankContext& context) { RunCut(hosts, context, trial); },
               {{"AXCCL_QUORUM", trial.quorum ? "1" : "0"}});
  }
}

}  // namespace
}  // namespace axccl::tests
