// What goes by way of another process of the receiver's machine, which is stopped or dead, comes all the same; and who
// is only stopped, or cut off, is not taken for dead.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/process_state.h"
#include "tests/harness/timing.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::AwaitState;
using harness::Clique;
using harness::LastErrorHas;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::TestHosts;

constexpr int kPid = 20, kStopped = 21, kReady = 22;
const std::vector<std::pair<std::string, std::string>> kQuiet = {{"AXCCL_NET_MEASURE", "never"}};

void PublishPid(RankContext& context) { context.Set(kPid, static_cast<uint64_t>(getpid())); }
void Signal(RankContext& context, int signal) { EXPECT_EQ(kill(static_cast<pid_t>(context.Get(kPid)), signal), 0); }

ncclResult_t AllReduce(const Clique& clique) {
  std::vector<int> data(1000, 1);
  return harness::AwaitCall(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum, clique.comm(),
                                          harness::Cuda(clique.stream())),
                            clique.stream(), clique.comm());
}

ncclResult_t Receive(const Clique& clique, int from) {
  int data = 0;
  return harness::AwaitCall(ncclRecv(&data, 1, ncclInt32, from, clique.comm(), harness::Cuda(clique.stream())),
                            clique.stream(), clique.comm());
}

void Abort(Clique* clique) {
  EXPECT_OK(ncclCommAbort(clique->comm()));
  clique->ForgetComms();
}

// Makes the communicator, and stops that rank's process. Returns on all other ranks.
void MeetAndStop(RankContext& context, Clique* clique, int stopped) {
  ASSERT_TRUE(clique->Init(context));
  if (context.rank() == stopped) PublishPid(context);
  ASSERT_TRUE(context.Barrier());
  if (context.rank() == stopped) context.Freeze();
  AwaitState(context, context.Get(kPid), 'T');
}

// Linux gives up a connection whose peer leaves no room for longer than it waits for a machine that does not answer.
// All other ranks of two hosts wait for those of the stopped process, and tell each other so by way of it.
TEST(Stopped, ProcessIsNotDeadHoweverMuchItIsTold) {
  constexpr int kThreads = 8;
  const auto hosts = TestHosts::Create(2, 1);
  ASSERT_NE(hosts, nullptr);
  RunOptions options;
  options.hosts = hosts.get();
  options.environment = kQuiet;
  options.environment.emplace_back("NCCL_ALGO", "hierarchical");
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    if (context.rank() == 0) PublishPid(context);
    ASSERT_TRUE(context.Barrier());
    std::thread waker;
    if (context.rank() == 2 * kThreads) {
      Signal(context, SIGSTOP);
      AwaitState(context, context.Get(kPid), 'T');
      context.Set(kStopped, 1);
      waker = std::thread([&] {
        sleep(6);
        Signal(context, SIGCONT);
      });
    }
    context.Await(kStopped);
    EXPECT_EQ(AllReduce(clique), ncclSuccess) << ncclGetLastError(nullptr);
    if (waker.joinable()) waker.join();
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks({4, kThreads, 1}, body, options);
}

// Ranks 0 and 2 are on one host, ranks 1 and 3 on the other. What rank 3 tells rank 0 goes by way of rank 2, which is
// stopped, and then killed, or not.
class RelayTest : public testing::TestWithParam<bool> {};

TEST_P(RelayTest, AnAbortIsKnown) {
  const bool dies = GetParam();
  RunOnHosts(
      2, 4,
      [=](const TestHosts&, RankContext& context) {
        Clique clique;
        ASSERT_NO_FATAL_FAILURE(MeetAndStop(context, &clique, 2));
        const int rank = context.rank();
        if (rank == 3) {
          Abort(&clique);
          context.Set(kReady, 1);
        }
        context.Await(kReady);
        if (rank == 0) {
          if (dies) Signal(context, SIGKILL);
          EXPECT_NE(Receive(clique, 3), ncclSuccess);
          EXPECT_TRUE(LastErrorHas("rank 3")) << ncclGetLastError(nullptr);
          if (!dies) Signal(context, SIGKILL);
        }
        ASSERT_TRUE(context.Barrier(1, 3));
        if (rank != 3) Abort(&clique);
      },
      kQuiet);
}
INSTANTIATE_TEST_SUITE_P(Ends, RelayTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Death" : "Stop"; });

// Rank 2 waits for rank 0, which hangs, and by way of which alone rank 1 can tell it anything. Rank 3 makes no call.
TEST(Relays, ThatHangHoldUpNoRevoke) {
  RunOnHosts(
      2, 4,
      [](const TestHosts&, RankContext& context) {
        Clique clique;
        ASSERT_NO_FATAL_FAILURE(MeetAndStop(context, &clique, 0));
        const int rank = context.rank();
        if (rank == 2) {
          context.Set(kReady, 1);
          EXPECT_NE(Receive(clique, 0), ncclSuccess);
          Signal(context, SIGKILL);
        }
        if (rank == 1) {
          context.Await(kReady);
          EXPECT_OK(ncclCommRevoke(clique.comm(), NCCL_REVOKE_DEFAULT));
        }
        ASSERT_TRUE(context.Barrier(1, 3));
        Abort(&clique);
      },
      kQuiet);
}

// Both hosts have an interface with the same address, as of a bridge for virtual machines, or the loopback: what
// listens there on the own host says nothing about a process of the other one. It is a rail, which is not used.
class SameAddressTest : public testing::TestWithParam<bool> {};

TEST_P(SameAddressTest, OnePartGoesOnAfterACut) {
  const bool bridge = GetParam();
  const auto hosts = TestHosts::Create(2, 1);
  ASSERT_NE(hosts, nullptr);
  for (int host = 0; bridge && host < 2; ++host) {
    ASSERT_EQ(hosts->Run(host, {"ip", "link", "add", "virbr0", "type", "bridge"}), 0);
    ASSERT_EQ(hosts->Run(host, {"ip", "addr", "add", "192.168.122.1/24", "dev", "virbr0"}), 0);
    ASSERT_EQ(hosts->Run(host, {"ip", "link", "set", "virbr0", "up"}), 0);
  }
  RunOptions options;
  options.hosts = hosts.get();
  options.environment = kQuiet;
  options.environment.emplace_back("NCCL_SOCKET_IFNAME", bridge ? "^docker,lo" : "^docker");
  const auto body = [&](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      EXPECT_TRUE(hosts->Cut(1, TestHosts::Way::kBoth));
    }
    while (AllReduce(clique) == ncclSuccess) continue;
    ncclComm_t rest = nullptr;
    const ncclResult_t result = ncclCommShrink(clique.comm(), nullptr, 0, &rest, nullptr, NCCL_SHRINK_DEFAULT);
    EXPECT_EQ(result, context.rank() == 0 ? ncclSuccess : ncclRemoteError) << ncclGetLastError(nullptr);
    if (rest != nullptr) {
      EXPECT_OK(ncclCommDestroy(rest));
    }
    Abort(&clique);
  };
  RunRanks(harness::Processes(2), body, options);
}
INSTANTIATE_TEST_SUITE_P(Rails, SameAddressTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Bridge" : "Loopback"; });

}  // namespace
}  // namespace axccl::tests
