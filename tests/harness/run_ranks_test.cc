// Tests the harness: failures, crashes, hangs and deliberate deaths of ranks are distinguished and reported.
#include "tests/harness/run_ranks.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/harness/timing.h"

namespace axccl::harness {
namespace {

std::string Join(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text + "\n";
  return all;
}

bool Contains(const std::vector<std::string>& texts, const std::string& part) {
  return Join(texts).find(part) != std::string::npos;
}

class RunRanksTest : public testing::TestWithParam<Layout> {};

TEST_P(RunRanksTest, EveryRankRunsOnceAndMeetsTheOthers) {
  const Layout layout = GetParam();
  const auto texts = RunRanksReport(layout, [&](RankContext& context) {
    for (int i = 0; i < context.local_ranks(); ++i) context.board()[context.first_rank() + i] = std::byte{1};
    for (int round = 0; round < 20; ++round) ASSERT_TRUE(context.Barrier());
    for (int r = 0; r < context.nranks(); ++r) ASSERT_EQ(context.board()[r], std::byte{1}) << r;
  });
  EXPECT_TRUE(texts.empty()) << Join(texts);
}

INSTANTIATE_TEST_SUITE_P(Layouts, RunRanksTest,
                         testing::Values(Processes(4), Threads(4), OneThread(4), Layout{2, 2, 2}),
                         [](const auto& info) { return info.param.Text(); });

TEST(RunRanks, CarriesAssertionsWithRankAndStep) {
  const auto texts = RunRanksReport(Threads(2), [](RankContext& context) {
    context.Step("doing %d", 42);
    if (context.rank() == 1) {
      ASSERT_EQ(1, 2) << "reason";
    }
  });
  EXPECT_TRUE(Contains(texts, "rank 1 of 1p2t1r")) << Join(texts);
  EXPECT_TRUE(Contains(texts, "doing 42")) << Join(texts);
  EXPECT_TRUE(Contains(texts, "reason")) << Join(texts);
}

TEST(RunRanks, SeesAssertionsOnThreadsOfTheBody) {
  const auto texts = RunRanksReport(
      Processes(1), [](RankContext&) { std::thread([] { EXPECT_TRUE(false) << "expected in this test"; }).join(); });
  EXPECT_TRUE(Contains(texts, "thread of the test's own")) << Join(texts);
}

TEST(RunRanks, NamesTheRankThatHangsAndWhere) {
  RunOptions options;
  options.deadline = std::chrono::milliseconds(200);
  const auto texts = RunRanksReport(
      Processes(2),
      [](RankContext& context) {
        if (context.rank() == 0) return;
        context.Step("stuck here");
        for (;;) pause();
      },
      options);
  EXPECT_TRUE(Contains(texts, "rank 1")) << Join(texts);
  EXPECT_TRUE(Contains(texts, "stuck here")) << Join(texts);
  EXPECT_TRUE(Contains(texts, "deadline")) << Join(texts);
  EXPECT_FALSE(Contains(texts, "rank 0")) << Join(texts);
}

// Eight processes that compute share a core.
TEST(RunRanks, TimeWithoutACoreDoesNotCount) {
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(sched_getcpu(), &core);
  RunOptions options;
  options.deadline = std::chrono::milliseconds(400);
  const auto texts = RunRanksReport(
      Processes(8),
      [&](RankContext& context) {
        ASSERT_EQ(sched_setaffinity(0, sizeof(core), &core), 0);
        ASSERT_TRUE(context.Barrier());
        const uint64_t end = NowNs() + 600000000u * static_cast<uint64_t>(TimeScale());
        while (NowNs() < end) continue;
      },
      options);
  EXPECT_TRUE(texts.empty()) << Join(texts);
}

TEST(RunRanks, ReportsACrashAndReleasesTheOthers) {
  const auto texts = RunRanksReport(Processes(2), [](RankContext& context) {
    if (context.rank() == 1) {
      std::signal(SIGABRT, SIG_DFL);
      kill(getpid(), SIGABRT);
    }
    EXPECT_FALSE(context.Barrier());
  });
  EXPECT_TRUE(Contains(texts, "died of signal Abort")) << Join(texts);
  EXPECT_EQ(texts.size(), 1u) << Join(texts);
}

TEST(RunRanks, DeliberateDeathIsNoFailure) {
  const auto texts = RunRanksReport(Processes(3), [](RankContext& context) {
    if (context.rank() == 2) {
      context.Set(0, 7);
      context.Die();
    }
    ASSERT_EQ(context.Await(0), 7u);
    ASSERT_TRUE(context.Barrier(1, 2));
  });
  EXPECT_TRUE(texts.empty()) << Join(texts);
}

TEST(RunRanks, AFailureEndsTheWaitsOfOthers) {
  const auto texts = RunRanksReport(Threads(2), [](RankContext& context) {
    if (context.rank() == 0) {
      context.Fail("no");
      return;
    }
    EXPECT_FALSE(context.Barrier());
    EXPECT_TRUE(context.AnyFailed());
  });
  EXPECT_EQ(texts.size(), 1u) << Join(texts);
}

TEST(RunRanks, SetsTheEnvironmentOfRanksOnly) {
  RunOptions options;
  options.environment = {{"AXCCL_HARNESS_TEST", "yes"}};
  const auto texts = RunRanksReport(
      Processes(1),
      [](RankContext&) {
        const char* value = std::getenv("AXCCL_HARNESS_TEST");
        ASSERT_NE(value, nullptr);
        ASSERT_STREQ(value, "yes");
      },
      options);
  EXPECT_TRUE(texts.empty()) << Join(texts);
  EXPECT_EQ(std::getenv("AXCCL_HARNESS_TEST"), nullptr);
}

}  // namespace
}  // namespace axccl::harness
