// Processes that die and networks that break: every surviving rank learns of it in time, on both sides, and which rank
// on which host it was. What only looks like it is not taken for it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/residue.h"
#include "tests/harness/timing.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Entries;
using harness::NowNs;
using harness::RankContext;
using harness::TestHosts;
using Way = TestHosts::Way;

constexpr int kTimeCell = 20;  // when it happened, ns
constexpr int kPidCell = 30;   // + rank
constexpr int kConnectionsCell = 21;
constexpr int kMostConnections = 4;  // that two processes on different hosts hold to each other
constexpr uint64_t kPromisedNs = 4'000'000'000;
// A descriptor that is closed, and a thread that ends, may take the kernel a moment.
constexpr uint64_t kSettledNs = 5'000'000'000;

std::string NameOf(int rank, int hosts, uint64_t pid) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + " on host " + TestHosts::Name(rank % hosts) +
         ")";
}

// The error, within the time promised since `kTimeCell`, names one of `culprits`; then aborting takes no time.
void ExpectLost(RankContext& context, Clique* clique, ncclResult_t result, const std::vector<int>& culprits,
                int hosts) {
  const uint64_t now = NowNs(), since = context.Await(kTimeCell);
  EXPECT_EQ(result, ncclRemoteError) << ncclGetLastError(nullptr);
  EXPECT_LT(now - since, kPromisedNs * static_cast<uint64_t>(harness::TimeScale())) << "ns";
  const std::string text = ncclGetLastError(nullptr);
  bool named = false;
  for (const int rank : culprits)
    named |= text.find(NameOf(rank, hosts, context.Get(kPidCell + rank))) != std::string::npos;
  EXPECT_TRUE(named) << text;
  // Ranks tell each other: what one of them cannot reach another one may, that of the same host first of all.
  int who = -1, whom = -1;
  const size_t reach = text.find(" cannot reach ");
  if (reach == std::string::npos) {
    EXPECT_NE(text.find("died"), std::string::npos) << text;
  } else {
    EXPECT_EQ(std::sscanf(text.c_str() + text.rfind("rank ", reach), "rank %d cannot reach rank %d", &who, &whom), 2)
        << text;
    EXPECT_NE(who % hosts, whom % hosts) << text;
  }
  ncclResult_t state = ncclSuccess;
  EXPECT_OK(ncclCommGetAsyncError(clique->comm(), &state));
  EXPECT_EQ(state, ncclRemoteError);
  ASSERT_TRUE(context.Step("abort"));
  const uint64_t start = NowNs();
  EXPECT_OK(ncclCommAbort(clique->comm()));
  EXPECT_LT(NowNs() - start, harness::AllowedNs(100));
  clique->ForgetComms();
}

ncclResult_t AllReduce(Clique& clique, std::vector<int>* data) {
  const ncclResult_t result =
      ncclAllReduce(data->data(), data->data(), data->size(), ncclInt32, ncclMax, clique.comm(), Cuda(clique.stream()));
  return result == ncclSuccess ? axcclStreamSynchronize(clique.stream()) : result;
}

// A communicator that has worked, on every rank, and ranks that know each other's processes.
void Begin(RankContext& context, Clique* clique) {
  ASSERT_TRUE(clique->Init(context));
  context.Set(kPidCell + context.rank(), static_cast<uint64_t>(getpid()));
  std::vector<int> data(50000, context.rank());
  ASSERT_OK(AllReduce(*clique, &data));
  ASSERT_EQ(data, std::vector<int>(50000, context.nranks() - 1));
  ASSERT_TRUE(context.Barrier(1));
}

// Calls until one fails; idle, calls nothing before it has broken, and has no error until then.
ncclResult_t AwaitTrouble(RankContext& context, Clique& clique, bool busy, std::vector<int>* data) {
  ncclResult_t result = ncclSuccess;
  if (!busy) {
    context.Await(kTimeCell);
    EXPECT_OK(ncclCommGetAsyncError(clique.comm(), &result));
    EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
  }
  while (result == ncclSuccess && !context.AnyFailed()) result = AllReduce(clique, data);
  return result;
}

struct Break {
  const char* name;
  bool busy;
  Way way;
  int nics = 1;
};

