// What the perf tools do when something goes wrong: wrong data, dead and stopped ranks, bad input.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <regex>
#include <string>

#include "tests/perf/tool_runner.h"

namespace axccl::perf {
namespace {

// -1 if the line names none. Never pass that to kill: it means every process on the machine.
pid_t PidOfRank(const std::string& line) {
  std::smatch m;
  return std::regex_search(line, m, std::regex("Pid +(\\d+)")) ? std::stoi(m[1]) : -1;
}

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A run that would never end; the test stops it at its first row.
std::vector<std::string> Endless() { return {"--ranks", "3", "-b", "64", "-e", "64", "-N", "0", "-n", "2"}; }

TEST(PerfFailure, OneWrongElementIsCountedAndFails) {
  Tool::Environment spoilt = {{"LD_PRELOAD", AXCCL_SPOILER}, {"ASAN_OPTIONS", "verify_asan_link_order=0"}};
  Tool run("all_reduce_perf", {"-b", "4K", "-e", "16K", "-f", "4", "-n", "2", "-T", "60"}, spoilt);
  EXPECT_EQ(run.Finish(), 1) << run.err();
  Output o = ParseOutput(run.out());
  ASSERT_EQ(o.error, "") << run.out();
  ASSERT_EQ(o.rows.size(), 2u);
  for (const Row& row : o.rows) {
    EXPECT_EQ(row.out_of_place.wrong, "1");
    EXPECT_EQ(row.in_place.wrong, "1");
  }
  EXPECT_EQ(o.out_of_bounds, 4);  // checks, not elements
  EXPECT_EQ(o.bounds_verdict, "FAILED");
}

TEST(PerfFailure, MissedBandwidthFails) {
  Tool run("all_reduce_perf", {"-b", "64", "-e", "64", "-n", "2"}, {{"NCCL_TESTS_MIN_BW", "1000000"}});
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_EQ(ParseOutput(run.out()).average_verdict, "FAILED");
}

TEST(PerfFailure, ALimitThatIsNoNumberIsRefused) {
  for (const char* limit : {"fast", "12GB", "1,5", "", "nan"}) {
    Tool run("all_reduce_perf", {"-b", "64", "-e", "64", "-n", "1"}, {{"NCCL_TESTS_MIN_BW", limit}});
    EXPECT_EQ(run.Finish(), 2) << limit;
    const std::string text = std::string("all_reduce_perf: NCCL_TESTS_MIN_BW '") + limit + "' is not a bus bandwidth";
    EXPECT_EQ(run.err().find(text), 0u) << run.err();
  }
}

// Without its peers' processes, a rank would run with ranks of its own.
TEST(PerfFailure, LauncherVariablesThatAreIncompleteAreNamed) {
  const Tool::Environment of_rank = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}};
  Tool run("all_reduce_perf", {"-b", "8", "-e", "8", "-n", "1"}, of_rank);
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_EQ(run.err().find("all_reduce_perf: MASTER_ADDR is set without MASTER_PORT; "), 0u) << run.err();
  Tool alone("all_reduce_perf", {"-b", "8", "-e", "8", "-n", "1"}, {{"RANK", "0"}});
  EXPECT_EQ(alone.Finish(), 2);
  EXPECT_EQ(alone.err().find("all_reduce_perf: RANK is set without WORLD_SIZE; "), 0u) << alone.err();
  for (const char* ranks : {"--ranks=2", "-t2"}) {
    Tool by_hand("all_reduce_perf", {"-b", "8", "-e", "8", "-n", "1", ranks}, of_rank);
    EXPECT_EQ(by_hand.Finish(), 0) << by_hand.err();
  }
}

TEST(PerfFailure, AKilledRankEndsTheRunAndIsNamed) {
  Tool run("all_reduce_perf", Endless());
  pid_t victim = PidOfRank(run.ReadUntil("#  Rank  2"));
  ASSERT_GT(victim, 0) << run.out();
  std::string devices = run.out();
  ASSERT_NE(run.ReadUntil("float     sum"), "");
  double start = Seconds();
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  EXPECT_EQ(run.Finish(), 128 + SIGKILL);
  EXPECT_LT(Seconds() - start, 10);
  EXPECT_NE(run.err().find("rank 2 (pid " + std::to_string(victim) + ") was killed by signal 9 (Killed)"),
            std::string::npos)
      << run.err();
  for (const char* rank : {"#  Rank  0", "#  Rank  1"}) {
    size_t at = devices.find(rank);
    ASSERT_NE(at, std::string::npos);
    EXPECT_NE(kill(PidOfRank(devices.substr(at)), 0), 0) << rank << " is still there";
  }
}

TEST(PerfFailure, RanksDieWithTheParent) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // adopts the orphans, so that their end can be observed
  pid_t rank0 = -1;
  {
    Tool run("all_reduce_perf", Endless());
    rank0 = PidOfRank(run.ReadUntil("#  Rank  0"));
    ASSERT_GT(rank0, 0);
    kill(run.pid(), SIGKILL);
    EXPECT_EQ(run.Finish(), -SIGKILL);  // returns only when all have closed their output
  }
  int status = 0;
  EXPECT_EQ(waitpid(rank0, &status, 0), rank0);
  EXPECT_TRUE(WIFSIGNALED(status));
  while (waitpid(-1, nullptr, 0) > 0) {
  }
}

TEST(PerfFailure, InterruptEndsEverything) {
  Tool run("all_reduce_perf", Endless());
  ASSERT_NE(run.ReadUntil("float     sum"), "");
  kill(run.pid(), SIGINT);
  EXPECT_EQ(run.Finish(), 128 + SIGINT);
}

TEST(PerfFailure, AWaitLongerThanTheTimeoutEndsTheRun) {
  std::vector<std::string> arguments = Endless();
  arguments.insert(arguments.end(), {"-T", "1"});
  Tool run("all_reduce_perf", arguments);
  pid_t stopped = PidOfRank(run.ReadUntil("#  Rank  1"));
  ASSERT_GT(stopped, 0) << run.out();
  ASSERT_NE(run.ReadUntil("float     sum"), "");
  kill(stopped, SIGSTOP);
  EXPECT_EQ(run.Finish(), 3) << run.err();
  EXPECT_NE(run.err().find("Test timeout (1s)"), std::string::npos) << run.err();
}

TEST(PerfFailure, BadInputIsAUsageErrorInOneLine) {
  const std::vector<std::string> cases[] = {
      {"-n", "x"}, {"-G", "1"}, {"--nonsense"}, {"-b", "2M", "-e", "1M"}, {"-r", "2", "-t", "2"}};
  for (const auto& arguments : cases) {
    Tool run("broadcast_perf", arguments);
    EXPECT_EQ(run.Finish(), 2) << arguments[0];
    EXPECT_EQ(run.out(), "");
    EXPECT_EQ(run.err().rfind("broadcast_perf:", 0), 0u) << run.err();
    EXPECT_EQ(std::count(run.err().begin(), run.err().end(), '\n'), 1) << run.err();
  }
}

TEST(PerfFailure, HypercubeNeedsAPowerOfTwo) {
  Tool run("hypercube_perf", {"--ranks", "3"});
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_NE(run.err().find("power of two"), std::string::npos) << run.err();
}

TEST(PerfFailure, HelpIsNoFailure) {
  Tool run("all_reduce_perf", {"--help"});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_NE(run.out().find("--minbytes"), std::string::npos);
}

}  // namespace
}  // namespace axccl::perf
