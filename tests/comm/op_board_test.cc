// What the op board shows of calls: on the rank itself and on its peers, in other threads and other processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/channels.h"
#include "tests/harness/client.h"
#include "tests/harness/networks.h"
#include "tests/harness/op_board.h"

namespace axccl::tests {
namespace {

using harness::BoardTexts;
using harness::Clique;
using harness::Cuda;
using harness::Gather;
using harness::Layout;
using harness::Processes;
using harness::RankContext;
using harness::ReadBoard;
using harness::RunCliques;
using harness::Sorted;
using harness::Texts;
using harness::Threads;

constexpr int kCount = 8;
constexpr size_t kRecords = 16;  // board.h: of each channel the last 16

// A sum of floats of all ranks of the communicator.
class Sum {
 public:
  ncclResult_t Enqueue(const Clique& clique, size_t count = kCount) {
    return ncclAllReduce(in_.data(), out_.data(), count, ncclFloat, ncclSum, clique.comm(), Cuda(clique.stream()));
  }

 private:
  std::array<float, kCount + 1> in_{}, out_{};
};

class OpBoardTest : public testing::TestWithParam<Layout> {};

TEST_P(OpBoardTest, AWaitingRankIsSeenByItselfAndByTheLateOne) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    Sum sum;
    if (context.rank() == 0) {
      ASSERT_OK(sum.Enqueue(clique));
    }
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(BoardTexts(clique.comm(), 0), Texts({"under way #0"}));
    EXPECT_EQ(BoardTexts(clique.comm(), 1), Texts());
    const axcclOpInfo_t op = ReadBoard(clique.comm(), 0).at(0);
    EXPECT_EQ(op.size, sizeof(op));
    EXPECT_EQ(op.use, axcclOpOnChannel);
    EXPECT_EQ(op.peer, -1);
    EXPECT_EQ(op.count, uint64_t{kCount});
    EXPECT_EQ(op.bytes, kCount * sizeof(float));
    EXPECT_STREQ(op.call, "ncclAllReduce count 8 float sum");
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      ASSERT_OK(sum.Enqueue(clique));
    }
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
    for (const int rank : {0, 1}) EXPECT_EQ(BoardTexts(clique.comm(), rank), Texts({"done #0"}));
    ASSERT_TRUE(context.Barrier());
  });
}

// A call through slots that has run before, and finds that its peer has called, takes a shorter way.
TEST_P(OpBoardTest, ShowsCallsThatNeverWait) {
  const auto body = [](RankContext& context, Clique& clique) {
    Sum sum;
    for (int i = 0; i < 4; ++i) {
      if (context.rank() == 0) {
        ASSERT_OK(sum.Enqueue(clique));
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 1) {
        ASSERT_OK(sum.Enqueue(clique));
      }
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_TRUE(context.Barrier());
    }
    for (const int rank : {0, 1})
      EXPECT_EQ(BoardTexts(clique.comm(), rank), Texts({"done #3", "done #2", "done #1", "done #0"}));
    ASSERT_TRUE(context.Barrier());
  };
  RunCliques(GetParam(), body, {.environment = {{"NCCL_ALGO", "oneshot"}}});
}

TEST_P(OpBoardTest, KeepsTheLastCallsAndWritesNoMoreThanThereIsRoomFor) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    constexpr uint64_t kCalls = 40;
    Sum sum;
    for (uint64_t i = 0; i < kCalls; ++i) ASSERT_OK(sum.Enqueue(clique));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      ASSERT_OK(sum.Enqueue(clique));
    }
    ASSERT_TRUE(context.Barrier());
    const std::vector<axcclOpInfo_t> ops = ReadBoard(clique.comm(), 0);
    ASSERT_EQ(ops.size(), kRecords);
    for (size_t i = 0; i < ops.size(); ++i) {
      EXPECT_EQ(ops[i].state, i == 0 ? axcclOpUnderWay : axcclOpDone) << i;
      EXPECT_EQ(ops[i].sequence, kCalls - i);
    }
    // A program that knows fewer fields, and one that knows more.
    constexpr size_t kFew = offsetof(axcclOpInfo_t, count), kMany = sizeof(axcclOpInfo_t) + 2 * sizeof(void*);
    for (const size_t size : {kFew, kMany}) {
      std::vector<std::byte> memory(3 * kMany, std::byte{0xee});
      auto* const first = reinterpret_cast<axcclOpInfo_t*>(memory.data());
      first->size = size;
      int count = 0;
      ASSERT_OK(axcclCommGetOps(clique.comm(), 0, first, 2, &count));
      EXPECT_EQ(count, static_cast<int>(kRecords));
      const auto* const second = reinterpret_cast<const axcclOpInfo_t*>(memory.data() + size);
      EXPECT_EQ(second->size, size);
      EXPECT_EQ(second->sequence, kCalls - 1);
      EXPECT_EQ(memory[2 * size - 1], size == kMany ? std::byte{0} : memory[size - 1]);
      EXPECT_EQ(memory[2 * size], std::byte{0xee});
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      ASSERT_OK(sum.Enqueue(clique));
    }
    ASSERT_TRUE(clique.Synchronize());
  });
}

