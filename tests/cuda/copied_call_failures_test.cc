// Calls that copy engines make, and that do not end by themselves: ranks make other calls, never come, die, abort or
// revoke. Their streams go on, and nothing is written that should not be.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/symmetric_memory.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::Layout;
using harness::NowNs;
using harness::RankContext;
using harness::RunRanks;

constexpr size_t kCount = 20'003;
constexpr size_t kSend = 4096, kRecv = size_t{1} << 20, kAll = size_t{2} << 20;
constexpr int32_t kMark = -2;

ncclResult_t Gather(const Symmetric& memory, const Clique& clique, size_t count = kCount, size_t send = kSend) {
  return ncclAllGather(memory.at(0, send), memory.at(0, kRecv), count, ncclInt32, clique.comm(), Cuda(clique.stream()));
}

void FillOutput(const RankContext& context, const Symmetric& memory, int32_t value) {
  memory.Fill(0, kRecv, static_cast<size_t>(context.nranks()) * kCount, value);
}
bool OutputIs(const RankContext& context, const Symmetric& memory, int32_t value) {
  const size_t count = static_cast<size_t>(context.nranks()) * kCount;
  return memory.ReadWords(0, kRecv, count) == std::vector<int32_t>(count, value);
}

void ExpectGatherWorks(const RankContext& context, const Clique& clique, const Symmetric& memory) {
  memory.Fill(0, kSend, kCount, context.rank() + 1);
  ASSERT_OK(Gather(memory, clique));
  ASSERT_OK(harness::SynchronizeStream(clique.stream()));
  for (int r = 0; r < context.nranks(); ++r) {
    const size_t last = kRecv + ((static_cast<size_t>(r) + 1) * kCount - 1) * sizeof(int32_t);
    ASSERT_EQ(memory.ReadWords(0, last, 1)[0], r + 1);
  }
  ASSERT_TRUE(ByEngines(clique.comm()));
}

// ---- calls that differ ----

TEST(Mismatch, OfCounts) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    ASSERT_NO_FATAL_FAILURE(ExpectGatherWorks(context, clique, memory));
    ASSERT_TRUE(context.Barrier());
    (void)Gather(memory, clique, kCount - static_cast<size_t>(context.rank()));
    EXPECT_EQ(AwaitError(clique.comm(), 1000), ncclInvalidUsage) << ncclGetLastError(nullptr);
    harness::ExpectLastErrorHas({"ncclAllGather count 20003", "ncclAllGather count 20002"});
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  };
  RunRanks(harness::Threads(2), body, Zero(2));
  RunRanks(harness::Processes(2), body, Zero(2));
}

// With a call that kernels make.
TEST(Mismatch, OfKinds) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    if (context.rank() == 1) {
      (void)ncclAllReduce(memory.at(0, kSend), memory.at(0, kSend), kCount, ncclInt32, ncclSum, clique.comm(),
                          Cuda(clique.stream()));
    } else {
      (void)Gather(memory, clique);
    }
    EXPECT_EQ(AwaitError(clique.comm(), 1000), ncclInvalidUsage) << ncclGetLastError(nullptr);
    harness::ExpectLastErrorHas({"ncclAllGather", "ncclAllReduce"});
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  };
  RunRanks(harness::Threads(3), body, Zero(3));
}

// Of buffers in the window, and of one that a rank has elsewhere.
TEST(Mismatch, OfPlaces) {
  for (const bool outside : {false, true}) {
    const auto body = [outside](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const Symmetric memory(clique, kAll);
      Words other(kCount, 1);
      ASSERT_TRUE(context.Barrier());
      if (outside && context.rank() == 1) {
        (void)ncclAllGather(other.get(), memory.at(0, kRecv), kCount, ncclInt32, clique.comm(), Cuda(clique.stream()));
      } else {
        (void)Gather(memory, clique, kCount, kSend + 64 * static_cast<size_t>(context.rank()));
      }
      EXPECT_EQ(AwaitError(clique.comm(), 1000), ncclInvalidUsage) << ncclGetLastError(nullptr);
      harness::ExpectLastErrorHas({"symmetric windows", "same offset"});
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
    };
    RunRanks(harness::Threads(2), body, Zero(2));
  }
}

// ---- ranks that do not come ----

class Missing : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Missing, testing::Values(harness::Threads(3), harness::Processes(3)),
                         [](const auto& info) { return info.param.Text(); });

TEST_P(Missing, RankPassesTheDeadline) {
  const std::string seconds = Deadline();
  const auto body = [&](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    ASSERT_NO_FATAL_FAILURE(ExpectGatherWorks(context, clique, memory));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() != 1) {
      for (int call = 0; call < 2; ++call) ASSERT_OK(Gather(memory, clique));
    }
    EXPECT_EQ(AwaitError(clique.comm(), 2000), ncclTimeout) << ncclGetLastError(nullptr);
    for (const std::string& part :
         {"waited " + seconds + " s for rank", std::string("in ncclAllGather count 20003 int32 (operation 2)"),
          std::string("not called by rank 1")})
      harness::ExpectLastErrorHas({part.c_str()});
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  };
  RunRanks(GetParam(), body, Zero(3, seconds));
}

