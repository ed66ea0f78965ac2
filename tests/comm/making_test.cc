// Splits, shrinks and grows that run in the background: several of one parent at a time, and how they end when not all
// ranks make the right call. NCCL numbers such calls in the order in which they are made, and requires the same order
// on all ranks; so it does not matter which thread carries them out, or when.
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "src/boot/unique_id.h"
#include "tests/harness/client.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::AwaitComm;
using harness::Clique;
using harness::Cuda;
using harness::ExpectLastErrorHas;
using harness::ExpectShape;
using harness::Layout;
using harness::NonBlocking;
using harness::NowNs;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunNonBlockingCliques;
using harness::RunOptions;
using harness::RunRanks;
using harness::Threads;

constexpr int64_t kSecond = 1'000'000'000;

void ExpectSum(ncclComm_t comm, axcclStream_t stream, int count) {
  int one = 1, sum = -1;
  ASSERT_OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, Cuda(stream)));
  ASSERT_OK(axcclStreamSynchronize(stream));
  EXPECT_EQ(sum, count);
}

RunOptions WithInitTimeout(const char* seconds) {
  RunOptions options;
  options.environment = {{"AXCCL_INIT_TIMEOUT", seconds}};
  return options;
}

// ---- at the same time ----

class MakingTest : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, MakingTest, testing::Values(Threads(4), Processes(4)),
                         [](const auto& info) { return info.param.Text(); });

TEST_P(MakingTest, SplitsOfOneGroupDoNotMix) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const int n = context.nranks(), r = context.rank();
    for (int round = 0; round < 12; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      ncclComm_t all = nullptr, pair = nullptr, rest = nullptr;
      ASSERT_OK(ncclGroupStart());
      ASSERT_OK(ncclCommSplit(clique.comm(), 0, r, &all, nullptr));
      ASSERT_OK(ncclCommSplit(clique.comm(), r / 2, -r, &pair, nullptr));
      int out[] = {n - 1};
      if (r != n - 1) {
        ASSERT_OK(ncclCommShrink(clique.comm(), out, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
      }
      ASSERT_OK(ncclGroupEnd());
      ExpectShape(all, n, r);
      ExpectShape(pair, 2, 1 - r % 2);
      ExpectSum(pair, clique.stream(), 2);
      ASSERT_OK(ncclCommDestroy(all));
      ASSERT_OK(ncclCommDestroy(pair));
      if (r == n - 1) continue;
      ExpectShape(rest, n - 1, r);
      ASSERT_OK(ncclCommDestroy(rest));
    }
  });
}

TEST_P(MakingTest, NonBlockingSplitsInARowDoNotMix) {
  RunNonBlockingCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const int n = context.nranks(), r = context.rank();
    for (int round = 0; round < 12; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      ncclComm_t all = nullptr, pair = nullptr;
      ASSERT_EQ(ncclCommSplit(clique.comm(), 0, r, &all, nullptr), ncclInProgress);
      ASSERT_EQ(ncclCommSplit(clique.comm(), r / 2, -r, &pair, nullptr), ncclInProgress);
      ASSERT_OK(AwaitComm(context, all));
      ASSERT_OK(AwaitComm(context, pair));
      ExpectShape(all, n, r);
      ExpectShape(pair, 2, 1 - r % 2);
      ASSERT_OK(ncclCommDestroy(all));
      ASSERT_OK(ncclCommDestroy(pair));
    }
  });
}

TEST_P(MakingTest, SplitsOfTwoThreadsAtATimeAreBothWhole) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const int n = context.nranks(), r = context.rank();
    for (int round = 0; round < 8; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      // The order of the two calls is random on every rank, so both ask for the same.
      ncclComm_t made[2] = {};
      const auto split = [&](int i) { EXPECT_OK(ncclCommSplit(clique.comm(), 0, n - r, &made[i], nullptr)); };
      std::thread other(split, 1);
      split(0);
      other.join();
      for (const ncclComm_t comm : made) {
        ASSERT_NE(comm, nullptr);
        ExpectShape(comm, n, n - 1 - r);
        ASSERT_OK(ncclCommDestroy(comm));
      }
    }
  });
}