class PartitionTest : public testing::TestWithParam<Break> {};

// Two hosts of two ranks; one is cut off. Once it is back, what was sent to the old communicator means nothing to a new
// one.
TEST_P(PartitionTest, BothSidesLearnOfItAndMeetAgain) {
  RunOnHosts(
      2, 4,
      [](const TestHosts& hosts, RankContext& context) {
        const int rank = context.rank();
        Clique clique;
        ASSERT_NO_FATAL_FAILURE(Begin(context, &clique));
        std::vector<int> data(50000, 7);
        std::thread breaker;
        if (rank == 0)
          breaker = std::thread([&] {
            usleep(50000);  // the others are at work then
            const bool cut = hosts.Cut(1, GetParam().way);
            context.Set(kTimeCell, NowNs());
            EXPECT_TRUE(cut);
          });
        ASSERT_TRUE(context.Step("until it breaks"));
        const ncclResult_t result = AwaitTrouble(context, clique, GetParam().busy, &data);
        if (breaker.joinable()) breaker.join();
        // One way, what the others have found about this side may still get here.
        std::vector<int> culprits = {(rank + 1) % 2, (rank + 1) % 2 + 2};
        if (GetParam().way != Way::kBoth) culprits = {0, 1, 2, 3};
        ASSERT_NO_FATAL_FAILURE(ExpectLost(context, &clique, result, culprits, 2));
        ASSERT_TRUE(context.Barrier(2));
        ASSERT_TRUE(rank != 0 || hosts.Heal(1));
        ASSERT_TRUE(context.Barrier(3));
        Clique again;
        ASSERT_NO_FATAL_FAILURE(Begin(context, &again));
      },
      {}, GetParam().nics);
}

INSTANTIATE_TEST_SUITE_P(Breaks, PartitionTest,
                         testing::Values(Break{"BusyBothWays", true, Way::kBoth}, Break{"BusyOneWay", true, Way::kIn},
                                         Break{"BusyOtherWay", true, Way::kOut},
                                         Break{"IdleBothWays", false, Way::kBoth},
                                         Break{"IdleOneWay", false, Way::kOut},
                                         Break{"BusyTwoNics", true, Way::kBoth, 2},
                                         Break{"IdleTwoNics", false, Way::kBoth, 2}),
                         [](const auto& info) { return info.param.name; });

class KillTest : public testing::TestWithParam<bool> {};

TEST_P(KillTest, EverySurvivorLearnsWhoItWas) {
  RunOnHosts(3, 6, [](const TestHosts&, RankContext& context) {
    constexpr int kVictim = 4;  // with rank 1 on the same host
    Clique clique;
    ASSERT_NO_FATAL_FAILURE(Begin(context, &clique));
    std::vector<int> data(50000, 7);
    if (context.rank() == kVictim) {
      std::thread killer([&] {
        usleep(30000);
        context.Set(kTimeCell, NowNs());
        context.Die();
      });
      while (GetParam()) (void)AllReduce(clique, &data);
      killer.join();
    }
    const ncclResult_t result = AwaitTrouble(context, clique, GetParam(), &data);
    EXPECT_EQ(result, ncclRemoteError);
    EXPECT_LT(NowNs() - context.Await(kTimeCell), harness::AllowedNs(200)) << "a death is told at once";
    EXPECT_TRUE(harness::LastErrorHas("rank 4 (pid " + std::to_string(context.Get(kPidCell + kVictim))))
        << ncclGetLastError(nullptr);
    const uint64_t start = NowNs();
    EXPECT_OK(ncclCommAbort(clique.comm()));
    EXPECT_LT(NowNs() - start, harness::AllowedNs(100));
    clique.ForgetComms();
  });
}

INSTANTIATE_TEST_SUITE_P(Times, KillTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Busy" : "Idle"; });

// ---- connections that are reset ----

// TCP connections of this process to other hosts.
std::vector<int> Connections() {
  std::vector<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in own{}, peer{};
    socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 && own.sin_family == AF_INET &&
        getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0 &&
        own.sin_addr.s_addr != peer.sin_addr.s_addr)
      found.push_back(fd);
  }
  return found;
}

