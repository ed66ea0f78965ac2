// Rendezvous that succeed: ranks as threads and as processes, many, repeated, concurrent, by NCCL_COMM_ID.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "src/boot/boot.h"
#include "src/boot/hub.h"
#include "src/boot/interfaces.h"
#include "src/boot/wire.h"
#include "tests/boot/meeting.h"
#include "tests/harness/run_ranks.h"

namespace axccl::boot {
namespace {

using harness::Layout;
using harness::RankContext;

int CountEntries(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

class JoinTest : public testing::TestWithParam<Layout> {};

TEST_P(JoinTest, EveryRankGetsEveryContribution) {
  harness::RunRanks(GetParam(), [](RankContext& context) {
    const UniqueId id = ShareId(context);
    const auto session = JoinWell(context, id);
    for (const size_t bytes : {size_t{1}, size_t{200}, size_t{3}, kMaxContribution}) {
      ExpectExchange(session.get(), context.rank(), context.nranks(), bytes, bytes);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, JoinTest,
                         testing::Values(harness::Threads(1), harness::Threads(2), harness::Threads(3),
                                         harness::Threads(5), harness::Threads(8), harness::Threads(16)),
                         [](const auto& param) { return param.param.Text(); });
INSTANTIATE_TEST_SUITE_P(Processes, JoinTest,
                         testing::Values(harness::Processes(2), harness::Processes(4), harness::Processes(7),
                                         harness::Processes(16), Layout{3, 2, 1}),
                         [](const auto& param) { return param.param.Text(); });

TEST(JoinTimeTest, EightProcessesAndThreeExchanges) {
  constexpr int kRounds = 9;
  harness::RunRanks(harness::Processes(8), [](RankContext& context) {
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      const UniqueId id = ShareId(context);
      ASSERT_TRUE(context.Barrier());
      const auto start = Clock::now();
      const auto session = JoinWell(context, id);
      for (int i = 0; i < 3; ++i) ExpectExchange(session.get(), context.rank(), 8, 200, static_cast<uint64_t>(i));
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
      ASSERT_TRUE(context.Barrier());
    }
    std::sort(times.begin(), times.end());
    if (context.rank() != 0) return;
    std::printf("             8 processes, join and 3 exchanges: best %.2f ms, median %.2f ms\n", times.front(),
                times[kRounds / 2]);
    EXPECT_LT(times.front(), 1000.0) << "a rank waits for a timer";
  });
}

TEST(JoinTest2, ManyIdsAtOnceDoNotMix) {
  constexpr int kIds = 6;
  harness::RunRanks(harness::Layout{2, kIds, 1}, [](RankContext& context) {
    // Thread t of both processes makes a communicator of two with thread t of the other.
    const int process = context.rank() / kIds, thread = context.rank() % kIds;
    UniqueId id = ShareId(context, 0);  // a barrier for all; the ids that matter follow
    std::byte* const place = context.board() + 4096 + static_cast<size_t>(thread) * sizeof id;
    if (process == 0) {
      Result<UniqueId> made = CreateUniqueId();
      ASSERT_TRUE(made.ok());
      std::memcpy(place, made.value().bytes, sizeof id);
    }
    ASSERT_TRUE(context.Barrier());
    std::memcpy(id.bytes, place, sizeof id);
    Result<std::unique_ptr<Session>> session = Session::Join(id, process, 2, Patient(), nullptr);
    ASSERT_TRUE(session.ok()) << session.status().message();
    for (int i = 0; i < 20; ++i) {
      ExpectExchange(session.value().get(), process, 2, 64, static_cast<uint64_t>(thread * 1000 + i));
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(JoinTest2, CyclesLeaveNothingBehind) {
  const int cycles = harness::TimeScale() == 1 ? 500 : 100;
  harness::RunOptions options;
  options.deadline = std::chrono::seconds(60);
  harness::RunRanks(
      harness::Processes(2),
      [&](RankContext& context) {
        int descriptors = 0, threads = 0;
        for (int cycle = 0; cycle < cycles; ++cycle) {
          const UniqueId id = ShareId(context);
          auto session = JoinWell(context, id);
          ExpectExchange(session.get(), context.rank(), 2, 100, static_cast<uint64_t>(cycle));
          session.reset();
          // Once both have left, nothing is open for this id; Count runs after the work of leaving.
          ASSERT_TRUE(context.Barrier());
          const auto open = [] {
            const Hub::Counts counts = Hub::Get().value()->Count().value();
            return counts.meetings + counts.nodes;
          };
          while (open() != 0) sched_yield();
          if (cycle == 20) {
            descriptors = CountEntries("/proc/self/fd");
            threads = CountEntries("/proc/self/task");
          }
          ASSERT_TRUE(context.Barrier());
        }
        EXPECT_EQ(CountEntries("/proc/self/fd"), descriptors);
        EXPECT_EQ(CountEntries("/proc/self/task"), threads);
        if (context.rank() != 0) return;
        const Hub::Counts counts = Hub::Get().value()->Count().value();
        EXPECT_LE(counts.ids, 256u) << "used ids are remembered, but not for ever";
        EXPECT_EQ(counts.guests, 0u);
        EXPECT_EQ(counts.timers, 0u);
      },
      options);
}

TEST(JoinTest2, UnusedIdsAreCheap) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    ASSERT_TRUE(CreateUniqueId().ok());
    const int before = CountEntries("/proc/self/fd");
    for (int i = 0; i < 2000; ++i) ASSERT_TRUE(CreateUniqueId().ok());
    EXPECT_EQ(CountEntries("/proc/self/fd"), before);
    EXPECT_EQ(Hub::Get().value()->Count().value().ids, 2001u);
    EXPECT_EQ(Hub::Get().value()->Count().value().timers, 0u);
  });
}

TEST(InterfaceTest, UnknownInterfaceIsAnErrorThatListsTheInterfaces) {
  harness::RunOptions options;
  options.environment = {{"NCCL_SOCKET_IFNAME", "=nosuch0"}};
  harness::RunRanks(
      harness::Processes(1),
      [](RankContext&) {
        const Status status = CreateUniqueId().status();
        EXPECT_EQ(status.code(), Code::kInvalidUsage);
        EXPECT_NE(status.message().find("127.0.0.1"), std::string_view::npos) << status.message();
        EXPECT_NE(status.message().find("(not asked for)"), std::string_view::npos) << status.message();
      },
      options);
}

// The addresses at which sockets of this process listen, as "127.0.0.1".
std::vector<std::string> ListeningAt() {
  std::vector<std::string> hosts;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int listening = 0;
    socklen_t bytes = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) != 0 || listening == 0) continue;
    sockaddr_storage name{};
    bytes = sizeof name;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) continue;
    hosts.push_back(HostText(FromSockaddr(reinterpret_cast<const sockaddr*>(&name))));
  }
  return hosts;
}

TEST(InterfaceTest, AnIdIsServedOnlyAtItsAddresses) {
  for (const char* ifname : {"", "=lo"}) {
    harness::RunOptions options;
    options.environment = {{"NCCL_SOCKET_IFNAME", ifname}};
    harness::RunRanks(
        harness::Processes(1),
        [&](RankContext&) {
          const IdFields fields = Unpack(CreateUniqueId().value()).value();
          const auto wanted = SelectAddresses(ListInterfaces().value(), ifname, "").value();
          std::vector<std::string> hosts;
          for (int i = 0; i < fields.num_addresses; ++i) {
            hosts.push_back(HostText(fields.address[static_cast<size_t>(i)]));
            EXPECT_EQ(fields.address[static_cast<size_t>(i)].ip, wanted[static_cast<size_t>(i)].ip);
          }
          EXPECT_EQ(hosts.size(), wanted.size());
          EXPECT_EQ(ListeningAt(), hosts) << "one socket for each address, none on all interfaces";
          EXPECT_TRUE(*ifname == '\0' || IsLoopback(fields.address[0]));
        },
        options);
  }
}

TEST(InterfaceTest, NamedInterfaceServesBothFamilies) {
  harness::RunOptions options;
  options.environment = {{"NCCL_SOCKET_IFNAME", "=lo"}};
  harness::RunRanks(
      harness::Processes(3),
      [](RankContext& context) {
        const auto session = JoinWell(context, ShareId(context));
        ExpectExchange(session.get(), context.rank(), 3, 10, 1);
      },
      options);
}

// ---- NCCL_COMM_ID ----

harness::RunOptions CommId(const std::string& secret) {
  harness::RunOptions options;
  options.environment = {{"NCCL_COMM_ID", "127.0.0.1:" + FreePort()}, {"AXCCL_SECRET", secret}};
  return options;
}

TEST(CommIdJoinTest, RanksMeetAtTheAddressWithoutAnIdExchange) {
  for (const char* secret : {"", "tell nobody, ever"}) {
    harness::RunRanks(
        harness::Processes(4),
        [](RankContext& context) {
          Result<UniqueId> id = CreateUniqueId();
          ASSERT_TRUE(id.ok()) << id.status().message();
          // Rank 0 joins last: the others first find no listener and must try again.
          if (context.rank() == 0) {
            ASSERT_TRUE(context.Barrier());
          } else {
            ASSERT_EQ(JoinStatus(id.value(), context.rank(), 4, Clock::now()).code(), Code::kTimeout);
            ASSERT_TRUE(context.Barrier());
          }
          const auto session = JoinWell(context, id.value());
          ExpectExchange(session.get(), context.rank(), 4, 50, 1);
        },
        CommId(secret));
  }
}

TEST(CommIdJoinTest, OneAddressServesOneCommunicatorAfterTheOther) {
  harness::RunRanks(
      harness::Processes(3),
      [](RankContext& context) {
        const UniqueId id = CreateUniqueId().value();
        for (int round = 0; round < 30; ++round) {
          // No barrier: a fast rank joins the next communicator while a slow one still leaves the previous one.
          const auto session = JoinWell(context, id);
          ExpectExchange(session.get(), context.rank(), 3, 50, static_cast<uint64_t>(round));
        }
      },
      CommId(""));
}

TEST(CommIdJoinTest, DifferentSecretsDoNotMeet) {
  harness::RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        setenv("AXCCL_SECRET", context.rank() == 0 ? "sixteen apples.." : "sixteen pears...", 1);
        const UniqueId id = CreateUniqueId().value();  // slow on purpose
        ASSERT_TRUE(context.Barrier());
        if (context.rank() == 0) {
          const Status status = JoinStatus(id, 0, 2, Clock::now() + std::chrono::milliseconds(300));
          EXPECT_EQ(status.code(), Code::kTimeout);
          EXPECT_NE(status.message().find("rank 1"), std::string_view::npos) << status.message();
          context.Set(0, 1);
          return;
        }
        Status status;
        do {  // until rank 0 listens
          status = JoinStatus(id, 1, 2, Clock::now() + std::chrono::milliseconds(50));
        } while (status.code() == Code::kTimeout && context.Get(0) == 0);
        EXPECT_EQ(status.code(), Code::kInvalidUsage);
        EXPECT_NE(status.message().find("AXCCL_SECRET"), std::string_view::npos) << status.message();
      },
      CommId("to be replaced by"));
}