// A rank may begin many splits before its peer makes the first one, and each pairs with the right one.
TEST(Making, ARankMayBeFarAheadOfItsPeer) {
  RunNonBlockingCliques(Processes(2), [](RankContext& context, Clique& clique) {
    std::vector<ncclComm_t> made;
    if (context.rank() == 0) {
      ncclResult_t result = ncclInProgress;
      while (result == ncclInProgress && made.size() < 100)
        result = ncclCommSplit(clique.comm(), 0, 0, &made.emplace_back(), nullptr);
      EXPECT_EQ(result, ncclInvalidUsage);
      ExpectLastErrorHas({"ncclCommSplit", "are under way", "wait for the first"});
      made.pop_back();
      context.Set(0, made.size());
    }
    const size_t ahead = context.Await(0);
    EXPECT_GE(ahead, 50u);
    made.resize(ahead);
    for (size_t i = 0; i < ahead; ++i) {
      ASSERT_TRUE(context.Step("split %zu of %zu", i, ahead));
      if (context.rank() == 1) {
        ASSERT_EQ(ncclCommSplit(clique.comm(), 0, 0, &made[i], nullptr), ncclInProgress);
      }
      ASSERT_OK(AwaitComm(context, made[i]));
    }
    for (const ncclComm_t comm : made) ASSERT_OK(ncclCommDestroy(comm));
    // Refused calls do not count.
    ncclComm_t child = nullptr;
    ASSERT_EQ(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr), ncclInProgress);
    ASSERT_OK(AwaitComm(context, child));
    ExpectShape(child, 2, context.rank());
    ASSERT_OK(ncclCommDestroy(child));
  });
}

// What a rank has published in a call stays until all have read it, however many other calls come in between.
TEST_P(MakingTest, ALateRankFindsWhatItsPeersHavePublished) {
  RunNonBlockingCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const int n = context.nranks(), r = context.rank();
    ncclComm_t split = nullptr;
    if (r != 1) {
      ASSERT_EQ(ncclCommSplit(clique.comm(), r % 2, r, &split, nullptr), ncclInProgress);
      for (int round = 0; round < 40; ++round) {
        ASSERT_TRUE(context.Step("shrink %d", round));
        int out[] = {1};
        ncclComm_t rest = nullptr;
        ASSERT_EQ(ncclCommShrink(clique.comm(), out, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT), ncclInProgress);
        ASSERT_OK(AwaitComm(context, rest));
        ASSERT_OK(ncclCommDestroy(rest));
      }
    }
    ASSERT_TRUE(context.Barrier());
    if (r == 1) {
      ASSERT_EQ(ncclCommSplit(clique.comm(), r % 2, r, &split, nullptr), ncclInProgress);
    }
    ASSERT_OK(AwaitComm(context, split));
    ExpectShape(split, n / 2, r / 2);
    ExpectSum(split, clique.stream(), n / 2);
    ASSERT_OK(ncclCommDestroy(split));
  });
}

