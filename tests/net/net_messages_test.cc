// Messages between two ranks of different hosts: how few packets they take where the ranks answer each other, that they
// are right in any order and of any size, and what their senders learn of receivers that do something else.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/harness/timing.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::AwaitCall;
using harness::Clique;
using harness::Cuda;
using harness::Random;
using harness::RankContext;
using harness::TestHosts;

class Talk {
 public:
  explicit Talk(RankContext& context) : context_(context), peer_(1 - context.rank()) {}

  bool Init() { return clique_.Init(context_); }
  Clique& clique() { return clique_; }
  ncclComm_t comm() { return clique_.comm(); }
  axcclStream_t stream() { return clique_.stream(); }
  ncclResult_t Send(const void* data, size_t bytes) {
    return ncclSend(data, bytes, ncclInt8, peer_, comm(), Cuda(stream()));
  }
  ncclResult_t Receive(void* data, size_t bytes) {
    return ncclRecv(data, bytes, ncclInt8, peer_, comm(), Cuda(stream()));
  }
  // Each rank sends, and the other answers, so many times.
  void Answer(int times) {
    uint64_t word = 0;
    for (int i = 0; i < 2 * times; ++i) {
      word = static_cast<uint64_t>(i);
      const bool sends = i % 2 == context_.rank();
      ASSERT_OK(sends ? Send(&word, sizeof word) : Receive(&word, sizeof word));
      ASSERT_OK(axcclStreamSynchronize(stream()));
      ASSERT_EQ(word, static_cast<uint64_t>(i));
    }
  }

 private:
  RankContext& context_;
  const int peer_;
  Clique clique_;
};

TEST(NetMessages, AnAnswerTakesOnePacket) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    constexpr int kTimes = 2000;
    Talk talk(context);
    ASSERT_TRUE(talk.Init());
    ASSERT_NO_FATAL_FAILURE(talk.Answer(100));
    ASSERT_TRUE(context.Barrier());
    const int64_t before = TestHosts::Counter(0, "tx_packets");
    ASSERT_NO_FATAL_FAILURE(talk.Answer(kTimes));
    const int64_t packets = TestHosts::Counter(0, "tx_packets") - before;
    EXPECT_GE(packets, kTimes);
    // The rest are acknowledgements of TCP, when a rank is late, and heartbeats.
    EXPECT_LT(packets, kTimes * 3 / 2);
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(NetMessages, ConnectionsPollIfAsked) {
  RunOnHosts(2, 2,
             [](const TestHosts&, RankContext& context) {
               Talk talk(context);
               ASSERT_TRUE(talk.Init());
               ASSERT_NO_FATAL_FAILURE(talk.Answer(20));
               int polled = 0;
               for (int fd = 0; fd < 1024; ++fd) {
                 int microseconds = 0;
                 socklen_t bytes = sizeof microseconds;
                 const bool is_socket = getsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &microseconds, &bytes) == 0;
                 polled += is_socket && microseconds == 70;
               }
               EXPECT_EQ(polled, 1) << "the line for data";
               ASSERT_TRUE(context.Barrier());
             },
             {{"AXCCL_BUSY_POLL", "70"}});
}

// Ranks that answer, that only send, that send in both directions at once, and anything in between.
void TalkInAnyOrder(RankContext& context) {
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  constexpr size_t kMost = 300000;
  Random random(harness::Scramble(harness::Seed(), 401));
  Talk talk(context);
  ASSERT_TRUE(talk.Init());
  std::vector<uint8_t> data[2] = {std::vector<uint8_t>(kMost), std::vector<uint8_t>(kMost)};  // out, in
  int mode = 0;
  for (int i = 0; i < 3000; ++i) {
    if (random.OneIn(30)) mode = static_cast<int>(random.Below(4));
    const size_t bytes =
        random.OneIn(40) ? random.Below(kMost) : random.Pick(std::vector<size_t>{0, 1, 8, 48, 49, 500});
    const int sender = mode == 0 ? i % 2 : mode == 1 ? 0 : mode == 2 ? 1 : static_cast<int>(random.Below(3));
    const bool sends = sender == context.rank() || sender == 2, receives = sender != context.rank();
    const auto value = [&](int from, size_t at) {
      return static_cast<uint8_t>(i * 7 + from * 91 + static_cast<int>(at));
    };
    const bool checks = random.OneIn(3) || bytes > 1000;
    for (size_t at = 0; sends && at < bytes; ++at) data[0][at] = value(context.rank(), at);
    if (receives) std::memset(data[1].data(), 0xee, bytes);
    ASSERT_OK(ncclGroupStart());
    if (sends) {
      ASSERT_OK(talk.Send(data[0].data(), bytes));
    }
    if (receives) {
      ASSERT_OK(talk.Receive(data[1].data(), bytes));
    }
    ASSERT_OK(ncclGroupEnd());
    ASSERT_OK(axcclStreamSynchronize(talk.stream()));
    for (size_t at = 0; checks && receives && at < bytes; ++at)
      ASSERT_EQ(data[1][at], value(1 - context.rank(), at))
          << "message " << i << " of " << bytes << " bytes, at " << at;
  }
  ASSERT_TRUE(context.Barrier());
}

