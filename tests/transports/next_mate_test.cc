// A ring of processes, each of which notices the end of the next one.
#include "transports/remote/next_mate.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <vector>

#include "tests/harness/process_ids.h"
#include "tests/harness/process_state.h"
#include "tests/harness/run_ranks.h"

namespace axccl::remote {
namespace {

using harness::AwaitState;
using harness::RankContext;

constexpr std::chrono::seconds kPatient{15};

// Of a process, by number. Lives as long as the process, as the service thread does.
class Member {
 public:
  explicit Member(int self) : loop_(service::Loop::Get().value()) {
    Status started;
    EXPECT_TRUE(loop_
                    ->Run([&] {
                      started = next_.Start(loop_, harness::ProcessId(self), [this](const NextMate::ProcessId& mate) {
                        std::lock_guard lock(mutex_);
                        ended_.push_back(mate[0]);
                      });
                    })
                    .ok());
    EXPECT_TRUE(started.ok());
  }
  void Add(const std::vector<int>& mates) {
    std::vector<NextMate::ProcessId> ids;
    for (const int mate : mates) ids.push_back(harness::ProcessId(mate));
    EXPECT_TRUE(loop_->Run([&] { next_.Add(ids); }).ok());
  }
  std::vector<int> ended() {
    std::lock_guard lock(mutex_);
    return ended_;
  }
  std::vector<int> Await(size_t count) {
    const auto limit = std::chrono::steady_clock::now() + kPatient;
    while (ended().size() < count && std::chrono::steady_clock::now() < limit) usleep(1000);
    return ended();
  }

 private:
  service::Loop* const loop_;
  NextMate next_;
  std::mutex mutex_;
  std::vector<int> ended_;
};

// Of ranks 0 to 3, ranks 1 and 2 end, one after the other, and rank 0 notices both. There is no process 9, which is
// noticed where it would be the next one.
TEST(NextMateTest, TheEndOfTheNextOneIsNoticedAndOfTheOneBehindIt) {
  constexpr int kEnd = 1;
  harness::RunRanks(harness::Processes(4), [](RankContext& context) {
    const int self = context.rank() + 1;
    static auto* const member = new Member(self);
    ASSERT_TRUE(context.Barrier());
    std::vector<int> mates = {9};
    for (int mate = 4; mate >= 1; --mate) {
      if (mate != self) mates.push_back(mate);
    }
    member->Add(mates);
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) context.Die();
    if (context.rank() == 2) {
      context.Await(kEnd);
      context.Die();
    }
    if (context.rank() == 0) {
      EXPECT_EQ(member->Await(1), (std::vector<int>{2}));
      context.Set(kEnd, 1);
      EXPECT_EQ(member->Await(2), (std::vector<int>{2, 3}));
    }
    ASSERT_TRUE(context.Barrier(1, 2));
    if (context.rank() == 3) {
      EXPECT_EQ(member->ended(), (std::vector<int>{9}));
    }
    ASSERT_TRUE(context.Barrier(2, 2));
  });
}

// Of ranks 0 to 2, rank 2 ends while rank 1, which alone is connected to it, is stopped; and then rank 1 ends.
TEST(NextMateTest, WhoeverEndsBeforeTheNextOneCouldTellIsNoticed) {
  constexpr int kPid = 10, kEnd = 1;
  harness::RunRanks(harness::Processes(3), [](RankContext& context) {
    const int self = context.rank() + 1;
    static auto* const member = new Member(self);
    context.Set(kPid + context.rank(), static_cast<uint64_t>(getpid()));
    ASSERT_TRUE(context.Barrier());
    std::vector<int> mates = {1, 2, 3};
    std::erase(mates, self);
    member->Add(mates);
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) context.Freeze();
    if (context.rank() == 2) {
      context.Await(kEnd);
      context.Die();
    }
    const uint64_t next = context.Get(kPid + 1), last = context.Get(kPid + 2);
    AwaitState(context, next, 'T');
    context.Set(kEnd, 1);
    AwaitState(context, last, 'Z');
    ASSERT_EQ(kill(static_cast<pid_t>(next), SIGKILL), 0);
    EXPECT_EQ(member->Await(2), (std::vector<int>{2, 3}));
  });
}

// Rank 0 knows each of the others, who do not know each other.
TEST(NextMateTest, OneMayBeInSeveralRings) {
  harness::RunRanks(harness::Processes(3), [](RankContext& context) {
    const int self = context.rank() + 1;
    static auto* const member = new Member(self);
    ASSERT_TRUE(context.Barrier());
    if (context.rank() != 1) member->Add({self == 1 ? 3 : 1});
    if (context.rank() != 2) member->Add({self == 1 ? 2 : 1});
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 2) context.Die();
    if (context.rank() == 0) {
      EXPECT_EQ(member->Await(1), (std::vector<int>{3}));
    }
    ASSERT_TRUE(context.Barrier(1, 2));
  });
}

// It has ended before it could be connected to.
TEST(NextMateTest, OneThatRefusesHasEnded) {
  harness::RunRanks(harness::Processes(1), [](RankContext&) {
    static auto* const member = new Member(1);
    member->Add({2});
    EXPECT_EQ(member->Await(1), (std::vector<int>{2}));
  });
}

}  // namespace
}  // namespace axccl::remote