// Ends it as the network's equipment does that has forgotten a connection, or the other side's kernel: with a reset,
// and no word to who uses it here.
bool Reset(int fd) {
  const sockaddr nobody{};  // AF_UNSPEC
  return connect(fd, &nobody, sizeof nobody) == 0;
}

class ResetTest : public testing::TestWithParam<int> {};

// One connection after the other, each in a run of its own.
TEST_P(ResetTest, BothSidesNameEachOther) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_NO_FATAL_FAILURE(Begin(context, &clique));
    std::vector<int> data(50000, 7);
    const std::vector<int> connections = Connections();
    if (context.rank() == 0) {
      ASSERT_GE(connections.size(), 2u) << "one for messages and one to know that the other lives";
      ASSERT_LE(connections.size(), static_cast<size_t>(kMostConnections)) << "not all are reset";
      context.Set(kConnectionsCell, connections.size());
    }
    if (static_cast<uint64_t>(GetParam()) >= context.Await(kConnectionsCell)) return;
    std::thread breaker;
    if (context.rank() == 0)
      breaker = std::thread([&] {
        usleep(20000);  // the others are at work then
        context.Set(kTimeCell, NowNs());
        EXPECT_TRUE(Reset(connections[static_cast<size_t>(GetParam())]));
      });
    const ncclResult_t result = AwaitTrouble(context, clique, true, &data);
    if (breaker.joinable()) breaker.join();
    ExpectLost(context, &clique, result, {1 - context.rank()}, 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Connections, ResetTest, testing::Range(0, kMostConnections));

// ---- what is no failure ----

TEST(Patience, AStoppedProcessIsNotDead) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_NO_FATAL_FAILURE(Begin(context, &clique));
    std::vector<int> data(1000, 7);
    std::thread stopper;
    if (context.rank() == 0)
      stopper = std::thread([&] {
        const auto other = static_cast<pid_t>(context.Get(kPidCell + 1));
        kill(other, SIGSTOP);
        usleep(4500000);
        kill(other, SIGCONT);
      });
    for (int i = 0; i < 3; ++i) ASSERT_OK(AllReduce(clique, &data));
    if (stopper.joinable()) stopper.join();
    for (int i = 0; i < 3; ++i) ASSERT_OK(AllReduce(clique, &data));
  });
}

// Longer than some of its packets are sent again, shorter than what a machine is given up for.
TEST(Patience, APartitionThatHealsInTimeCostsOnlyTime) {
  RunOnHosts(2, 4, [](const TestHosts& hosts, RankContext& context) {
    Clique clique;
    ASSERT_NO_FATAL_FAILURE(Begin(context, &clique));
    if (context.rank() == 0) {
      ASSERT_TRUE(hosts.Cut(1, Way::kBoth));
    }
    ASSERT_TRUE(context.Barrier(2));
    std::thread healer;
    if (context.rank() == 0)
      healer = std::thread([&] {
        usleep(1000000);
        context.Set(kTimeCell, NowNs());
        EXPECT_TRUE(hosts.Heal(1));
      });
    for (int round = 0; round < 5; ++round) {
      std::vector<int> data(100000, context.rank() + round);
      ASSERT_OK(AllReduce(clique, &data));
      ASSERT_EQ(data, std::vector<int>(100000, 3 + round));
    }
    if (healer.joinable()) healer.join();
    EXPECT_NE(context.Get(kTimeCell), 0u) << "nothing was cut";
  });
}

TEST(Patience, ShortInterruptionsAreSurvived) {
  RunOnHosts(2, 2, [](const TestHosts& hosts, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<int> data(10000);
    std::atomic<bool> over{false};
    std::thread breaker;
    if (context.rank() == 0)
      breaker = std::thread([&] {
        for (int i = 0; i < 5; ++i) {
          EXPECT_TRUE(hosts.Cut(1, Way::kBoth));
          usleep(200000);
          EXPECT_TRUE(hosts.Heal(1));
          usleep(100000);
        }
        over = true;
      });
    for (int last = 0; last == 0;) {
      data.assign(data.size(), context.rank() == 0 && over ? 1 : 0);
      ASSERT_OK(AllReduce(clique, &data));
      last = data[0];
      for (const int value : data) ASSERT_EQ(value, last);
    }
    if (breaker.joinable()) breaker.join();
  });
}