TEST(CommIdJoinTest, PortOfAServerThatJustDiedIsTakenOver) {
  harness::RunRanks(
      harness::Processes(3),
      [](RankContext& context) {
        const UniqueId id = CreateUniqueId().value();
        if (context.rank() == 2) {  // the rank 0 of the second run
          context.Await(0);
        } else {
          Result<std::unique_ptr<Session>> session = Session::Join(id, context.rank(), 2, Patient(), nullptr);
          ASSERT_TRUE(session.ok()) << session.status().message();
          ASSERT_TRUE(context.Barrier(1, 2));
          if (context.rank() == 0) context.Die();
          uint64_t mine = 0, all[2];
          EXPECT_EQ(session.value()->AllGather(&mine, sizeof mine, all).code(), Code::kRemoteError);
          context.Set(0, 1);
        }
        const int rank = context.rank() == 2 ? 0 : 1;
        Result<std::unique_ptr<Session>> session = Session::Join(id, rank, 2, Patient(), nullptr);
        ASSERT_TRUE(session.ok()) << session.status().message();
        ExpectExchange(session.value().get(), rank, 2, 20, 1);
      },
      CommId(""));
}

TEST(CommIdJoinTest, TwoJobsAtOneAddressGetAnError) {
  harness::RunRanks(
      harness::Processes(4),
      [](RankContext& context) {
        const int job = context.rank() / 2, rank = context.rank() % 2;
        if (job == 1) setenv("AXCCL_SECRET", "secret of the other job", 1);
        const UniqueId id = CreateUniqueId().value();
        std::unique_ptr<Session> session;
        if (job == 0) {
          Result<std::unique_ptr<Session>> joined = Session::Join(id, rank, 2, Patient(), nullptr);
          ASSERT_TRUE(joined.ok()) << joined.status().message();
          session = std::move(joined).value();
        }
        ASSERT_TRUE(context.Barrier());
        if (job == 1) {
          const auto start = Clock::now();
          const Status status = JoinStatus(id, rank, 2, start + std::chrono::seconds(10));
          EXPECT_LT(Clock::now() - start, std::chrono::seconds(2) * harness::TimeScale());
          const std::string text(status.message());
          if (rank == 0) {
            EXPECT_EQ(status.code(), Code::kSystemError) << text;
            EXPECT_NE(text.find("listening on 127.0.0.1:"), std::string::npos) << text;
            EXPECT_NE(text.find("another process or job on the port"), std::string::npos) << text;
          } else {
            EXPECT_EQ(status.code(), Code::kInvalidUsage) << text;
            EXPECT_NE(text.find("another port if another job has this"), std::string::npos) << text;
          }
        }
        ASSERT_TRUE(context.Barrier());
        if (job == 0) ExpectExchange(session.get(), rank, 2, 100, 1);
      },
      CommId("secret of one job"));
}

TEST(CommIdJoinTest, NoListenerIsATimeoutThatNamesTheAddress) {
  harness::RunRanks(
      harness::Processes(1),
      [](RankContext&) {
        const Status status = JoinStatus(CreateUniqueId().value(), 1, 2, Clock::now() + std::chrono::milliseconds(60));
        EXPECT_EQ(status.code(), Code::kTimeout);
        EXPECT_NE(status.message().find("127.0.0.1:"), std::string_view::npos) << status.message();
      },
      CommId(""));
}

}  // namespace
}  // namespace axccl::boot
