// How a rank that shares its core waits: for whom it looks, when it gives the core up, and where it runs.
#include "src/exec/host/handover.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <thread>
#include <vector>

#include "src/base/processors.h"
#include "tests/exec/ensemble.h"

namespace axccl::exec {
namespace {

using device::host::Crowd;

constexpr int kRanks = 3;

// Waits for a member, which signals when it has been given that many turns.
class Waiting {
 public:
  Waiting(bool neighbour, int turns) : neighbour_(neighbour), left_(turns) {}
  Turn TakeTurn() {
    ++taken_;
    if (left_ == 0) return Turn::kWaits;
    return --left_ == 0 ? Turn::kEnded : Turn::kMoved;
  }
  bool AwaitsNeighbour() const { return neighbour_; }
  int taken() const { return taken_; }

 private:
  const bool neighbour_;
  int left_, taken_ = 0;
};

class HandoverTest : public ::testing::Test {
 protected:
  static EnsembleOptions Options() {
    EnsembleOptions options;
    options.ranks = kRanks;
    return options;
  }
  const Members& MembersOf(int rank) { return ensemble_.channel(rank)->members(); }

  Ensemble ensemble_{Options()};
  Handover handover_;
};

TEST_F(HandoverTest, ARankLooksOnlyForMembersOnOtherCores) {
  const Crowd crowd(kRanks - 1, false);
  Waiting beside(true, 0), elsewhere(false, 0);
  EXPECT_FALSE(handover_.Run(MembersOf(0), &beside));
  EXPECT_LE(beside.taken(), 4) << "a look after each time the core comes back";
  EXPECT_FALSE(Handover().Run(MembersOf(0), &elsewhere));
  EXPECT_GE(elsewhere.taken(), 64);
}

TEST_F(HandoverTest, ACallContinuesAsLongAsItMoves) {
  const Crowd crowd(kRanks - 1, false);
  for (const bool neighbour : {false, true}) {
    // A thread that looks for others cannot be held up; one that gives up the core may learn that strangers keep it.
    Waiting call(neighbour, 1000);
    const bool ended = Handover().Run(MembersOf(0), &call);
    EXPECT_TRUE(ended || neighbour);
    if (ended) {
      EXPECT_EQ(call.taken(), 1000);
    }
  }
}

TEST_F(HandoverTest, CallsThatBroughtNothingMakeTheNextOnesLeaveAtOnce) {
  const Crowd crowd(kRanks - 1, false);
  const auto until_next = [&](bool comes) {
    for (int calls = 1;; ++calls) {
      Waiting call(false, comes ? 1 : 0);
      const bool ended = handover_.Run(MembersOf(0), &call);
      EXPECT_EQ(ended, comes && call.taken() != 0);
      if (call.taken() != 0 || calls == 1000) return calls;
    }
  };
  for (const int calls : {1, 1, 3, 7, 15, 31, 63, 63}) EXPECT_EQ(until_next(false), calls);
  EXPECT_EQ(until_next(true), 63);
  EXPECT_EQ(until_next(true), 1);
}

TEST_F(HandoverTest, ARankPublishesWhereItRuns) {
  EXPECT_EQ(MembersOf(0).own().header->processor, 0u);
  std::thread([&] {
    const Crowd crowd(kRanks - 1, false);
    const std::vector<int> allowed = AllowedProcessors();
    BindThisThread({allowed.back()});
    Waiting call(false, 1);
    EXPECT_TRUE(handover_.Run(MembersOf(1), &call));
    EXPECT_EQ(MembersOf(0)[1].header->processor, static_cast<uint32_t>(allowed.back() + 1));
    EXPECT_FALSE(Handover::IsNeighbour(MembersOf(1), 0));
    MembersOf(0).own().header->processor = static_cast<uint32_t>(allowed.back() + 1);
    EXPECT_TRUE(Handover::IsNeighbour(MembersOf(1), 0));
  }).join();
}

// With as many cores as ranks, a core serves one of them.
TEST_F(HandoverTest, TheLastOfTooManyRanksOfACoreMoves) {
  const std::vector<int> allowed = AllowedProcessors();
  if (allowed.size() < 2) GTEST_SKIP() << "needs two processors";
  const auto moves = [&](int crowding) {
    const Crowd crowd(crowding, false);
    BindThisThread({allowed[0]});
    BindThisThread(allowed);
    const auto here = static_cast<uint32_t>(allowed[0] + 1);
    for (int p = 0; p < kRanks; ++p) MembersOf(p).own().header->processor = here;
    const std::atomic<uint32_t>& place = MembersOf(kRanks - 1).own().header->processor;
    // While strangers are about, the rank does not give up its core.
    const auto start = std::chrono::steady_clock::now();
    Handover handover;
    while (place == here && std::chrono::steady_clock::now() - start < std::chrono::seconds(20)) {
      Waiting call(true, 1);
      (void)handover.Run(MembersOf(kRanks - 1), &call);
    }
    EXPECT_NE(place, here);
    EXPECT_EQ(AllowedProcessors(), allowed);
  };
  for (const int crowding : {1, kRanks - 1}) std::thread(moves, crowding).join();
}

}  // namespace
}  // namespace axccl::exec
