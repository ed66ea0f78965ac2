// Peers that die and communicators that are aborted: every wait ends in time, with an error that names the cause.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/case_runner.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Call;
using harness::CaseRunner;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::NowNs;
using harness::Processes;
using harness::Random;
using harness::RankContext;
using harness::RunRanks;
using harness::Scramble;
using harness::Seed;
using harness::ShareUniqueId;
using harness::Threads;

constexpr int kDeathCell = 20;  // time of death, ns

[[noreturn]] void DieNow(RankContext& context) {
  context.Set(kDeathCell, NowNs());
  context.Die();
}

// Expects that the stream ends with an ncclRemoteError that names `victim` soon after its death, and then aborts.
void ExpectRemoteError(RankContext& context, Clique* clique, int victim) {
  EXPECT_EQ(axcclStreamSynchronize(clique->stream()), ncclRemoteError) << ncclGetLastError(nullptr);
  const uint64_t now = NowNs();
  const uint64_t death = context.Await(kDeathCell);
  EXPECT_LT(now, death + AllowedNs(100)) << "took " << (now - death) / 1000 << " us";
  const std::string name = "rank " + std::to_string(victim);
  EXPECT_TRUE(harness::LastErrorHas(name)) << "no \"" << name << "\" in: " << ncclGetLastError(nullptr);
  ncclResult_t state = ncclSuccess;
  EXPECT_OK(ncclCommGetAsyncError(clique->comm(), &state));
  EXPECT_EQ(state, ncclRemoteError);
  ASSERT_TRUE(context.Step("abort after the death"));
  const uint64_t start = NowNs();
  EXPECT_OK(ncclCommAbort(clique->comm()));
  EXPECT_LT(NowNs() - start, AllowedNs(100));
  clique->ForgetComms();
}

// The survivors make a communicator without the dead rank; they are n - 1 ranks, and those below `victim` keep their
// numbers.
void ExpectSurvivorsGoOn(RankContext& context, int victim) {
  const int n = context.nranks() - 1;
  const int rank = context.rank() < victim ? context.rank() : context.rank() - 1;
  ncclUniqueId id;
  if (rank == 0) {
    ASSERT_OK(ncclGetUniqueId(&id));
    std::memcpy(context.board() + 65536, &id, sizeof id);
  }
  ASSERT_TRUE(context.Barrier(7, n));
  std::memcpy(&id, context.board() + 65536, sizeof id);
  ncclComm_t comm = nullptr;
  ASSERT_TRUE(context.Step("init of the survivors"));
  ASSERT_OK(ncclCommInitRank(&comm, n, id, rank));
  Clique clique;
  ASSERT_TRUE(clique.Adopt(comm));
  CaseRunner runner(context, clique, size_t{1} << 20);
  ASSERT_TRUE(runner.Run({Call::kAllReduce, ncclFloat32, Fold::kSum, 1000, 0, Seed()}, {}));
}

// ---- death ----

class DeathTest : public testing::TestWithParam<size_t> {};  // elements of the operation

TEST_P(DeathTest, WhileOthersWaitForItsCall) {
  RunRanks(Processes(4), [](RankContext& context) {
    constexpr int kVictim = 2;
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<int> data(GetParam(), 1);
    ASSERT_OK(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Step("second operation"));
    if (context.rank() != kVictim) {
      ASSERT_OK(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                              Cuda(clique.stream())));
      ASSERT_TRUE(context.Barrier(1, 4));
      ASSERT_NO_FATAL_FAILURE(ExpectRemoteError(context, &clique, kVictim));
      ASSERT_NO_FATAL_FAILURE(ExpectSurvivorsGoOn(context, kVictim));
    } else {
      ASSERT_TRUE(context.Barrier(1, 4));
      DieNow(context);
    }
  });
}