// NCCL makes no communicator for a rank without a colour, and sets its handle to null.
TEST_P(MakingTest, ANonBlockingSplitWithoutAColourGivesNone) {
  RunNonBlockingCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const bool in = context.rank() != 0;
    auto child = reinterpret_cast<ncclComm_t>(8);
    const ncclResult_t called = ncclCommSplit(clique.comm(), in ? 3 : NCCL_SPLIT_NOCOLOR, 0, &child, nullptr);
    EXPECT_TRUE(called == ncclInProgress || called == ncclSuccess) << called;
    if (in) {
      ASSERT_OK(AwaitComm(context, child));
      ExpectShape(child, context.nranks() - 1, context.rank() - 1);
      ASSERT_OK(ncclCommDestroy(child));
    } else {
      EXPECT_EQ(child, nullptr);
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// The k-th split is the k-th on every rank, also for ranks that a shrink left out before.
TEST_P(MakingTest, ARankThatWasLeftOutMayWaitForTheOthersInASplit) {
  RunNonBlockingCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const int n = context.nranks(), r = context.rank();
    ncclComm_t child = nullptr;
    if (r != 0) {
      int out[] = {0};
      ncclComm_t rest = nullptr;
      ASSERT_EQ(ncclCommShrink(clique.comm(), out, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT), ncclInProgress);
      ASSERT_OK(AwaitComm(context, rest));
      ASSERT_OK(ncclCommDestroy(rest));
      ASSERT_NE(context.Await(0), 0u);  // rank 0 is in the split
    }
    ASSERT_EQ(ncclCommSplit(clique.comm(), 0, r, &child, nullptr), ncclInProgress);
    context.Set(0, 1);
    ASSERT_OK(AwaitComm(context, child));
    ExpectShape(child, n, r);
    ASSERT_OK(ncclCommDestroy(child));
  });
}

// ---- ends ----

// Begins a split that rank 1 does not make, and ends it with `end`. No rank waits for the other.
void EndSplitBy(const std::function<void(RankContext&, Clique&, ncclComm_t)>& end) {
  RunNonBlockingCliques(Processes(2), [&](RankContext& context, Clique& clique) {
    if (context.rank() == 0) {
      ncclComm_t child = nullptr;
      ASSERT_EQ(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr), ncclInProgress);
      const int64_t begin = NowNs();
      end(context, clique, child);
      EXPECT_LT(NowNs() - begin, AllowedNs(kSecond));
    } else {
      end(context, clique, nullptr);
    }
  });
}

TEST(Making, ASplitEndsWithItsOwnAbort) {
  EndSplitBy([](RankContext& context, Clique&, ncclComm_t child) {
    if (context.rank() == 0) {
      EXPECT_OK(ncclCommAbort(child));
    }
    ASSERT_TRUE(context.Barrier());  // rank 1 stays until the end
  });
}

