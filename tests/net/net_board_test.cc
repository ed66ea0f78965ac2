// The op boards of ranks on other machines, which the processes there are asked for.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/channels.h"
#include "tests/harness/client.h"
#include "tests/harness/op_board.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::BoardTexts;
using harness::Clique;
using harness::Cuda;
using harness::LastErrorHas;
using harness::RankContext;
using harness::ReadBoard;
using harness::TestHosts;
using harness::Texts;

// Ranks 0 and 2 are on the first host, 1 and 3 on the second. Rank 1 waits in a sum until rank 0 joins it.
class Waiting {
 public:
  explicit Waiting(RankContext& context) : context_(context) {
    EXPECT_TRUE(clique_.Init(context));
    if (context.rank() == 1) Enqueue();
    EXPECT_TRUE(context.Barrier(1));
  }
  ncclComm_t comm() const { return clique_.comm(); }
  void Enqueue() {
    EXPECT_OK(ncclAllReduce(in_.data(), out_.data(), in_.size(), ncclFloat, ncclSum, comm(), Cuda(clique_.stream())));
  }
  void Finish() {
    if (context_.rank() != 1) Enqueue();
    EXPECT_TRUE(clique_.Synchronize());
  }
  void Leave() {
    EXPECT_OK(ncclCommAbort(comm()));
    clique_.ForgetComms();
  }
  // Returns the error of asking for the board of rank 1.
  ncclResult_t Ask() const {
    int count = 0;
    return axcclCommGetOps(comm(), 1, nullptr, 0, &count);
  }

 private:
  RankContext& context_;
  Clique clique_;
  std::array<float, 8> in_{}, out_{};
};

TEST(FarBoard, ShowsWhatARankOfAnotherMachineIsDoing) {
  RunOnHosts(2, 4, [](const TestHosts&, RankContext& context) {
    Waiting waiting(context);
    EXPECT_EQ(BoardTexts(waiting.comm(), 1), Texts({"under way #0"}));
    EXPECT_EQ(BoardTexts(waiting.comm(), 3), Texts());
    const axcclOpInfo_t op = ReadBoard(waiting.comm(), 1).at(0);
    EXPECT_EQ(op.use, axcclOpOnChannel);
    EXPECT_EQ(op.peer, -1);
    EXPECT_EQ(op.created, 0);
    EXPECT_EQ(op.count, 8u);
    EXPECT_EQ(op.bytes, 8 * sizeof(float));
    EXPECT_STREQ(op.call, "ncclAllReduce count 8 float sum");
    EXPECT_TRUE(context.Barrier(2));
    waiting.Finish();
    EXPECT_TRUE(context.Barrier(3));
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(BoardTexts(waiting.comm(), rank), Texts({"done #0"}));
    EXPECT_TRUE(context.Barrier(4));
  });
}

// More than a socket takes at once, and than an answer holds, asked for by several threads.
TEST(FarBoard, ManyOperationsAreCountedAndTheFirstOnesShown) {
  constexpr int kChannels = 60, kCalls = 16, kAtLeast = 400;
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    harness::Gather gather(2, 1, context.rank());
    for (int i = 0; i < kChannels; ++i) {
      const axcclChannel_t channel = harness::MakeChannel(clique.comm(), 2, {}, 100 + i);
      for (int call = 0; call < kCalls; ++call) ASSERT_OK(gather.Enqueue(channel, clique.stream()));
    }
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier(1));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        std::vector<axcclOpInfo_t> ops(kChannels * kCalls);
        ops[0].size = sizeof(ops[0]);
        int count = 0;
        EXPECT_OK(axcclCommGetOps(clique.comm(), 1 - context.rank(), ops.data(), kChannels * kCalls, &count));
        EXPECT_EQ(count, kChannels * kCalls);
        for (size_t i = 0; i < kAtLeast; ++i) {
          EXPECT_EQ(ops[i].state, axcclOpDone);
          EXPECT_GE(ops[i].channel_id, 100);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(context.Barrier(2));
  });
}

constexpr int kPid = 1, kLeft = 2;

// Stops rank 1 and returns its process on the others.
pid_t StopRank1(RankContext& context) {
  if (context.rank() == 1) {
    context.Set(kPid, static_cast<uint64_t>(getpid()));
    context.Freeze();
  }
  const auto victim = static_cast<pid_t>(context.Await(kPid));
  harness::AwaitStop(context, victim);
  return victim;
}

// A process that is stopped does not answer, and one that is dead neither, but their neighbour does, as long as it
// shares the communicator.
TEST(FarBoard, OfAStoppedOrDeadRankIsReadByItsNeighbour) {
  RunOnHosts(2, 4, [](const TestHosts&, RankContext& context) {
    Waiting waiting(context);
    const pid_t victim = StopRank1(context);
    EXPECT_TRUE(context.Barrier(2, 3));
    if (context.rank() == 3) {
      context.Await(kLeft);
      context.Die();
    }
    EXPECT_EQ(BoardTexts(waiting.comm(), 1), Texts({"under way #0"}));
    EXPECT_TRUE(context.Barrier(3, 2));
    if (context.rank() == 0) {
      kill(victim, SIGKILL);
      Texts texts;
      do texts = BoardTexts(waiting.comm(), 1);
      while (texts == Texts{"under way #0"} && !context.AnyFailed());
      EXPECT_EQ(texts, Texts({"failed #0"}));
      context.Set(kLeft, 1);
      while (waiting.Ask() == ncclSuccess && !context.AnyFailed()) continue;
      EXPECT_TRUE(LastErrorHas("what rank 1 is doing is not known here: no process of its machine is left"))
          << ncclGetLastError(nullptr);
    }
    waiting.Leave();
  });
}

TEST(FarBoard, IsAnErrorIfNobodyAnswers) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Waiting waiting(context);
    const pid_t victim = StopRank1(context);
    EXPECT_EQ(waiting.Ask(), ncclTimeout);
    EXPECT_TRUE(LastErrorHas("have not answered for 3 s; are they stopped?")) << ncclGetLastError(nullptr);
    // An abort does not wait for that.
    std::atomic<bool> asks{false};
    std::thread asking([&] {
      asks = true;
      EXPECT_NE(waiting.Ask(), ncclSuccess);
      EXPECT_FALSE(LastErrorHas("have not answered")) << ncclGetLastError(nullptr);
    });
    while (!asks) std::this_thread::yield();
    waiting.Leave();
    asking.join();
    kill(victim, SIGKILL);
  });
}

}  // namespace
}  // namespace axccl::tests
