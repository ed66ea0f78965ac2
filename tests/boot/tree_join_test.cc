// Rendezvous in a tree (src/boot/node.h), with one id and with several: which ranks are connected, and how every rank
// learns of an error, wherever it occurs. The other tests of the rendezvous run a second time in trees, see
// CMakeLists.txt.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/base/param.h"
#include "src/boot/boot.h"
#include "src/boot/hub.h"
#include "src/boot/tree.h"
#include "tests/boot/meeting.h"
#include "tests/harness/random.h"
#include "tests/harness/run_ranks.h"

namespace axccl::boot {
namespace {

using harness::RankContext;

#define EXPECT_MENTIONS(status, text) \
  EXPECT_NE(std::string((status).message()).find(text), std::string_view::npos) << (status).message()

constexpr int kRanks = 23;

harness::RunOptions InTrees() {
  harness::RunOptions options;
  options.environment = {{"AXCCL_TREE_RANKS", "2"}};
  options.deadline = std::chrono::seconds(30);
  return options;
}

// `count` ids, each made by another rank.
std::vector<UniqueId> ShareIds(RankContext& context, int count, int slot = 0) {
  auto* const place = reinterpret_cast<UniqueId*>(context.board() + 8192 + static_cast<size_t>(slot) * 4096);
  const int stride = context.nranks() / count;
  if (context.rank() % stride == 0 && context.rank() / stride < count) {
    place[context.rank() / stride] = CreateUniqueId().value();
  }
  context.Barrier(60);
  return std::vector<UniqueId>(place, place + count);
}

std::chrono::milliseconds Soon() { return std::chrono::milliseconds(1000) * harness::TimeScale(); }

// TCP connections of this process.
int Connections() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    sockaddr_storage name{};
    socklen_t bytes = sizeof name;
    count += getpeername(fd, reinterpret_cast<sockaddr*>(&name), &bytes) == 0 &&
             (name.ss_family == AF_INET || name.ss_family == AF_INET6);
  }
  return count;
}

TEST(TreeJoinTest, EveryRankGetsEveryContributionOverAHandfulOfConnections) {
  for (const int roots : {1, 2, 5, kRanks}) {
    harness::RunRanks(
        harness::Processes(kRanks),
        [roots](RankContext& context) {
          const std::vector<UniqueId> ids = ShareIds(context, roots);
          Result<std::unique_ptr<Session>> session = Session::Join(ids, context.rank(), kRanks, Patient(), nullptr);
          ASSERT_TRUE(session.ok()) << session.status().message();
          for (const size_t bytes : {size_t{1}, size_t{2776}, kMaxContribution, size_t{8}}) {
            ExpectExchange(session.value().get(), context.rank(), kRanks, bytes, bytes);
          }
          ASSERT_TRUE(context.Barrier());
          const Branch branch = BranchOf(context.rank(), kRanks, roots);
          // The hub closes its links once it has read that the rank leaves.
          const int links = static_cast<int>(branch.children.size()) + (branch.parent >= 0);
          while (Connections() > links) ASSERT_TRUE(context.Step("%d connections, %d wanted", Connections(), links));
          EXPECT_EQ(Connections(), links);
          ASSERT_TRUE(context.Barrier(1));
          session.value().reset();
          while (Connections() != 0) ASSERT_TRUE(context.Step("%d connections are left", Connections()));
          EXPECT_EQ(Hub::Get().value()->Count().value().nodes, 0u);
          ASSERT_TRUE(context.Barrier(2));
        },
        InTrees());
  }
}

TEST(TreeJoinTest, ManyThreadsInAFewProcesses) {
  harness::RunRanks(
      harness::Layout{3, 20, 1},
      [](RankContext& context) {
        const UniqueId id = ShareId(context);
        for (int round = 0; round < 2; ++round) {
          const UniqueId fresh = round == 0 ? id : ShareId(context, 1);
          const auto session = JoinWell(context, fresh);
          ExpectExchange(session.get(), context.rank(), 60, 500, 1);
          ExpectExchange(session.get(), context.rank(), 60, 20, 2);
        }
      },
      InTrees());
}