TEST_P(DeathTest, AnywhereInAStreamOfOperations) {
  for (int round = 0; round < 6; ++round) {
    RunRanks(Processes(3), [round](RankContext& context) {
      const int victim = round % 3;
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      std::vector<int> data(GetParam());
      std::atomic<bool> stop{false};
      std::thread killer;
      if (context.rank() == victim) {
        // Dies somewhere in the loop below.
        killer = std::thread([&context, round] {
          Random random(Scramble(Seed(), static_cast<uint64_t>(round)));
          const uint64_t until = NowNs() + 1000000 + random.Below(20000000);
          while (NowNs() < until) std::this_thread::yield();
          DieNow(context);
        });
      }
      ncclResult_t result = ncclSuccess;
      uint64_t done = 0;
      while (result == ncclSuccess) {
        for (int& value : data) value = 1;
        result = ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                               Cuda(clique.stream()));
        if (result == ncclSuccess) result = axcclStreamSynchronize(clique.stream());
        if (result != ncclSuccess) break;
        // A call that succeeded has the right result.
        ++done;
        for (const int value : data) ASSERT_EQ(value, 3) << "operation " << done;
      }
      EXPECT_EQ(result, ncclRemoteError) << ncclGetLastError(nullptr);
      EXPECT_LT(NowNs(), context.Await(kDeathCell) + AllowedNs(100));
      EXPECT_TRUE(harness::LastErrorHas("rank " + std::to_string(victim))) << ncclGetLastError(nullptr);
      ASSERT_TRUE(context.Barrier(1, 2));  // a rank that left now could be mistaken for the victim
      EXPECT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, DeathTest, testing::Values(size_t{1}, size_t{5000}, size_t{1} << 20));

TEST(Death, IsSeenByRanksThatOnlyPoll) {
  RunRanks(Processes(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    if (context.rank() == 0) {
      ASSERT_TRUE(context.Barrier(1, 3));
      DieNow(context);
    }
    int data = 1;
    ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(context.Barrier(1, 3));
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && !context.AnyFailed()) {
      ASSERT_OK(ncclCommGetAsyncError(clique.comm(), &state));
      harness::LookLater();
    }
    EXPECT_EQ(state, ncclRemoteError);
    EXPECT_LT(NowNs(), context.Await(kDeathCell) + AllowedNs(100));
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

// Rank 0 may be waiting for rank 1, which lives and has not called yet.
TEST(Death, IsSeenWhileAnotherRankIsLate) {
  RunRanks(Processes(3), [](RankContext& context) {
    constexpr int kSeenCell = 21;
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    int data = 1;
    if (context.rank() == 0) {
      ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    }
    ASSERT_TRUE(context.Barrier(1, 3));
    if (context.rank() == 2) DieNow(context);
    if (context.rank() == 0) {
      ASSERT_NO_FATAL_FAILURE(ExpectRemoteError(context, &clique, 2));
      context.Set(kSeenCell, 1);
    } else {
      context.Await(kSeenCell);
      EXPECT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
    }
  });
}

TEST(Death, InPointToPoint) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<int> data(100000);
    if (context.rank() == 1) {
      ASSERT_TRUE(context.Barrier(1, 2));
      DieNow(context);
    }
    ASSERT_OK(ncclRecv(data.data(), data.size(), ncclInt32, 1, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(context.Barrier(1, 2));
    ASSERT_NO_FATAL_FAILURE(ExpectRemoteError(context, &clique, 1));
  });
}

TEST(Death, ExitWithoutDestroyIsDeathToo) {
  RunRanks(Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    if (context.rank() == 1) {
      ASSERT_TRUE(context.Barrier(1, 2));
      context.Set(kDeathCell, NowNs());
      _exit(0);
    }
    int data = 1;
    ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(context.Barrier(1, 2));
    ASSERT_NO_FATAL_FAILURE(ExpectRemoteError(context, &clique, 1));
  });
}

TEST(Death, DestroyDoesNotWaitForTheDead) {
  RunRanks(Processes(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) DieNow(context);
    context.Await(kDeathCell);
    ASSERT_TRUE(context.Step("destroy"));
    const uint64_t start = NowNs();
    const ncclResult_t result = ncclCommDestroy(clique.comm());
    EXPECT_TRUE(result == ncclSuccess || result == ncclRemoteError) << result;
    EXPECT_LT(NowNs() - start, AllowedNs(1000));
    clique.ForgetComms();
  });
}

// Reads log lines from `fd` until one has `text`; false at the end of the log.
bool AwaitLogLine(int fd, const std::string& text) {
  std::string line;
  for (char c; read(fd, &c, 1) == 1;) {
    if (c != '\n') {
      line += c;
    } else if (line.find(text) != std::string::npos) {
      return true;
    } else {
      line.clear();
    }
  }
  return false;
}

TEST(Death, DuringInitNamesTheRank) {
  // Rank 1 has joined (its own thread polls a non-blocking init while rank 2 never comes) and then dies. The log of the
  // process that serves the id, a pipe that rank 1 reads, shows that it has joined.
  int log[2];
  ASSERT_EQ(pipe(log), 0);
  harness::RunOptions options;
  options.environment = {{"NCCL_DEBUG", "INFO"},
                         {"NCCL_DEBUG_SUBSYS", "BOOTSTRAP"},
                         {"NCCL_DEBUG_FILE", "/proc/self/fd/" + std::to_string(log[1])}};
  RunRanks(
      Processes(3),
      [&log](RankContext& context) {
        ncclUniqueId id;
        ASSERT_TRUE(ShareUniqueId(context, &id));
        if (context.rank() == 2) {
          context.Await(kDeathCell);
          return;
        }
        const ncclComm_t comm = harness::BeginInit(id, 3, context.rank());
        ASSERT_NE(comm, nullptr);
        if (context.rank() == 1) {
          const std::string come = "rank 1 (pid " + std::to_string(getpid()) + " on ";
          ASSERT_TRUE(context.Step("wait for the log line of rank 1"));
          ASSERT_TRUE(AwaitLogLine(log[0], come));
          DieNow(context);
        }
        const uint64_t death = context.Await(kDeathCell);
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress && !context.AnyFailed() && NowNs() < death + AllowedNs(1000)) {
          ASSERT_OK(ncclCommGetAsyncError(comm, &state));
          harness::LookLater();
        }
        EXPECT_EQ(state, ncclRemoteError) << ncclGetLastError(nullptr);
        EXPECT_TRUE(harness::LastErrorHas("rank 1")) << ncclGetLastError(nullptr);
        EXPECT_OK(ncclCommAbort(comm));
      },
      options);
  close(log[0]);
  close(log[1]);
}

