// Processes that die and networks that break: every surviving rank learns of it in time, on both sides, and learns
// which rank on which host it was. What only looks like a failure causes no error.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/residue.h"
#include "tests/harness/timing.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::DeviceVector;
using harness::Entries;
using harness::NowNs;
using harness::RankContext;
using harness::TestHosts;
using Way = TestHosts::Way;

constexpr int kTimeCell = 20;  // time of the event, ns
constexpr int kPidCell = 30;   // + rank
constexpr int kConnectionsCell = 21;
constexpr int kMostConnections = 4;  // connections between two processes on different hosts
constexpr uint64_t kPromisedNs = 4'000'000'000;
// Kernels that wait on the software GPU take the cores of the threads that look for failures.
uint64_t PromisedNs() { return kPromisedNs * static_cast<uint64_t>(harness::TimeScale()) * (harness::OnGpu() ? 2 : 1); }
// The kernel may take a moment to close a descriptor and to end a thread.
constexpr uint64_t kSettledNs = 5'000'000'000;

std::string NameOf(int rank, int hosts, uint64_t pid) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(pid) + " on host " + TestHosts::Name(rank % hosts) +
         ")";
}

// Expects an error within the time promised since `kTimeCell` that names one of `culprits`; then aborting takes no
// time.
void ExpectLost(RankContext& context, Clique* clique, ncclResult_t result, const std::vector<int>& culprits,
                int hosts) {
  const uint64_t now = NowNs(), since = context.Await(kTimeCell);
  EXPECT_EQ(result, ncclRemoteError) << ncclGetLastError(nullptr);
  EXPECT_LT(now - since, PromisedNs()) << "ns";
  const std::string text = ncclGetLastError(nullptr);
  bool named = false;
  for (const int rank : culprits)
    named |= text.find(NameOf(rank, hosts, context.Get(kPidCell + rank))) != std::string::npos;
  EXPECT_TRUE(named) << text;
  // Ranks publish what they find: another rank of the same host may be able to reach a rank that this one cannot.
  int from = -1, to = -1;
  const size_t reach = text.find(" cannot reach ");
  if (reach == std::string::npos) {
    EXPECT_NE(text.find("died"), std::string::npos) << text;
  } else {
    EXPECT_EQ(std::sscanf(text.c_str() + text.rfind("rank ", reach), "rank %d cannot reach rank %d", &from, &to), 2)
        << text;
    EXPECT_NE(from % hosts, to % hosts) << text;
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

ncclResult_t AllReduce(Clique& clique, DeviceVector<int>* data) {
  return harness::AwaitCall(
      ncclAllReduce(data->data(), data->data(), data->size(), ncclInt32, ncclMax, clique.comm(), Cuda(clique.stream())),
      clique.stream(), clique.comm());
}

// Makes a communicator and uses it on every rank, and publishes the ranks' processes.
void Begin(RankContext& context, Clique* clique) {
  ASSERT_TRUE(clique->Init(context));
  context.Set(kPidCell + context.rank(), static_cast<uint64_t>(getpid()));
  DeviceVector<int> data(50000, context.rank());
  ASSERT_OK(AllReduce(*clique, &data));
  ASSERT_EQ(data, DeviceVector<int>(50000, context.nranks() - 1));
  ASSERT_TRUE(context.Barrier(1));
}

// Makes calls until one fails. If idle, waits until the network has broken, and expects no error until then.
ncclResult_t AwaitTrouble(RankContext& context, Clique& clique, bool busy, DeviceVector<int>* data) {
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

// Two hosts of two ranks; one is cut off. Once it is back, data sent to the old communicator does not affect a new one.
TEST_P(PartitionTest, BothSidesLearnOfItAndMeetAgain) {
  RunOnHosts(
      2, 4,
      [](const TestHosts& hosts, RankContext& context) {
        const int rank = context.rank();
        Clique clique;
        ASSERT_NO_FATAL_FAILURE(Begin(context, &clique));
        DeviceVector<int> data(50000, 7);
        std::jthread breaker;
        if (rank == 0)
          breaker = std::jthread([&] {
            usleep(50000);  // while the others work
            const bool cut = hosts.Cut(1, GetParam().way);
            context.Set(kTimeCell, NowNs());
            EXPECT_TRUE(cut);
          });
        ASSERT_TRUE(context.Step("until it breaks"));
        const ncclResult_t result = AwaitTrouble(context, clique, GetParam().busy, &data);
        if (breaker.joinable()) breaker.join();
        // If one way is cut, what the others have found about this side may still arrive here.
        std::vector<int> culprits = {(rank + 1) % 2, (rank + 1) % 2 + 2};
        if (GetParam().way != Way::kBoth) culprits = {0, 1, 2, 3};
        ASSERT_NO_FATAL_FAILURE(ExpectLost(context, &clique, result, culprits, 2));
        ASSERT_TRUE(context.Barrier(2));
        if (rank == 0) {
          // A rank may know of the loss from another one. By then the connections of all ranks have ended that the cut
          // ends, so none ends under the new communicator: each is used once a second, and waits 2.2 s for an answer.
          while (NowNs() < context.Get(kTimeCell) + kPromisedNs) usleep(10000);
          ASSERT_TRUE(hosts.Heal(1));
        }
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

TEST_P(KillTest, EverySurvivorLearnsWhichRankDied) {
  RunOnHosts(3, 6, [](const TestHosts&, RankContext& context) {
    constexpr int kVictim = 4;  // on the same host as rank 1
    Clique clique;
    ASSERT_NO_FATAL_FAILURE(Begin(context, &clique));
    DeviceVector<int> data(50000, 7);
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
    EXPECT_LT(NowNs() - context.Await(kTimeCell), harness::AllowedNs(200)) << "a death is reported at once";
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

// Resets the connection, as network equipment that has forgotten it does, or the other side's kernel, without a message
// to the process that uses it here.
bool Reset(int fd) {
  const sockaddr none{};  // AF_UNSPEC
  return connect(fd, &none, sizeof none) == 0;
}

class ResetTest : public testing::TestWithParam<int> {};

// One connection after the other, each in its own run.
TEST_P(ResetTest, BothSidesNameEachOther) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_NO_FATAL_FAILURE(Begin(context, &clique));
    DeviceVector<int> data(50000, 7);
    const std::vector<int> connections = TestHosts::Connections();
    if (context.rank() == 0) {
      ASSERT_GE(connections.size(), 2u) << "one for messages and one that shows that the peer lives";
      ASSERT_LE(connections.size(), static_cast<size_t>(kMostConnections)) << "the test does not reset all connections";
      context.Set(kConnectionsCell, connections.size());
    }
    if (static_cast<uint64_t>(GetParam()) >= context.Await(kConnectionsCell)) return;
    std::jthread breaker;
    if (context.rank() == 0)
      breaker = std::jthread([&] {
        usleep(20000);  // while the others work
        context.Set(kTimeCell, NowNs());
        EXPECT_TRUE(Reset(connections[static_cast<size_t>(GetParam())]));
      });
    const ncclResult_t result = AwaitTrouble(context, clique, true, &data);
    if (breaker.joinable()) breaker.join();
    ExpectLost(context, &clique, result, {1 - context.rank()}, 2);
  });
}

INSTANTIATE_TEST_SUITE_P(Connections, ResetTest, testing::Range(0, kMostConnections));

// ---- what looks like a failure ----

TEST(Patience, AStoppedProcessIsNotDead) {
  RunOnHosts(2, 2, [](const TestHosts&, RankContext& context) {
    Clique clique;
    ASSERT_NO_FATAL_FAILURE(Begin(context, &clique));
    DeviceVector<int> data(1000, 7);
    std::jthread stopper;
    if (context.rank() == 0)
      stopper = std::jthread([&] {
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

// Lasts long enough for a retransmission to be lost, which comes after 200 ms. The next ones come after 600 and 1400
// ms, and the test's processes may be late by as much: a machine counts as lost after 2200 ms.
TEST(Patience, APartitionThatHealsInTimeCostsOnlyTime) {
  RunOnHosts(2, 4, [](const TestHosts& hosts, RankContext& context) {
    Clique clique;
    ASSERT_NO_FATAL_FAILURE(Begin(context, &clique));
    if (context.rank() == 0) {
      ASSERT_TRUE(hosts.Cut(1, Way::kBoth));
    }
    ASSERT_TRUE(context.Barrier(2));
    std::jthread healer;
    if (context.rank() == 0)
      healer = std::jthread([&] {
        usleep(400000);
        context.Set(kTimeCell, NowNs());
        EXPECT_TRUE(hosts.Heal(1));
      });
    for (int round = 0; round < 5; ++round) {
      DeviceVector<int> data(100000, context.rank() + round);
      ASSERT_OK(AllReduce(clique, &data));
      ASSERT_EQ(data, DeviceVector<int>(100000, 3 + round));
    }
    if (healer.joinable()) healer.join();
    EXPECT_NE(context.Get(kTimeCell), 0u) << "nothing was cut";
  });
}

TEST(Patience, ShortInterruptionsAreSurvived) {
  const auto body = [](const TestHosts& hosts, RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    DeviceVector<int> data(10000);
    std::atomic<bool> over{false};
    std::jthread breaker;
    if (context.rank() == 0)
      breaker = std::jthread([&] {
        for (int i = 0; i < (harness::FullTests() ? 50 : 5); ++i) {
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
  };
  RunOnHosts(2, 2, body, {}, 1, std::chrono::minutes(1));
}

// Whether a connection has data that are being sent again, and no room for more.
bool AnyStalled() {
  for (const int fd : TestHosts::Connections()) {
    pollfd room{fd, POLLOUT, 0};
    tcp_info info{};
    socklen_t bytes = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_retransmits > 0 &&
        poll(&room, 1, 0) == 0)
      return true;
  }
  return false;
}

// Ranks 0 and 1 have a communicator of their own. While the network between them is interrupted, rank 2 dies.
TEST(Patience, BystandersOfADeathAreNotGivenUp) {
  const auto body = [](const TestHosts& hosts, RankContext& context) {
    Clique all, pair;
    ASSERT_NO_FATAL_FAILURE(Begin(context, &all));
    ncclComm_t comm = nullptr;
    ASSERT_OK(ncclCommSplit(all.comm(), context.rank() == 2 ? NCCL_SPLIT_NOCOLOR : 0, 0, &comm, nullptr));
    if (context.rank() == 2) {
      context.Await(kTimeCell);
      context.Die();
    }
    ASSERT_TRUE(pair.Adopt(comm));
    std::atomic<bool> over{false};
    std::jthread breaker;
    if (context.rank() == 0)
      breaker = std::jthread([&] {
        usleep(50000);  // while data move
        EXPECT_TRUE(hosts.Cut(1, Way::kBoth));
        // Not all interruptions find a connection full, and a machine counts as lost after 2.2 s.
        for (const uint64_t start = NowNs(); !AnyStalled() && NowNs() < start + 800'000'000;) usleep(10000);
        const size_t connections = TestHosts::Connections().size();
        context.Set(kTimeCell, NowNs());
        while (TestHosts::Connections().size() >= connections && !context.AnyFailed()) usleep(1000);
        EXPECT_TRUE(hosts.Heal(1));
        over = true;
      });
    DeviceVector<int> data(4 << 20);
    for (int last = 0; last == 0;) {
      data.assign(data.size(), context.rank() == 0 && over ? 1 : 0);
      ASSERT_OK(AllReduce(pair, &data));
      last = data[0];
    }
    if (breaker.joinable()) breaker.join();
    EXPECT_OK(ncclCommAbort(all.comm()));
    all.ForgetComms();
  };
  RunOnHosts(3, 3, body);
}

// ---- resources ----

// Those that may be accessed: the software GPU keeps the addresses of memory that was freed, without it.
int Mappings() {
  int mappings = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) mappings += line.find(" ---p ") == std::string::npos;
  return mappings;
}

class Residue : public testing::TestWithParam<int> {};

// Makes and drops communicators repeatedly, by destroying and by aborting.
TEST_P(Residue, NothingIsLeftOfACommunicator) {
  RunOnHosts(
      2, 4,
      [](const TestHosts&, RankContext& context) {
        int descriptors = 0, threads = 0, mappings = 0;
        for (int round = 0; round < 12; ++round) {
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
          DeviceVector<int> data(50000, round);
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
        const auto more = [&] {
          return Entries("/proc/self/fd") > descriptors || Entries("/proc/self/task") > threads;
        };
        while (more() && NowNs() < limit) usleep(1000);
        EXPECT_LE(Entries("/proc/self/fd"), descriptors);
        EXPECT_LE(Entries("/proc/self/task"), threads);
        EXPECT_LE(Mappings(), mappings + 8) << "the eight communicators had 16 mirrors";
      },
      {}, GetParam());
}

// The resources for a peer are freed with the communicator.
TEST_P(Residue, NothingIsLeftOfADeadPeer) {
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        DeviceVector<int> data(1 << 20, 7);
        ASSERT_OK(AllReduce(clique, &data));
        const int with_peer = Entries("/proc/self/fd");
        ASSERT_TRUE(context.Barrier(1));
        if (context.rank() == 1) context.Die();
        EXPECT_EQ(AwaitTrouble(context, clique, true, &data), ncclRemoteError);
        ASSERT_OK(ncclCommAbort(clique.comm()));
        clique.ForgetComms();
        const uint64_t limit = NowNs() + kSettledNs;
        while (Entries("/proc/self/fd") > with_peer - 2 * GetParam() && NowNs() < limit) usleep(1000);
        // Each NIC had a lifeline and a connection.
        EXPECT_LE(Entries("/proc/self/fd"), with_peer - 2 * GetParam());
      },
      {}, GetParam());
}

// Each with what it refers to: not its name, since files that a test runner writes are renamed meanwhile.
std::map<int, std::pair<dev_t, ino_t>> KeptByExec() {
  std::map<int, std::pair<dev_t, ino_t>> kept;
  for (int fd = 0; fd < 1024; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    struct stat of {};
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0 && fstat(fd, &of) == 0) kept[fd] = {of.st_dev, of.st_ino};
  }
  return kept;
}

// A program that this process becomes inherits no descriptor of the library or UCX; it inherits those of the
// application.
TEST_P(Residue, NothingIsLeftToTheNextProgram) {
  RunOnHosts(
      2, 2,
      [](const TestHosts&, RankContext& context) {
        int own[2];
        ASSERT_EQ(pipe(own), 0);
        const int watching = epoll_create1(0);
        epoll_event event{};
        ASSERT_EQ(epoll_ctl(watching, EPOLL_CTL_ADD, own[0], &event), 0);
        const auto before = KeptByExec();
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        DeviceVector<int> data(1 << 20, 7);
        ASSERT_OK(AllReduce(clique, &data));
        const uint64_t limit = NowNs() + kSettledNs;
        while (KeptByExec() != before && NowNs() < limit) usleep(1000);
        EXPECT_EQ(KeptByExec(), before);
        ASSERT_TRUE(context.Barrier(1));
      },
      {}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Nics, Residue, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace axccl::tests
