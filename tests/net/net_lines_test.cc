// How many connections the processes of several hosts hold, and what they learn of those that they have none with.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/channels.h"
#include "tests/harness/client.h"
#include "tests/harness/process_state.h"
#include "tests/harness/random.h"
#include "tests/harness/timing.h"
#include "tests/net/run_on_hosts.h"

namespace axccl::tests {
namespace {

using harness::AwaitState;
using harness::LastErrorHas;
using harness::RankContext;
using harness::TestHosts;

int Connections() { return static_cast<int>(TestHosts::Connections().size()); }

// Connections with which ranks have met, and calls of a process that was being called, end a little later.
bool Settles(RankContext& context, int expected) {
  while (Connections() != expected) {
    if (context.AnyFailed()) return false;
    usleep(1000);
  }
  return true;
}

void AllReduce(const harness::Clique& clique, ncclComm_t comm, size_t count) {
  std::vector<int> data(count, 1);
  int ranks = 0;
  ASSERT_OK(ncclCommCount(comm, &ranks));
  ASSERT_OK(ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, comm, harness::Cuda(clique.stream())));
  ASSERT_OK(axcclStreamSynchronize(clique.stream()));
  EXPECT_EQ(data, std::vector<int>(count, ranks));
}

// Rank r is on host r % hosts. A hierarchical all-reduce sends over the network only between ranks that have the same
// place on their hosts: a process needs a data line to one process of each other host.
TEST(LinesTest, ConnectionsLeadOnlyWhereSomethingGoes) {
  const int hosts = 4, on_each = harness::FullTests() ? 16 : 3;
  RunOnHosts(hosts, hosts * on_each,
             [=](const TestHosts&, RankContext& context) {
               const int others = hosts - 1;
               harness::Clique clique;
               ASSERT_TRUE(clique.Init(context));
               EXPECT_TRUE(Settles(context, others)) << Connections();
               ASSERT_TRUE(context.Barrier());
               for (const size_t count : {1u, 1000u, 500'000u}) AllReduce(clique, clique.comm(), count);
               // While the others wait for one that comes late, they tell each other what they wait in.
               if (context.rank() == 0) usleep(500'000);
               AllReduce(clique, clique.comm(), 1);
               ASSERT_TRUE(context.Barrier());
               EXPECT_TRUE(Settles(context, 2 * others)) << Connections();
               ASSERT_TRUE(context.Barrier());
               // To make a communicator, each rank tells each something, but by way of those that it has lines to.
               ncclComm_t slice = nullptr;
               ASSERT_OK(ncclCommSplit(clique.comm(), context.rank() / hosts, 0, &slice, nullptr));
               AllReduce(clique, slice, 1000);
               ASSERT_OK(ncclCommDestroy(slice));
               ASSERT_TRUE(context.Barrier());
               EXPECT_TRUE(Settles(context, 2 * others)) << Connections();
               ASSERT_TRUE(context.Barrier());
             },
             {{"NCCL_ALGO", "hierarchical"}, {"AXCCL_NET_MEASURE", "never"}});
}

// Processes end as soon as they have made their communicators, though they have passed on what others need for theirs.
TEST(LinesTest, WhoHasMadeACommunicatorMayEndAtOnce) {
  for (int times = harness::FullTests() ? 50 : 3; times > 0; --times) {
    RunOnHosts(3, 9,
               [](const TestHosts&, RankContext& context) {
                 harness::Clique clique;
                 ASSERT_TRUE(clique.Init(context));
                 for (const int colors : {1, 2, 4}) {
                   ncclComm_t child = nullptr;
                   ASSERT_OK(ncclCommSplit(clique.comm(), context.rank() % colors, -context.rank(), &child, nullptr));
                   ASSERT_OK(ncclCommDestroy(child));
                 }
               },
               {{"AXCCL_NET_MEASURE", "never"}});
  }
}

// Ranks go on with part of the others, again and again; the rest ends at once, though it has passed on what others
// need.
TEST(LinesTest, WhoGoesOnNeedsNobodyWhoHasEnded) {
  const uint64_t seed = harness::Seed();
  for (int times = harness::FullTests() ? 100 : 10; times > 0; --times) {
    RunOnHosts(2, 5,
               [=](const TestHosts&, RankContext& context) {
                 harness::Clique clique;
                 ASSERT_TRUE(clique.Init(context));
                 std::mt19937_64 random(seed + static_cast<uint64_t>(8 * times + context.rank()));
                 std::vector<ncclComm_t> comms{clique.comm()};
                 clique.ForgetComms();
                 for (bool ends = false; !ends && comms.size() < 6;) {
                   ends = comms.size() > 1 && random() % 3 == 0;
                   const int color = ends ? 1 + static_cast<int>(random() % 2) : 0;
                   ncclComm_t child = nullptr;
                   ASSERT_OK(ncclCommSplit(comms.back(), color, static_cast<int>(random() % 5), &child, nullptr));
                   comms.push_back(child);
                 }
                 for (const ncclComm_t comm : comms) ASSERT_OK(ncclCommDestroy(comm));
               },
               {{"AXCCL_NET_MEASURE", "never"}, {"AXCCL_INIT_TIMEOUT", "15"}});
  }
}

// Rank 1 passes on what others of its host are told. It is alone in its colour, and stopped as soon as it has its part.
TEST(LinesTest, ASplitGoesOnThoughOneOfAnotherColorIsStopped) {
  constexpr int kPid = 20, kRanks = 7;
  RunOnHosts(2, kRanks,
             [](const TestHosts&, RankContext& context) {
               harness::Clique clique;
               ASSERT_TRUE(clique.Init(context));
               if (context.rank() == 1) context.Set(kPid, static_cast<uint64_t>(getpid()));
               ASSERT_TRUE(context.Barrier());
               ncclComm_t split = nullptr;
               ASSERT_OK(ncclCommSplit(clique.comm(), context.rank() == 1 ? 1 : 0, 0, &split, nullptr));
               if (context.rank() == 1) return context.Freeze();
               AwaitState(context, context.Get(kPid), 'T');
               AllReduce(clique, split, 1000);
               ASSERT_OK(ncclCommDestroy(split));
               ASSERT_TRUE(context.Barrier(1, kRanks - 1));
               clique.ForgetComms();
               ASSERT_TRUE(context.Barrier(2, kRanks - 1));
               if (context.rank() == 0) {
                 EXPECT_EQ(kill(static_cast<pid_t>(context.Get(kPid)), SIGKILL), 0);
               }
             },
             {{"AXCCL_NET_MEASURE", "never"}, {"AXCCL_INIT_TIMEOUT", "15"}});
}

// Rank 0 has one communicator with rank 1, and another one with all but 1 and 6. Of the latter it watches only the
// process of rank 3 on the other host, which ends as soon as it has its part of a split.
TEST(LinesTest, OnlyMembersPassOnWhatIsSaidInACommunicator) {
  constexpr int kPid = 20;
  RunOnHosts(2, 8,
             [](const TestHosts&, RankContext& context) {
               constexpr int kPlaces[] = {0, -1, 1, 2, 3, 4, -1, 5};
               auto* const ids = reinterpret_cast<ncclUniqueId*>(context.board());
               const int rank = context.rank(), place = kPlaces[rank];
               if (rank == 0) {
                 ASSERT_OK(ncclGetUniqueId(&ids[0]));
                 ASSERT_OK(ncclGetUniqueId(&ids[1]));
               }
               ASSERT_TRUE(context.Barrier());
               ncclComm_t first = nullptr, comm = nullptr, child = nullptr;
               if (rank <= 1) {
                 ASSERT_OK(ncclCommInitRank(&first, 2, ids[0], rank));
               }
               ASSERT_TRUE(context.Barrier());
               if (place >= 0) {
                 ASSERT_OK(ncclCommInitRank(&comm, 6, ids[1], place));
                 ASSERT_TRUE(context.Barrier(1, 6));
                 ASSERT_OK(ncclCommSplit(comm, rank == 3 ? 1 : 0, 0, &child, nullptr));
               }
               if (rank == 3) {
                 ASSERT_OK(ncclCommDestroy(child));
                 ASSERT_OK(ncclCommDestroy(comm));
                 context.Set(kPid, static_cast<uint64_t>(getpid()));
                 return;
               }
               if (rank == 0) AwaitState(context, context.Await(kPid), 'Z');
               ASSERT_TRUE(context.Barrier(2, 7));
               if (place >= 0) {
                 ncclComm_t again = nullptr;
                 ASSERT_OK(ncclCommSplit(child, 0, 0, &again, nullptr));
                 ASSERT_OK(ncclCommDestroy(again));
                 ASSERT_OK(ncclCommDestroy(child));
                 ASSERT_OK(ncclCommDestroy(comm));
               }
               if (first != nullptr) {
                 ASSERT_OK(ncclCommDestroy(first));
               }
               ASSERT_TRUE(context.Barrier(3, 7));
             },
             {{"AXCCL_NET_MEASURE", "never"}, {"AXCCL_INIT_TIMEOUT", "15"}});
}

// Rank 1 is stopped when the others leave it out. No call of theirs waits for it any more.
TEST(LinesTest, WhoIsLeftOutWhileItIsStoppedHoldsUpNobody) {
  constexpr int kPid = 20, kStops = 21;
  RunOnHosts(2, 6,
             [](const TestHosts&, RankContext& context) {
               harness::Clique clique;
               ASSERT_TRUE(clique.Init(context));
               if (context.rank() == 1) context.Set(kPid, static_cast<uint64_t>(getpid()));
               ncclComm_t split = nullptr;
               ASSERT_OK(ncclCommSplit(clique.comm(), 0, 0, &split, nullptr));
               ASSERT_TRUE(context.Barrier());
               if (context.rank() == 1) {
                 context.Await(kStops);
                 return context.Freeze();
               }
               if (context.rank() == 0) {
                 context.Set(kStops, 1);
                 AwaitState(context, context.Get(kPid), 'T');
               }
               ASSERT_TRUE(context.Barrier(1, 5));
               const auto begin = harness::NowNs();
               int excluded = 1;
               ncclComm_t small = nullptr, again = nullptr;
               ASSERT_OK(ncclCommShrink(clique.comm(), &excluded, 1, &small, nullptr, NCCL_SHRINK_DEFAULT));
               ASSERT_OK(ncclCommDestroy(split));
               ASSERT_OK(ncclCommSplit(small, 0, 0, &again, nullptr));
               AllReduce(clique, again, 1000);
               ASSERT_OK(ncclCommDestroy(again));
               ASSERT_OK(ncclCommDestroy(small));
               EXPECT_LT(harness::NowNs() - begin, harness::AllowedNs(3000));
               ASSERT_TRUE(context.Barrier(2, 5));
               if (context.rank() == 0) {
                 EXPECT_EQ(kill(static_cast<pid_t>(context.Get(kPid)), SIGKILL), 0);
               }
               clique.ForgetComms();
             },
             {{"AXCCL_NET_MEASURE", "never"}});
}

// Of twelve processes, the one of rank 1 dies, and that of rank 6 is left out. All others have had something passed on
// by one of these two. Those that rank 6's process has passed on something for tell the ranks of its host themselves.
TEST(LinesTest, AShrinkNeedsFewConnections) {
  constexpr int kDies = 1, kLeftOut = 6, kHosts = 2, kRanks = 12;
  RunOnHosts(kHosts, kRanks,
             [](const TestHosts&, RankContext& context) {
               harness::Clique clique;
               ASSERT_TRUE(clique.Init(context));
               ASSERT_TRUE(Settles(context, 1)) << Connections();
               ASSERT_TRUE(context.Barrier());
               if (context.rank() == kDies) context.Die();
               if (context.rank() != kLeftOut) {
                 int data = 0;
                 EXPECT_EQ(harness::AwaitCall(
                               ncclRecv(&data, 1, ncclInt32, kDies, clique.comm(), harness::Cuda(clique.stream())),
                               clique.stream(), clique.comm()),
                           ncclRemoteError);
                 int excluded = kLeftOut;
                 ncclComm_t small = nullptr, split = nullptr;
                 ASSERT_OK(ncclCommShrink(clique.comm(), &excluded, 1, &small, nullptr, NCCL_SHRINK_ABORT));
                 ASSERT_OK(ncclCommSplit(small, 0, -context.rank(), &split, nullptr));
                 int ranks = 0;
                 ASSERT_OK(ncclCommCount(split, &ranks));
                 EXPECT_EQ(ranks, kRanks - 2);
                 ASSERT_OK(ncclCommDestroy(split));
                 EXPECT_LE(Connections(), context.rank() == kLeftOut + 1 ? kRanks / kHosts : 4);
                 ASSERT_OK(ncclCommDestroy(small));
               }
               ASSERT_TRUE(context.Barrier(1, kRanks - 1));
             },
             {{"AXCCL_NET_MEASURE", "never"}});
}

// To make a channel, ranks need no connection to its other members.
TEST(LinesTest, AChannelNeedsNoConnection) {
  RunOnHosts(2, 6,
             [](const TestHosts&, RankContext& context) {
               harness::Clique clique;
               ASSERT_TRUE(clique.Init(context));
               EXPECT_TRUE(Settles(context, 1)) << Connections();
               ASSERT_TRUE(context.Barrier());
               const axcclChannel_t channel =
                   harness::MakeChannel(clique.comm(), context.nranks(), {{0, 3}, {1, 2}, {4, 5}}, 7);
               EXPECT_TRUE(Settles(context, 1)) << Connections();
               ASSERT_TRUE(context.Barrier());
               EXPECT_OK(axcclChannelDestroy(channel));
               ASSERT_TRUE(context.Barrier());
               EXPECT_TRUE(Settles(context, 1)) << Connections();
               ASSERT_TRUE(context.Barrier());
             },
             {{"AXCCL_NET_MEASURE", "never"}});
}

// Ranks 0, 2 and 4 are on one host, where rank 4's process alone has a connection to that of rank 5. It makes no call,
// and neither do the other ranks of rank 5's host: only the processes' own threads can tell.
class UnwatchedTest : public testing::TestWithParam<bool> {};

TEST_P(UnwatchedTest, RanksLearnOfTheEndOfOneThatTheyHaveNoConnectionTo) {
  constexpr int kEnds = 5, kTime = 20, kPid = 21;
  const bool dies = GetParam();
  RunOnHosts(2, 6,
             [=](const TestHosts&, RankContext& context) {
               harness::Clique clique;
               ASSERT_TRUE(clique.Init(context));
               if (context.rank() == kEnds) context.Set(kPid, static_cast<uint64_t>(getpid()));
               ASSERT_TRUE(context.Barrier());
               if (context.rank() == kEnds) {
                 context.Set(kTime, harness::NowNs());
                 if (dies) context.Die();
                 EXPECT_OK(ncclCommAbort(clique.comm()));
                 clique.ForgetComms();
               } else if (context.rank() == 0 || context.rank() == 2) {
                 std::vector<int> data(1000, 1);
                 EXPECT_EQ(harness::AwaitCall(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum,
                                                            clique.comm(), harness::Cuda(clique.stream())),
                                              clique.stream(), clique.comm()),
                           ncclRemoteError);
                 EXPECT_LT(harness::NowNs() - context.Await(kTime), harness::AllowedNs(500));
                 const std::string pid = std::to_string(context.Get(kPid));
                 EXPECT_TRUE(LastErrorHas(dies ? "rank 5 (pid " + pid : "rank 5 aborted")) << ncclGetLastError(nullptr);
               }
               const int left = dies ? kEnds : kEnds + 1;
               ASSERT_TRUE(context.Barrier(1, left));
             },
             {{"NCCL_ALGO", "hierarchical"}, {"AXCCL_NET_MEASURE", "never"}});
}
INSTANTIATE_TEST_SUITE_P(Ends, UnwatchedTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Death" : "Abort"; });

// Rank 2's process alone watches that of rank 3 from their host, and ends. Rank 0's does so then.
TEST(LinesTest, WhoEndsIsRelievedByAnotherProcessOfItsMachine) {
  constexpr int kTime = 20, kReady = 22;
  RunOnHosts(2, 4,
             [](const TestHosts&, RankContext& context) {
               {
                 harness::Clique clique;
                 ASSERT_TRUE(clique.Init(context));
                 ASSERT_TRUE(Settles(context, 1)) << Connections();
                 ASSERT_TRUE(context.Barrier());
                 if (context.rank() == 3) {
                   context.Await(kReady);
                   context.Set(kTime, harness::NowNs());
                   context.Die();
                 }
                 if (context.rank() == 0) {
                   EXPECT_TRUE(Settles(context, 2)) << Connections();
                   context.Set(kReady, 1);
                   int data = 0;
                   EXPECT_EQ(harness::AwaitCall(
                                 ncclRecv(&data, 1, ncclInt32, 3, clique.comm(), harness::Cuda(clique.stream())),
                                 clique.stream(), clique.comm()),
                             ncclRemoteError);
                   EXPECT_LT(harness::NowNs() - context.Await(kTime), harness::AllowedNs(500));
                   EXPECT_TRUE(LastErrorHas("rank 3 (pid ")) << ncclGetLastError(nullptr);
                 }
                 if (context.rank() == 1) context.Await(kTime);
               }
               if (context.rank() >= 2) return;
               ASSERT_TRUE(context.Barrier(1, 2));
             },
             {{"AXCCL_NET_MEASURE", "never"}});
}

// A rank that has not heard anything from another one learns all the same that it has destroyed its communicator.
TEST(LinesTest, TheEndOfACommunicatorIsKnownWithoutADataLine) {
  RunOnHosts(2, 2,
             [](const TestHosts&, RankContext& context) {
               {
                 harness::Clique clique;
                 ASSERT_TRUE(clique.Init(context));
                 if (context.rank() == 1) {
                   int data = 1;
                   ASSERT_OK(ncclRecv(&data, 1, ncclInt32, 0, clique.comm(), harness::Cuda(clique.stream())));
                   EXPECT_NE(axcclStreamSynchronize(clique.stream()), ncclSuccess);
                   EXPECT_TRUE(LastErrorHas("has destroyed or aborted its communicator")) << ncclGetLastError(nullptr);
                 }
               }
               ASSERT_TRUE(context.Barrier());  // its process has not ended
             },
             {{"AXCCL_NET_MEASURE", "never"}});
}

// A rank has told one that it has no connection to of a channel, by way of another process. Nothing arrives there for a
// while, and the rank destroys its communicator and ends.
TEST(LinesTest, WhoEndsAtOnceHasToldThoseThatOthersTell) {
  constexpr int kEnds = 0, kHears = 3, kPid = 21;
  RunOnHosts(2, 4,
             [](const TestHosts& hosts, RankContext& context) {
               {
                 harness::Clique clique;
                 ASSERT_TRUE(clique.Init(context));
                 ASSERT_TRUE(Settles(context, 1)) << Connections();
                 ASSERT_TRUE(context.Barrier());
                 std::thread healer;
                 if (context.rank() == kEnds) {
                   EXPECT_TRUE(hosts.Cut(0, TestHosts::Way::kBoth));
                   (void)harness::MakeChannel(clique.comm(), context.nranks(), {{kEnds, kHears}, {1, 2}}, 7);
                   healer = std::thread([&hosts] {
                     usleep(200'000);
                     EXPECT_TRUE(hosts.Heal(0));
                   });
                   EXPECT_OK(ncclCommDestroy(clique.comm()));
                   clique.ForgetComms();
                   healer.join();
                   context.Set(kPid, static_cast<uint64_t>(getpid()));
                 } else if (context.rank() == kHears) {
                   AwaitState(context, context.Await(kPid), 'Z');
                   int data = 1;
                   EXPECT_NE(harness::AwaitCall(
                                 ncclRecv(&data, 1, ncclInt32, kEnds, clique.comm(), harness::Cuda(clique.stream())),
                                 clique.stream(), clique.comm()),
                             ncclSuccess);
                   EXPECT_TRUE(LastErrorHas("has destroyed or aborted its communicator")) << ncclGetLastError(nullptr);
                 }
                 if (context.rank() != kEnds) {
                   ASSERT_TRUE(context.Barrier(1, 3));
                 }
               }
             },
             {{"AXCCL_NET_MEASURE", "never"}});
}

// Rank 5's process is watched by that of rank 4 alone from the other host, which is stopped. Nobody else makes a call.
TEST(LinesTest, TheEndOfOneIsKnownThoughWhoWatchesItIsStopped) {
  constexpr int kEnds = 5, kStopped = 4, kTime = 20, kPid = 21, kReady = 22;
  RunOnHosts(2, 6,
             [](const TestHosts&, RankContext& context) {
               harness::Clique clique;
               ASSERT_TRUE(clique.Init(context));
               ASSERT_TRUE(Settles(context, 1)) << Connections();
               if (context.rank() == kStopped) context.Set(kPid, static_cast<uint64_t>(getpid()));
               ASSERT_TRUE(context.Barrier());
               if (context.rank() == kEnds) {
                 context.Await(kReady);
                 context.Set(kTime, harness::NowNs());
                 context.Die();
               }
               if (context.rank() == 0) {
                 const auto watcher = static_cast<pid_t>(context.Get(kPid));
                 EXPECT_EQ(kill(watcher, SIGSTOP), 0);
                 AwaitState(context, context.Get(kPid), 'T');
                 context.Set(kReady, 1);
               }
               if (context.rank() == 0 || context.rank() == 2) {
                 context.Await(kTime);
                 std::vector<int> data(1000, 1);
                 EXPECT_EQ(harness::AwaitCall(ncclAllReduce(data.data(), data.data(), data.size(), ncclInt32, ncclSum,
                                                            clique.comm(), harness::Cuda(clique.stream())),
                                              clique.stream(), clique.comm()),
                           ncclRemoteError);
                 EXPECT_LT(harness::NowNs() - context.Get(kTime), harness::AllowedNs(500));
                 EXPECT_TRUE(LastErrorHas("rank 5 (pid ")) << ncclGetLastError(nullptr);
                 ASSERT_TRUE(context.Barrier(1, 2));
               }
               if (context.rank() == 0) {
                 EXPECT_EQ(kill(static_cast<pid_t>(context.Get(kPid)), SIGCONT), 0);
               }
               ASSERT_TRUE(context.Barrier(2, kEnds));
             },
             {{"NCCL_ALGO", "hierarchical"}, {"AXCCL_NET_MEASURE", "never"}});
}

}  // namespace
}  // namespace axccl::tests