TEST(Making, ASplitEndsWithTheDestructionOfItsCommunicator) {
  EndSplitBy([](RankContext& context, Clique&, ncclComm_t child) {
    if (context.rank() == 0) {
      EXPECT_OK(ncclCommDestroy(child));
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(Making, ASplitEndsWithTheAbortOfItsParent) {
  EndSplitBy([](RankContext& context, Clique& clique, ncclComm_t child) {
    if (context.rank() == 0) {
      EXPECT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
      EXPECT_EQ(AwaitComm(context, child), ncclInvalidUsage);
      EXPECT_OK(ncclCommAbort(child));
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(Making, ASplitEndsWhenAPeerAbortsTheParent) {
  EndSplitBy([](RankContext& context, Clique& clique, ncclComm_t child) {
    if (context.rank() == 1) {
      EXPECT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
    } else {
      EXPECT_EQ(AwaitComm(context, child), ncclRemoteError);
      EXPECT_OK(ncclCommAbort(child));
    }
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(Making, ASplitEndsWithADeath) {
  EndSplitBy([](RankContext& context, Clique&, ncclComm_t child) {
    if (context.rank() == 1) context.Die();
    EXPECT_EQ(AwaitComm(context, child), ncclRemoteError);
    EXPECT_OK(ncclCommAbort(child));
  });
}

// What a rank has published in a call stays readable after it has aborted the call.
TEST(Making, ACallThatAPeerHasAbortedFails) {
  RunNonBlockingCliques(Processes(2), [](RankContext& context, Clique& clique) {
    ncclComm_t child = nullptr;
    for (const bool grows : {false, true, false, true}) {
      // Of each grow its own: the rendezvous of an id that was given up says so, which may come before rank 0's abort.
      ncclUniqueId id;
      if (context.rank() == 0) {
        ASSERT_OK(ncclCommGetUniqueId(clique.comm(), &id));
      }
      const auto call = [&] {
        return grows ? ncclCommGrow(clique.comm(), 3, context.rank() == 0 ? &id : nullptr, -1, &child, nullptr)
                     : ncclCommSplit(clique.comm(), 0, 0, &child, nullptr);
      };
      if (context.rank() == 0) {
        ASSERT_EQ(call(), ncclInProgress);
        EXPECT_OK(ncclCommAbort(child));
      }
      ASSERT_TRUE(context.Barrier());
      if (context.rank() == 1) {
        const int64_t begin = NowNs();
        ASSERT_EQ(call(), ncclInProgress);
        EXPECT_NE(AwaitComm(context, child), ncclSuccess);
        EXPECT_LT(NowNs() - begin, AllowedNs(kSecond));
        ExpectLastErrorHas({"rank 0 aborted"});
        EXPECT_OK(ncclCommAbort(child));
      }
    }
    ASSERT_EQ(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr), ncclInProgress);
    ASSERT_OK(AwaitComm(context, child));
    ExpectShape(child, 2, context.rank());
    ASSERT_OK(ncclCommDestroy(child));
  });
}

// The rendezvous of a grow, which accepts connections and never answers.
class SilentRendezvous {
 public:
  SilentRendezvous() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    boot::IdFields fields;
    fields.num_addresses = 1;
    fields.address[0].family = 4;
    fields.address[0].ip = {127, 0, 0, 1};
    socklen_t bytes;
    sockaddr_storage where = boot::ToSockaddr(fields.address[0], &bytes);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&where), bytes), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&where), &bytes), 0);
    fields.address[0] = boot::FromSockaddr(reinterpret_cast<const sockaddr*>(&where));
    const boot::UniqueId id = boot::Pack(fields);
    static_assert(sizeof(id_) == sizeof(id));
    std::memcpy(&id_, &id, sizeof(id));
  }
  ~SilentRendezvous() {
    for (const int guest : guests_) close(guest);
    close(fd_);
  }
  const ncclUniqueId* id() const { return &id_; }
  void AwaitGuest() { guests_.push_back(accept(fd_, nullptr, nullptr)); }

 private:
  const int fd_;
  std::vector<int> guests_;
  ncclUniqueId id_;
};

// All present ranks have connected to the rendezvous, which has admitted none, when rank 1 ends with `give_up`.
void EndGrowBy(int living, std::string_view text,
               const std::function<void(RankContext&, Clique&, ncclComm_t child)>& give_up) {
  RunCliques(Processes(3), [&](RankContext& context, Clique& clique) {
    std::optional<SilentRendezvous> rendezvous;
    if (context.rank() == 0) rendezvous.emplace();
    ncclComm_t child = nullptr;
    ncclConfig_t config = NonBlocking();
    ASSERT_EQ(ncclCommGrow(clique.comm(), 4, rendezvous.has_value() ? rendezvous->id() : nullptr, -1, &child, &config),
              ncclInProgress);
    for (int i = 0; rendezvous.has_value() && i < 3; ++i) rendezvous->AwaitGuest();
    ASSERT_TRUE(context.Barrier());
    const int64_t begin = NowNs();
    if (context.rank() == 1) {
      give_up(context, clique, child);
    } else {
      EXPECT_EQ(AwaitComm(context, child), ncclRemoteError);
      EXPECT_LT(NowNs() - begin, AllowedNs(kSecond));
      EXPECT_NE(std::string_view(ncclGetLastError(child)).find(text), std::string_view::npos)
          << ncclGetLastError(child);
      EXPECT_OK(ncclCommAbort(child));
    }
    ASSERT_TRUE(context.Barrier(1, living));
  });
}

TEST(Making, AGrowEndsWithTheAbortOfAPeerOnItsWay) {
  EndGrowBy(3, "rank 1 aborted", [](RankContext&, Clique&, ncclComm_t child) { EXPECT_OK(ncclCommAbort(child)); });
}

TEST(Making, AGrowEndsWithTheDeathOfAPeerOnItsWay) {
  EndGrowBy(2, "died", [](RankContext& context, Clique&, ncclComm_t) { context.Die(); });
}

// New ranks know only the rendezvous: an error that ends a grow for the present ranks ends it for the new ones.
TEST(Making, AGrowThatPresentRanksGiveUpEndsForNewRanks) {
  RunRanks(Processes(3), [](RankContext& context) {
    const int rank = context.rank();
    ncclUniqueId id;
    ncclComm_t parent = nullptr, child = nullptr;
    ASSERT_TRUE(harness::ShareUniqueId(context, &id));
    if (rank < 2) {
      ASSERT_OK(ncclCommInitRank(&parent, 2, id, rank));
    }
    if (rank == 0) {
      ASSERT_OK(ncclCommGetUniqueId(parent, &id));
      std::memcpy(context.board(), &id, sizeof(id));
    }
    ASSERT_TRUE(context.Barrier());
    std::memcpy(&id, context.board(), sizeof(id));
    ncclConfig_t config = NonBlocking();
    if (rank != 1) {
      ASSERT_EQ(ncclCommGrow(parent, 3, &id, rank == 0 ? -1 : 2, &child, &config), ncclInProgress);
    }
    ASSERT_TRUE(context.Barrier());
    const int64_t begin = NowNs();
    if (rank == 1) {
      EXPECT_OK(ncclCommAbort(parent));
    } else {
      EXPECT_EQ(AwaitComm(context, child), ncclRemoteError);
      EXPECT_LT(NowNs() - begin, AllowedNs(kSecond));
      EXPECT_NE(std::string_view(ncclGetLastError(child)).find("rank 1 "), std::string_view::npos)
          << ncclGetLastError(child);
      EXPECT_OK(ncclCommAbort(child));
      EXPECT_OK(ncclCommAbort(parent));
    }
    ASSERT_TRUE(context.Barrier());  // rank 0's process, which has made the id, tells a rank that comes late, too
  });
}

// AXCCL_INIT_TIMEOUT limits how long ranks wait for each other when a communicator is made, in whatever way.
TEST(Making, EveryWayEndsInTime) {
  RunCliques(
      Processes(3),
      [](RankContext& context, Clique& clique) {
        ncclUniqueId id;
        if (context.rank() == 0) {
          ASSERT_OK(ncclCommGetUniqueId(clique.comm(), &id));
        }
        if (context.rank() != 1) {
          ncclComm_t child = nullptr;
          EXPECT_EQ(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr), ncclTimeout);
          ExpectLastErrorHas({"ncclCommSplit", "rank 1 of 3", "AXCCL_INIT_TIMEOUT"});
          EXPECT_EQ(child, nullptr);
          EXPECT_EQ(ncclCommGrow(clique.comm(), 4, context.rank() == 0 ? &id : nullptr, -1, &child, nullptr),
                    ncclTimeout);
          ExpectLastErrorHas({"ncclCommGrow", "rank 1 of 3", "AXCCL_INIT_TIMEOUT"});
          int out[] = {2};
          if (context.rank() == 0) {
            EXPECT_EQ(ncclCommShrink(clique.comm(), out, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclTimeout);
            ExpectLastErrorHas({"ncclCommShrink", "rank 1 of 3", "AXCCL_INIT_TIMEOUT"});
          }
        }
        ASSERT_TRUE(context.Barrier());
        // A rank that comes after the others have given up gets an error; afterwards all ranks agree again.
        if (context.rank() == 1) {
          ncclComm_t child = nullptr;
          EXPECT_NE(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr), ncclSuccess);
          EXPECT_NE(ncclCommGrow(clique.comm(), 4, nullptr, -1, &child, nullptr), ncclSuccess);
        }
        ncclComm_t child = nullptr;
        ASSERT_OK(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr));
        ExpectShape(child, 3, context.rank());
        ASSERT_OK(ncclCommDestroy(child));
      },
      WithInitTimeout("2"));
}

// ---- ranks that do not agree ----

struct Lists {
  const char* name;
  std::vector<std::vector<int>> of_rank;  // the ranks that it leaves out; empty: it does not call
  std::vector<int> together;              // the ranks that form a communicator
  int dead = -1;
};

class DisagreeingTest : public testing::TestWithParam<Lists> {};
INSTANTIATE_TEST_SUITE_P(Shrinks, DisagreeingTest,
                         testing::Values(Lists{"AsOneHasSeenMoreDeaths", {{3}, {2, 3}, {3}, {}}, {0, 1}, 3},
                                         Lists{"AndEachIsWithoutTheOther", {{1}, {0}, {0, 1}, {0, 1}}, {2, 3}},
                                         Lists{"AllInADifferentWay", {{1}, {2}, {3}, {0}}, {}}),
                         [](const auto& info) { return info.param.name; });

// A rank that another one leaves out gets an error within a second, with both lists; the others go on. Then the ranks
// may call again with equal lists.
TEST_P(DisagreeingTest, LeaveOutWhomAnyLeavesOut) {
  const Lists& lists = GetParam();
  RunCliques(Processes(4), [&](RankContext& context, Clique& clique) {
    const int r = context.rank();
    if (r == lists.dead) context.Die();
    const auto& mine = lists.of_rank[static_cast<size_t>(r)];
    const bool goes_on = std::count(lists.together.begin(), lists.together.end(), r) > 0;
    std::vector<int> out = mine;
    ncclComm_t rest = nullptr;
    const int64_t begin = NowNs();
    const ncclResult_t called =
        ncclCommShrink(clique.comm(), out.data(), static_cast<int>(out.size()), &rest, nullptr, NCCL_SHRINK_ABORT);
    EXPECT_LT(NowNs() - begin, AllowedNs(kSecond));
    if (goes_on) {
      ASSERT_OK(called);
      ExpectShape(rest, static_cast<int>(lists.together.size()), r - lists.together[0]);
      ASSERT_OK(ncclCommDestroy(rest));
    } else {
      EXPECT_EQ(called, ncclInvalidUsage);
      EXPECT_EQ(rest, nullptr);
      ExpectLastErrorHas({"ncclCommShrink without rank", " and rank "});
    }
    const int living = lists.dead < 0 ? 4 : 3;
    ASSERT_TRUE(context.Barrier(0, living));
    if (r == 3) return;
    ASSERT_TRUE(context.Step("agree"));
    int agreed_list[] = {3};
    ASSERT_OK(ncclCommShrink(clique.comm(), agreed_list, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    ExpectShape(rest, 3, r);
    ExpectSum(rest, clique.stream(), 3);
    ASSERT_OK(ncclCommDestroy(rest));
  });
}

TEST(Disagreeing, OfSplitShrinkAndGrowNamesRanksAndCalls) {
  RunCliques(Processes(3), [](RankContext& context, Clique& clique) {
    ncclComm_t child = nullptr;
    const int64_t begin = NowNs();
    if (context.rank() == 0) {
      EXPECT_EQ(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr), ncclInvalidUsage);
      ExpectLastErrorHas({"rank 0 called ncclCommSplit"});
    } else if (context.rank() == 1) {
      EXPECT_EQ(ncclCommGrow(clique.comm(), 4, nullptr, -1, &child, nullptr), ncclInvalidUsage);
      ExpectLastErrorHas({"rank 1 called ncclCommGrow"});
    } else {
      int out[] = {1};
      EXPECT_EQ(ncclCommShrink(clique.comm(), out, 1, &child, nullptr, NCCL_SHRINK_DEFAULT), ncclInvalidUsage);
      ExpectLastErrorHas({"rank 2 called ncclCommShrink without rank 1"});
    }
    EXPECT_LT(NowNs() - begin, AllowedNs(kSecond));
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(ncclCommSplit(clique.comm(), 0, 0, &child, nullptr));
    ExpectShape(child, 3, context.rank());
    ASSERT_OK(ncclCommDestroy(child));
  });
}

}  // namespace
}  // namespace axccl::tests