TEST(Death, ShrinkWithAbortGoesOnWithoutTheDead) {
  RunRanks(Processes(4), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    if (context.rank() == 3) {
      ASSERT_TRUE(context.Barrier(1, 4));
      DieNow(context);
    }
    int data = 1;
    ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(context.Barrier(1, 4));
    EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclRemoteError);
    int dead[1] = {3};
    ncclComm_t rest = nullptr;
    ASSERT_TRUE(context.Step("shrink"));
    ASSERT_OK(ncclCommShrink(clique.comm(), dead, 1, &rest, nullptr, NCCL_SHRINK_ABORT));
    data = 1;
    ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, rest, Cuda(clique.stream())));
    EXPECT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(data, 3);
    EXPECT_OK(ncclCommDestroy(rest));
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

// ---- abort ----

class AbortTest : public testing::TestWithParam<std::tuple<harness::Layout, size_t>> {};

TEST_P(AbortTest, EndsAWaitFromAnotherThread) {
  const size_t count = std::get<1>(GetParam());
  RunRanks(std::get<0>(GetParam()), [count](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<int> data(count, 1);
    // The last rank never calls.
    if (context.rank() == context.nranks() - 1) {
      ASSERT_TRUE(context.Barrier());
      const uint64_t start = NowNs();
      EXPECT_OK(ncclCommAbort(clique.comm()));
      EXPECT_LT(NowNs() - start, AllowedNs(100));
      clique.ForgetComms();
      return;
    }
    ASSERT_OK(ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    uint64_t aborted_at = 0;
    const ncclComm_t comm = clique.comm();
    std::atomic<bool> waiting{false};
    ncclResult_t abort_result = ncclInternalError;
    uint64_t abort_ns = 0;
    std::thread aborter([&] {
      waiting.wait(false);
      context.Barrier();
      aborted_at = NowNs();
      abort_result = ncclCommAbort(comm);
      abort_ns = NowNs() - aborted_at;
    });
    waiting.store(true);
    waiting.notify_all();
    const ncclResult_t result = axcclStreamSynchronize(clique.stream());
    const uint64_t ended_at = NowNs();
    aborter.join();
    EXPECT_NE(result, ncclSuccess);
    EXPECT_OK(abort_result);
    EXPECT_LT(abort_ns, AllowedNs(100));
    EXPECT_LT(ended_at, aborted_at + AllowedNs(100));
    EXPECT_EQ(ncclCommAbort(comm), ncclInvalidArgument);
    clique.ForgetComms();
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, AbortTest,
                         testing::Combine(testing::Values(Processes(2), Processes(4), Threads(3)),
                                          testing::Values(size_t{1}, size_t{300000})),
                         [](const auto& info) {
                           return std::get<0>(info.param).Text() + "x" + std::to_string(std::get<1>(info.param));
                         });

TEST(Abort, WithEveryPeerDead) {
  RunRanks(Processes(4), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    if (context.rank() != 0) {
      ASSERT_TRUE(context.Barrier(1, 4));
      DieNow(context);
    }
    int data = 1;
    ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(context.Barrier(1, 4));
    const uint64_t start = NowNs();
    EXPECT_OK(ncclCommAbort(clique.comm()));
    EXPECT_LT(NowNs() - start, AllowedNs(100));
    clique.ForgetComms();
    EXPECT_NE(axcclStreamSynchronize(clique.stream()), ncclSuccess);
    // The library still works for this rank alone.
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    ncclComm_t alone = nullptr;
    ASSERT_OK(ncclCommInitRank(&alone, 1, id, 0));
    data = 5;
    ASSERT_OK(ncclAllReduce(&data, &data, 1, ncclInt32, ncclSum, alone, Cuda(clique.stream())));
    EXPECT_OK(axcclStreamSynchronize(clique.stream()));
    EXPECT_EQ(data, 5);
    EXPECT_OK(ncclCommDestroy(alone));
  });
}

TEST(Abort, StormInTheMiddleOfOperations) {
  // Ranks run operations and abort at random points; no rank hangs, crashes or writes after its abort has returned.
  for (int round = 0; round < 10; ++round) {
    RunRanks(round % 2 == 0 ? Threads(3) : Processes(3), [round](RankContext& context) {
      Random random(Scramble(Seed(), static_cast<uint64_t>(round), static_cast<uint64_t>(context.rank())));
      for (int cycle = 0; cycle < 5; ++cycle) {
        ASSERT_TRUE(context.Step("cycle %d", cycle));
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        std::vector<int> data(size_t{1} << random.Below(18), 1);
        const ncclComm_t comm = clique.comm();
        const uint64_t delay = random.Below(3000000);
        std::thread aborter([comm, delay] {
          const uint64_t until = NowNs() + delay;
          while (NowNs() < until) std::this_thread::yield();
          EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
        });
        ncclResult_t result = ncclSuccess;
        while (result == ncclSuccess) {
          result =
              ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, comm, Cuda(clique.stream()));
          if (result == ncclSuccess) result = axcclStreamSynchronize(clique.stream());
        }
        aborter.join();
        axcclStreamSynchronize(clique.stream());
        // After the abort the buffer belongs to the caller alone.
        std::vector<int>().swap(data);
        clique.ForgetComms();
        ASSERT_TRUE(context.Barrier());
      }
    });
  }
}

}  // namespace
}  // namespace axccl::tests