TEST_P(OpBoardTest, ShowsMessagesAndCreatedChannels) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    constexpr int64_t kId = 7;
    const int rank = context.rank();
    axcclChannel_t channel = harness::MakeChannel(clique.comm(), 2, {}, kId);
    Gather gather(2, 3, rank);
    ASSERT_OK(gather.Enqueue(channel, clique.stream()));
    int value = rank;
    ASSERT_OK(rank == 0 ? ncclSend(&value, 1, ncclInt, 1, clique.comm(), Cuda(clique.stream()))
                        : ncclRecv(&value, 1, ncclInt, 0, clique.comm(), Cuda(clique.stream())));
    int64_t in_value = rank, out_value = -1;
    const int64_t one = 1, pairs[] = {1, 0};
    axcclView_t in = AXCCL_VIEW_INITIALIZER, out = AXCCL_VIEW_INITIALIZER;
    in.data = &in_value, out.data = &out_value;
    in.datatype = out.datatype = ncclInt64, in.num_dims = out.num_dims = 1, in.sizes = out.sizes = &one;
    ASSERT_OK(axcclCollectivePermute(1, &in, &out, pairs, 1, channel, nullptr, Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
    for (const int r : {0, 1}) {
      const std::string with = " with " + std::to_string(1 - r);
      EXPECT_EQ(Sorted(BoardTexts(clique.comm(), r)),
                Sorted({"done #0 on 7", "done #0 message" + with, "done #0 message" + with + " on 7"}));
    }
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(axcclChannelDestroy(channel));
    ASSERT_TRUE(context.Barrier());
    for (const int r : {0, 1})
      EXPECT_EQ(BoardTexts(clique.comm(), r), Texts({"done #0 message with " + std::to_string(1 - r)}));
    ASSERT_TRUE(context.Barrier());
  });
}

// Memory of channels that are not in use stays untouched.
TEST_P(OpBoardTest, ReadingTakesNoMemory) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    Sum sum;
    ASSERT_OK(sum.Enqueue(clique));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
    const auto memory = [&] { return harness::InfoOf(clique.comm()).memory_bytes; };
    const uint64_t before = memory();
    ASSERT_TRUE(context.Barrier());
    for (const int rank : {0, 1}) EXPECT_EQ(BoardTexts(clique.comm(), rank), Texts({"done #0"}));
    ASSERT_TRUE(context.Barrier());
    EXPECT_EQ(memory(), before);
    ASSERT_TRUE(context.Barrier());
  });
}

TEST_P(OpBoardTest, CallsOfAFailedCommunicatorHaveFailed) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    Sum sum;
    ASSERT_OK(sum.Enqueue(clique));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_OK(sum.Enqueue(clique, kCount + static_cast<size_t>(context.rank())));
    EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclInvalidUsage);
    ASSERT_TRUE(context.Barrier());
    for (const int rank : {0, 1}) EXPECT_EQ(BoardTexts(clique.comm(), rank), Texts({"failed #1", "done #0"}));
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