TEST(TreeFailureTest, ADeathAnywhereReachesAll) {
  // The top, a leader with ranks of two kinds below it, one in the middle, and a leaf.
  for (const auto& [roots, victim] : {std::pair{1, 0}, {2, 11}, {2, 13}, {3, 22}}) {
    harness::RunRanks(
        harness::Processes(kRanks),
        [roots = roots, victim = victim](RankContext& context) {
          const std::vector<UniqueId> ids = ShareIds(context, roots);
          Result<std::unique_ptr<Session>> session = Session::Join(ids, context.rank(), kRanks, Patient(), nullptr);
          ASSERT_TRUE(session.ok()) << session.status().message();
          ExpectExchange(session.value().get(), context.rank(), kRanks, 10, 1);
          ASSERT_TRUE(context.Barrier());
          if (context.rank() == victim) context.Die();
          const auto start = Clock::now();
          uint64_t mine = 0, all[kRanks];
          const Status status = session.value()->AllGather(&mine, sizeof mine, all);
          EXPECT_LT(Clock::now() - start, Soon());
          EXPECT_EQ(status.code(), Code::kRemoteError) << status.message();
          EXPECT_MENTIONS(status, "rank " + std::to_string(victim) + " (pid");
          ASSERT_TRUE(context.Barrier(1, kRanks - 1));
        },
        InTrees());
  }
}

// Whether the rank is the last of its group, not counting `without`.
bool IsLastOfGroup(int rank, int without, int roots) {
  if (rank == without) return false;
  for (int other = rank + 1; other < kRanks; ++other)
    if (other != without && RootOf(other, kRanks, roots) == RootOf(rank, kRanks, roots)) return false;
  return true;
}

TEST(TreeFailureTest, ADeathWhileRanksFindEachOtherReachesAll) {
  // A rank that dies before it has come to its id is simply missing, and the others wait for a deadline: a long one
  // under a sanitizer.
  const int runs = harness::FullTests() ? 300 : harness::TimeScale() > 1 ? 3 : 6;
  harness::Random random(harness::Seed());
  for (int run = 0; run < runs; ++run) {
    const int roots = 1 + static_cast<int>(random.Below(4)), victim = static_cast<int>(random.Below(kRanks));
    const auto delay = std::chrono::microseconds(3000 + random.Below(12000)) * harness::TimeScale();
    harness::RunRanks(
        harness::Processes(kRanks),
        [=](RankContext& context) {
          const std::vector<UniqueId> ids = ShareIds(context, roots);
          if (context.rank() == victim) {
            std::thread([&] { (void)!Session::Join(ids, victim, kRanks, Patient(), nullptr).ok(); }).detach();
            std::this_thread::sleep_for(delay);  // the moment does not matter
            context.Set(0, 1);
            context.Die();
          }
          // One rank of each group has a short deadline, and its hub names the ranks that it has waited for. The others
          // wait until they get that error; the rank itself may not wait for it.
          const bool hasty = IsLastOfGroup(context.rank(), victim, roots);
          const auto deadline = Clock::now() + std::chrono::milliseconds(hasty ? 1500 : 12000) * harness::TimeScale();
          Result<std::unique_ptr<Session>> session = Session::Join(ids, context.rank(), kRanks, deadline, nullptr);
          uint64_t mine = 0, all[kRanks];
          Status status = session.status();
          while (status.ok()) status = session.value()->AllGather(&mine, sizeof mine, all);
          context.Await(0);
          EXPECT_LT(Clock::now(), deadline + Soon());
          EXPECT_TRUE(status.code() == Code::kRemoteError || status.code() == Code::kTimeout) << status.message();
          // Ranks that come to an id of the dead process may find no listener there.
          const std::string text(status.message());
          EXPECT_TRUE(text.find("rank " + std::to_string(victim) +
                                (status.code() == Code::kTimeout ? " of" : " (pid")) != std::string::npos ||
                      text.find("the process") != std::string::npos ||
                      (hasty && text.find("deadline passed") != std::string::npos))
              << victim << ": " << text;
          ASSERT_TRUE(context.Barrier(1, kRanks - 1));
        },
        InTrees());
    if (testing::Test::HasFailure()) {
      std::printf("run %d: %d ids, rank %d after %lld us\n", run, roots, victim, static_cast<long long>(delay.count()));
      return;
    }
  }
}