// All have called, and one of them has other work to do first, for too long. Nothing writes to the others once their
// streams have gone on, and nothing to the late one before its stream gets to the call.
TEST_P(Missing, StreamPassesTheDeadline) {
  const std::string seconds = Deadline();
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    ASSERT_NO_FATAL_FAILURE(ExpectGatherWorks(context, clique, memory));
    FillOutput(context, memory, kMark - context.rank());
    ASSERT_TRUE(context.Barrier());
    std::unique_ptr<Gate> gate;
    if (context.rank() == 1) gate = std::make_unique<Gate>(clique.stream());
    ASSERT_OK(Gather(memory, clique));
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(AwaitError(clique.comm(), 2000), ncclTimeout) << ncclGetLastError(nullptr);
    if (context.rank() != 1) {
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      FillOutput(context, memory, kMark - context.rank());
    } else {
      EXPECT_TRUE(OutputIs(context, memory, kMark - context.rank())) << "its stream is not there";
      gate->Open();
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() != 1) {
      EXPECT_TRUE(OutputIs(context, memory, kMark - context.rank())) << "its stream had gone on";
    }
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  };
  RunRanks(GetParam(), body, Zero(3, seconds));
}

TEST(Death, OfARankEndsTheWait) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    ASSERT_NO_FATAL_FAILURE(ExpectGatherWorks(context, clique, memory));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) context.Die();
    (void)Gather(memory, clique);
    EXPECT_EQ(AwaitError(clique.comm(), 2000), ncclRemoteError) << ncclGetLastError(nullptr);
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ASSERT_NO_FATAL_FAILURE(Abort(&clique));
  };
  RunRanks(harness::Processes(3), body, Zero(3));
}

// ---- ranks that end it ----

enum class Ending { kAbort, kRevoke };

class Ended : public testing::TestWithParam<Ending> {};
INSTANTIATE_TEST_SUITE_P(By, Ended, testing::Values(Ending::kAbort, Ending::kRevoke),
                         [](const auto& info) { return info.param == Ending::kAbort ? "Abort" : "Revoke"; });

void End(Ending how, Clique* clique) {
  if (how == Ending::kRevoke) {
    ASSERT_OK(ncclCommRevoke(clique->comm(), NCCL_REVOKE_DEFAULT));
    return;
  }
  ASSERT_NO_FATAL_FAILURE(Abort(clique));
}

// Rank 0 waits for one whose stream does not get there.
TEST_P(Ended, WhileAStreamIsMissing) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    ASSERT_NO_FATAL_FAILURE(ExpectGatherWorks(context, clique, memory));
    FillOutput(context, memory, kMark);
    ASSERT_TRUE(context.Barrier());
    std::unique_ptr<Gate> gate;
    if (context.rank() == 1) gate = std::make_unique<Gate>(clique.stream());
    ASSERT_OK(Gather(memory, clique));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      EXPECT_EQ(EnterGpu()->query_stream(clique.stream()), 600) << "it does not wait";
      const uint64_t start = NowNs();
      ASSERT_NO_FATAL_FAILURE(End(GetParam(), &clique));
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      EXPECT_LT(NowNs() - start, AllowedNs(1000));
      FillOutput(context, memory, kMark);
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      EXPECT_TRUE(OutputIs(context, memory, kMark)) << "its stream is not there";
      gate->Open();
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      ASSERT_NO_FATAL_FAILURE(Abort(&clique));
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      EXPECT_TRUE(OutputIs(context, memory, kMark)) << "its stream had gone on";
      if (GetParam() == Ending::kRevoke) {
        ASSERT_NO_FATAL_FAILURE(Abort(&clique));
      }
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(2), body, Zero(2));
  RunRanks(harness::Processes(2), body, Zero(2));
}

// An abort ends windows, but not what copies under way read: those of this rank come when its stream lets them.
TEST(Abort, KeepsWhatCopiesRead) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Symmetric memory(clique, kAll);
    ASSERT_NO_FATAL_FAILURE(ExpectGatherWorks(context, clique, memory));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      Gate gate(clique.stream());
      ASSERT_OK(Gather(memory, clique));
      // It returns once the stream has gone on.
      std::thread aborter([comm = clique.comm()] { EXPECT_OK(ncclCommAbort(comm)); });
      int rank = 0;
      while (ncclCommUserRank(clique.comm(), &rank) == ncclSuccess) harness::LookLater();
      gate.Open();
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      aborter.join();
      clique.ForgetComms();
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() != 0) {
      ASSERT_NO_FATAL_FAILURE(Abort(&clique));
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(2), body, Zero(2));
  RunRanks(harness::Processes(2), body, Zero(2));
}

// At any moment of many calls, by any rank; what others of the process do goes on.
TEST_P(Ended, AtAnyMoment) {
  const auto body = [](RankContext& context) {
    Clique other;
    ASSERT_TRUE(other.Init(context));
    const Symmetric others(other, kAll);
    for (int round = 0; round < 6; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      const bool ends = context.rank() == round % context.nranks();
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const Symmetric memory(clique, kAll);
      ASSERT_TRUE(context.Barrier());
      for (int call = 0; call < 8; ++call) {
        if (call == round && ends) {
          ASSERT_NO_FATAL_FAILURE(End(GetParam(), &clique));
          break;
        }
        const ncclResult_t called = Gather(memory, clique);
        EXPECT_TRUE(called == ncclSuccess || called == ncclRemoteError || called == ncclInvalidUsage) << called;
        if (called != ncclSuccess) break;
      }
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      FillOutput(context, memory, kMark);
      ASSERT_TRUE(context.Barrier());
      EXPECT_TRUE(OutputIs(context, memory, kMark)) << "its stream had gone on";
      if (GetParam() != Ending::kAbort || !ends) {
        ASSERT_OK(ncclCommAbort(clique.comm()));
      }
      clique.ForgetComms();
      ASSERT_TRUE(context.Barrier());
      ASSERT_NO_FATAL_FAILURE(ExpectGatherWorks(context, other, others));
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(3), body, Zero(3));
  RunRanks(harness::Processes(3), body, Zero(3));
}

}  // namespace
}  // namespace axccl::tests