// ---- nothing is left ----

int Mappings() {
  int lines = 0;
  FILE* const maps = fopen("/proc/self/maps", "r");
  for (int c = 0; maps != nullptr && (c = fgetc(maps)) != EOF;) lines += c == '\n';
  if (maps != nullptr) fclose(maps);
  return lines;
}

class Residue : public testing::TestWithParam<int> {};

// Made and dropped again and again, by destroying and by aborting.
TEST_P(Residue, NothingIsLeftOfACommunicator) {
  RunOnHosts(
      2, 4,
      [](const TestHosts&, RankContext& context) {
        int descriptors = 0, threads = 0, mappings = 0;
        for (int round = 0; round < 12; ++round) {
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
          std::vector<int> data(50000, round);
          ASSERT_OK(AllReduce(clique, &data));
          ASSERT_TRUE(context.Barrier(1));
          if (round % 2 == 0) {
            ASSERT_OK(ncclCommDestroy(clique.comm()));
          } else {
            ASSERT_OK(ncclCommAbort(clique.comm()));
          }
          clique.ForgetComms();
          ASSERT_TRUE(context.Barrier(2));
          if (round == 3) {
            descriptors = Entries("/proc/self/fd");
            threads = Entries("/proc/self/task");
            mappings = Mappings();
          }
        }
        const uint64_t limit = NowNs() + kSettledNs;
        while (Entries("/proc/self/fd") > descriptors && NowNs() < limit) usleep(1000);
        EXPECT_LE(Entries("/proc/self/fd"), descriptors);
        EXPECT_LE(Entries("/proc/self/task"), threads);
        EXPECT_LE(Mappings(), mappings + 8) << "eight communicators had 16 mirrors";
      },
      {}, GetParam());
}

// What was held for a peer goes with it.
TEST_P(Residue, NothingIsLeftOfADeadPeer) {
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        std::vector<int> data(1 << 20, 7);
        ASSERT_OK(AllReduce(clique, &data));
        const int with_peer = Entries("/proc/self/fd");
        ASSERT_TRUE(context.Barrier(1));
        if (context.rank() == 1) context.Die();
        EXPECT_EQ(AwaitTrouble(context, clique, true, &data), ncclRemoteError);
        ASSERT_OK(ncclCommAbort(clique.comm()));
        clique.ForgetComms();
        const uint64_t limit = NowNs() + kSettledNs;
        while (Entries("/proc/self/fd") > with_peer - 2 * GetParam() && NowNs() < limit) usleep(1000);
        // A lifeline and a connection for each NIC.
        EXPECT_LE(Entries("/proc/self/fd"), with_peer - 2 * GetParam());
      },
      {}, GetParam());
}

std::multiset<std::string> WhatExecKeeps() {
  std::multiset<std::string> kept;
  for (int fd = 0; fd < 1024; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0 || (flags & FD_CLOEXEC) != 0) continue;
    char name[256];
    const ssize_t bytes = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);
    kept.insert(std::string(name, bytes > 0 ? static_cast<size_t>(bytes) : 0));
  }
  return kept;
}

// Neither a descriptor of the library's nor one of UCX's is left to the program that this one becomes; the
// application's are.
TEST_P(Residue, NothingIsLeftToTheNextProgram) {
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        int own[2];
        ASSERT_EQ(pipe(own), 0);
        const int watching = epoll_create1(0);
        epoll_event event{};
        ASSERT_EQ(epoll_ctl(watching, EPOLL_CTL_ADD, own[0], &event), 0);
        const std::multiset<std::string> before = WhatExecKeeps();
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        std::vector<int> data(1 << 20, 7);
        ASSERT_OK(AllReduce(clique, &data));
        const uint64_t limit = NowNs() + kSettledNs;
        while (WhatExecKeeps() != before && NowNs() < limit) usleep(1000);
        EXPECT_EQ(WhatExecKeeps(), before);
        ASSERT_TRUE(context.Barrier(1));
      },
      {}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Nics, Residue, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace axccl::tests