// A group may have failed before its leader comes, which it then refuses. The other groups wait for the leader.
TEST(TreeFailureTest, ALeaderOfAGroupThatHasFailedInformsTheOtherGroups) {
  harness::RunRanks(
      harness::Processes(kRanks),
      [](RankContext& context) {
        constexpr int kLeader = 7, kWrong = 11;  // in the middle group
        const std::vector<UniqueId> ids = ShareIds(context, 3);
        if (context.rank() == kLeader) context.Await(0);
        const int nranks = context.rank() == kWrong ? kRanks + 1 : kRanks;
        const Status status = Session::Join(ids, context.rank(), nranks, Patient(), nullptr).status();
        if (context.rank() == kWrong) context.Set(0, 1);
        EXPECT_EQ(status.code(), Code::kInvalidUsage) << status.message();
        EXPECT_MENTIONS(status, "rank 11 (pid");
        EXPECT_MENTIONS(status, "with nranks 24");
        ASSERT_TRUE(context.Barrier());
      },
      InTrees());
}

TEST(TreeFailureTest, ARankThatIsMissingIsNamedInEveryGroup) {
  harness::RunRanks(
      harness::Processes(kRanks),
      [](RankContext& context) {
        const std::vector<UniqueId> ids = ShareIds(context, 3);
        if (context.rank() == 17) {
          ASSERT_TRUE(context.Barrier());
          return;
        }
        // One rank of the group has a short deadline; all others would wait for long.
        const auto patience = context.rank() == 20 ? std::chrono::milliseconds(300) : std::chrono::milliseconds(20000);
        const Status status = Session::Join(ids, context.rank(), kRanks, Clock::now() + patience, nullptr).status();
        EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
        EXPECT_MENTIONS(status, "rank 20 (pid");
        EXPECT_MENTIONS(status, "rank 17 of 23");
        ASSERT_TRUE(context.Barrier());
      },
      InTrees());
}

TEST(TreeFailureTest, ARankThatDoesNotContributeIsNamed) {
  // The others wait for a deadline: a long one under a sanitizer, which gets one of the ranks.
  std::vector<int> ranks = {0, 5, 22};
  if (harness::TimeScale() > 1) ranks = {harness::Random(harness::Seed()).Pick(ranks)};
  for (const int late : ranks) {
    harness::RunRanks(
        harness::Processes(kRanks),
        [late](RankContext& context) {
          const std::vector<UniqueId> ids = ShareIds(context, 2);
          const auto deadline =
              Clock::now() + std::chrono::milliseconds(context.rank() == 9 ? 600 : 20000) * harness::TimeScale();
          Result<std::unique_ptr<Session>> session = Session::Join(ids, context.rank(), kRanks, deadline, nullptr);
          ASSERT_TRUE(session.ok()) << session.status().message();
          uint64_t mine = 0, all[kRanks];
          if (context.rank() != late) {
            const Status status = session.value()->AllGather(&mine, sizeof mine, all);
            EXPECT_EQ(status.code(), Code::kTimeout) << status.message();
            EXPECT_MENTIONS(status, "rank 9 (pid");
            EXPECT_MENTIONS(status, "for the addresses of rank " + std::to_string(late) + " (pid");
          }
          ASSERT_TRUE(context.Barrier());
          EXPECT_EQ(session.value()->AllGather(&mine, sizeof mine, all).code(), Code::kTimeout);
          ASSERT_TRUE(context.Barrier(1));
        },
        InTrees());
  }
}