TEST(NetMessages, AreRightInAnyOrder) {
  for (const bool lanes : {false, true}) {
    std::vector<std::pair<std::string, std::string>> environment;
    // Several turns of several lanes.
    if (lanes) environment = {{"NCCL_MIN_CTAS", "3"}, {"NCCL_MAX_CTAS", "3"}, {"AXCCL_SCRATCH_BYTES", "64K"}};
    RunOnHosts(
        2, 2, [](const TestHosts&, RankContext& context) { TalkInAnyOrder(context); }, environment);
  }
}

// The receiver keeps a signal, because it was right to do so until now; then it learns that this sender waits for it.
TEST(NetMessages, OneThatIsNoAnswerIsNotHeldUp) {
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        Talk talk(context);
        ASSERT_TRUE(talk.Init());
        ASSERT_OK(axcclCommSetTimeout(talk.comm(), 20));
        std::vector<uint8_t> data(300000);
        const auto send = [&](int round, uint8_t value) {
          const bool sends = context.rank() == round % 2;
          std::fill(data.begin(), data.end(), sends ? value : uint8_t{0xee});
          ASSERT_OK(sends ? talk.Send(data.data(), data.size()) : talk.Receive(data.data(), data.size()));
          ASSERT_OK(axcclStreamSynchronize(talk.stream()));
          ASSERT_EQ(data, std::vector<uint8_t>(data.size(), value));
        };
        for (int round = 0; round < 6; ++round) {
          ASSERT_NO_FATAL_FAILURE(talk.Answer(10));
          ASSERT_NO_FATAL_FAILURE(send(round, 1));
          // Carries what was kept, and answers nothing.
          ASSERT_OK(ncclAllReduce(data.data(), data.data(), 8, ncclUint8, ncclMax, talk.comm(), Cuda(talk.stream())));
          ASSERT_OK(axcclStreamSynchronize(talk.stream()));
          ASSERT_NO_FATAL_FAILURE(send(round, 2));
          ASSERT_TRUE(context.Barrier());
        }
      },
      {{"NCCL_MIN_CTAS", "3"}, {"NCCL_MAX_CTAS", "3"}, {"AXCCL_SCRATCH_BYTES", "64K"}});
}

TEST(NetMessages, TheLastOneArrivesAlthoughItsSenderHasGone) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Talk talk(context);
    ASSERT_TRUE(talk.Init());
    ASSERT_NO_FATAL_FAILURE(talk.Answer(20));
    if (context.rank() == 0) {
      const uint64_t last = 77;
      ASSERT_OK(talk.Send(&last, sizeof last));
      ASSERT_OK(axcclStreamSynchronize(talk.stream()));
      ASSERT_TRUE(talk.clique().Destroy());
      ASSERT_TRUE(context.Barrier());
    } else {
      ASSERT_TRUE(context.Barrier());
      uint64_t last = 0;
      ASSERT_OK(talk.Receive(&last, sizeof last));
      ASSERT_OK(axcclStreamSynchronize(talk.stream()));
      EXPECT_EQ(last, 77u);
    }
  });
}

// The first message, and any whose sender has got no answer to the one before, waits for its receiver.
TEST(NetMessages, OneThatNobodyReceivesIsReported) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    for (const bool answered : {false, true}) {
      Talk talk(context);
      ASSERT_TRUE(talk.Init());
      ASSERT_NO_FATAL_FAILURE(talk.Answer(answered ? 20 : 0));
      ASSERT_OK(axcclCommSetTimeout(talk.comm(), 0.5));
      if (context.rank() == 0) {
        const uint64_t word = 1;
        if (answered) {
          // The receiver's last answer stands for it: this one is on its way, and the next waits for its receiver.
          ASSERT_OK(AwaitCall(talk.Send(&word, sizeof word), talk.stream()));
        }
        EXPECT_EQ(AwaitCall(talk.Send(&word, sizeof word), talk.stream()), ncclTimeout);
        EXPECT_TRUE(harness::LastErrorHas("rank 1 in ncclSend count 8 int8")) << answered;
        EXPECT_TRUE(harness::LastErrorHas("AXCCL_TIMEOUT") || harness::LastErrorHas("axcclCommSetTimeout")) << answered;
      }
      ASSERT_TRUE(context.Barrier());
      EXPECT_OK(ncclCommAbort(talk.comm()));
      talk.clique().ForgetComms();
    }
  });
}

TEST(NetMessages, AMismatchAfterAnswersReachesBoth) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Talk talk(context);
    ASSERT_TRUE(talk.Init());
    ASSERT_NO_FATAL_FAILURE(talk.Answer(20));
    const uint64_t start = harness::NowNs();
    float four[4] = {};
    int three[3] = {};
    if (context.rank() == 0) {
      EXPECT_OK(ncclSend(four, 4, ncclFloat32, 1, talk.comm(), Cuda(talk.stream())));
    } else {
      EXPECT_EQ(AwaitCall(ncclRecv(three, 3, ncclInt32, 0, talk.comm(), Cuda(talk.stream())), talk.stream()),
                ncclInvalidUsage);
    }
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && harness::NowNs() - start < harness::AllowedNs(1000))
      ASSERT_OK(ncclCommGetAsyncError(talk.comm(), &state));
    EXPECT_NE(state, ncclSuccess) << "rank " << context.rank();
    const std::string text = ncclGetLastError(nullptr);
    for (const char* part : {"ncclSend count 4 float", "ncclRecv count 3 int32"})
      EXPECT_NE(text.find(part), std::string::npos) << "rank " << context.rank() << ": " << text;
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommAbort(talk.comm()));
    talk.clique().ForgetComms();
  });
}

}  // namespace
}  // namespace axccl::tests