TEST_P(OpBoardTest, WrongArgumentsAreErrors) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    axcclOpInfo_t op{};
    op.size = sizeof(op);
    int count = -5;
    const auto refused = [&](int rank, axcclOpInfo_t* ops, int capacity, int* number, const char* text) {
      EXPECT_EQ(axcclCommGetOps(clique.comm(), rank, ops, capacity, number), ncclInvalidArgument);
      EXPECT_TRUE(harness::LastErrorHas(text)) << ncclGetLastError(nullptr);
    };
    refused(-1, &op, 1, &count, "argument rank is -1; pass 0..1");
    refused(2, &op, 1, &count, "argument rank is 2; pass 0..1");
    refused(0, &op, 1, nullptr, "argument count is NULL");
    refused(0, &op, -1, &count, "argument capacity is -1; pass 0 or more");
    refused(0, nullptr, 1, &count, "argument ops is NULL");
    op.size = 0;
    refused(0, &op, 1, &count, "argument ops is without its size; set ops[0].size");
    EXPECT_EQ(count, -5);
    EXPECT_EQ(axcclCommGetOps(nullptr, 0, &op, 0, &count), ncclInvalidArgument);
    EXPECT_OK(axcclCommGetOps(clique.comm(), 0, nullptr, 0, &count));
    EXPECT_EQ(count, 0);
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(OpBoard, OfOneRankHasNoMessagesToItself) {
  RunCliques(Threads(1), [](RankContext&, Clique& clique) {
    Sum sum;
    ASSERT_OK(sum.Enqueue(clique));
    int in = 1, out = 0;
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclSend(&in, 1, ncclInt, 0, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(ncclRecv(&out, 1, ncclInt, 0, clique.comm(), Cuda(clique.stream())));
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(BoardTexts(clique.comm(), 0), Texts({"done #0"}));
  });
}

TEST(OpBoard, OfARankThatSharesNoMemoryIsAskedFor) {
  if (access(harness::kNetworks, F_OK) != 0) GTEST_SKIP() << harness::kNoNetworks;
  harness::RunRanks(Processes(2), [](RankContext& context) {
    const int rank = context.rank();
    setenv("NCCL_HOSTID", rank == 0 ? "one" : "two", 1);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Sum sum;
    for (int i = 0; i < 3; ++i) ASSERT_OK(sum.Enqueue(clique));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
    for (const int of : {rank, 1 - rank})
      EXPECT_EQ(BoardTexts(clique.comm(), of), Texts({"done #2", "done #1", "done #0"}));
    ASSERT_TRUE(context.Barrier());
  });
}

// A thread that reads the boards all the time, while calls run and channels come and go.
TEST_P(OpBoardTest, IsReadWhileCallsRun) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    constexpr int kRounds = 100, kCallsOfRound = 10;
    std::atomic<bool> ended{false};
    std::thread reader([&] {
      while (!ended.load()) {
        for (const int rank : {0, 1}) {
          for (const axcclOpInfo_t& op : ReadBoard(clique.comm(), rank)) {
            const std::string call = op.call;
            ASSERT_TRUE(call == "ncclAllReduce count 8 float sum" || call.starts_with("axcclAllGather of blocks [3]"))
                << call;
            ASSERT_LT(op.sequence, uint64_t{kRounds * kCallsOfRound});
            ASSERT_TRUE(op.state == axcclOpDone || op.state == axcclOpUnderWay);
          }
        }
      }
    });
    Sum sum;
    for (int round = 0; round < kRounds; ++round) {
      axcclChannel_t channel = harness::MakeChannel(clique.comm(), 2, {}, round % 3);
      Gather gather(2, 3, round);
      EXPECT_OK(gather.Enqueue(channel, clique.stream()));
      for (int i = 0; i < kCallsOfRound; ++i) EXPECT_OK(sum.Enqueue(clique));
      EXPECT_TRUE(clique.Synchronize());
      EXPECT_OK(axcclChannelDestroy(channel));
    }
    context.Barrier();
    ended = true;
    reader.join();
    context.Barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, OpBoardTest, testing::Values(Threads(2), Processes(2)),
                         [](const auto& layout) { return layout.param.Text(); });

TEST(OpBoard, ShowsARankThatIsStoppedAndThenDies) {
  RunCliques(Processes(2), [](RankContext& context, Clique& clique) {
    constexpr int kPid = 1;
    Sum sum;
    if (context.rank() == 1) {
      ASSERT_OK(sum.Enqueue(clique));
      context.Set(kPid, static_cast<uint64_t>(getpid()));
      context.Freeze();
    }
    const auto victim = static_cast<pid_t>(context.Await(kPid));
    ASSERT_NE(victim, 0);
    harness::AwaitStop(context, victim);
    EXPECT_EQ(BoardTexts(clique.comm(), 1), Texts({"under way #0"}));
    kill(victim, SIGKILL);
    Texts texts;
    do texts = BoardTexts(clique.comm(), 1);
    while (texts == Texts{"under way #0"} && !context.AnyFailed());
    EXPECT_EQ(texts, Texts({"failed #0"}));
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

}  // namespace
}  // namespace axccl::tests