TEST(TreeFailureTest, AbortAndReasonsReachAll) {
  harness::RunRanks(
      harness::Processes(kRanks),
      [](RankContext& context) {
        const std::vector<UniqueId> ids = ShareIds(context, 2);
        std::atomic<bool> abort{false};
        const service::Stop stop = [&] { return abort.load(); };
        Result<std::unique_ptr<Session>> session =
            Session::Join(ids, context.rank(), kRanks, Patient(), context.rank() == 14 ? stop : nullptr);
        ASSERT_TRUE(session.ok()) << session.status().message();
        if (context.rank() == 14) abort.store(true);
        uint64_t mine = 0, all[kRanks];
        const Status status = context.rank() == 3 ? Status() : session.value()->AllGather(&mine, sizeof mine, all);
        if (context.rank() != 3) {
          EXPECT_EQ(status.code(), Code::kRemoteError) << status.message();
          EXPECT_MENTIONS(status, "aborted by the caller");
        }
        ASSERT_TRUE(context.Barrier());
        session.value()->Fail(MakeStatus(Code::kSystemError, "too late to matter"));
        EXPECT_MENTIONS(session.value()->AllGather(&mine, sizeof mine, all), "aborted by the caller");
        ASSERT_TRUE(context.Barrier(1));
      },
      InTrees());
}

TEST(TreeFailureTest, OtherIdsOrAnotherKindOfMeetingAreNamed) {
  harness::RunRanks(
      harness::Processes(4),
      [](RankContext& context) {
        std::vector<UniqueId> ids = ShareIds(context, 2);
        if (context.rank() == 3) std::swap(ids[0], ids[1]);
        const Status status = Session::Join(ids, context.rank(), 4, Patient(), nullptr).status();
        EXPECT_EQ(status.code(), Code::kInvalidUsage) << status.message();
        EXPECT_MENTIONS(status, "pass the same ids in the same order");
        ASSERT_TRUE(context.Barrier());
      },
      InTrees());
  harness::RunRanks(harness::Processes(3), [](RankContext& context) {
    const UniqueId id = ShareId(context, 0);
    setenv("AXCCL_TREE_RANKS", context.rank() == 1 ? "2" : "99", 1);
    param::Reset("AXCCL_TREE_RANKS");
    const Status status = JoinStatus(id, context.rank(), 3);
    EXPECT_EQ(status.code(), Code::kInvalidUsage) << status.message();
    EXPECT_MENTIONS(status, "set AXCCL_TREE_RANKS alike");
    ASSERT_TRUE(context.Barrier());
  });
}

// Prints how long ranks take to meet and to exchange the data of a communicator (about 3 KB twice, 16 B twice).
TEST(TreeJoinTest, Times) {
  const int most = harness::FullTests() ? 256 : 8;
  for (int ranks = 8; ranks <= most; ranks = ranks == 8 ? 64 : ranks * 4) {
    for (const char* tree_ranks : {"100000", "2"}) {
      harness::RunOptions options = InTrees();
      options.deadline = std::chrono::seconds(120);
      options.environment = {{"AXCCL_TREE_RANKS", tree_ranks}};
      harness::RunRanks(
          harness::Processes(ranks),
          [&](RankContext& context) {
            double best = 1e9, cpu_ms = 0;
            int connections = 0;
            for (int round = 0; round < 5; ++round) {
              const UniqueId id = ShareId(context);
              ASSERT_TRUE(context.Barrier());
              const auto start = Clock::now();
              const std::clock_t cpu = std::clock();
              const auto session = JoinWell(context, id);
              ASSERT_NE(session, nullptr);
              std::vector<std::byte> mine(3000), all(mine.size() * static_cast<size_t>(ranks));
              for (const size_t bytes : {size_t{2776}, size_t{3000}, size_t{16}, size_t{1}}) {
                ASSERT_TRUE(session->AllGather(mine.data(), bytes, all.data()).ok());
              }
              ASSERT_TRUE(context.Barrier());
              best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
              cpu_ms = 1e3 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
              connections = Connections();
              ASSERT_TRUE(context.Barrier());
            }
            if (context.rank() == 0) {
              std::printf(
                  "             %3d processes, %s: best of 5 %.1f ms; the serving process used %.1f ms of its cores "
                  "and "
                  "holds %d connections\n",
                  ranks, *tree_ranks == '2' ? "tree" : "star", best, cpu_ms, connections);
            }
          },
          options);
    }
  }
}

}  // namespace
}  // namespace axccl::boot
