// Three processes on two machines, of which one passes on what another one is told, and is stopped meanwhile, or ends.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/transports/tcp_node.h"
#include "transports/remote/lines.h"

namespace axccl::tcp {
namespace {

using harness::RankContext;
using remote::Lines;
using test::AwaitUntil;
using test::ExpectMessages;
using test::kPatient;
using test::Node;
using test::Pair;

constexpr int kSender = 0, kRelay = 1, kReceiver = 2;
constexpr uint64_t kFirstMachine = 1, kSecondMachine = 2;

void Stop(const RankContext& context, pid_t process) {
  ASSERT_EQ(kill(process, SIGSTOP), 0);
  AwaitUntil(context, [&] {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    const std::string stat{std::istreambuf_iterator<char>(file), {}};
    return stat.find(") T ") != std::string::npos;
  });
}

// The ranks of one process each. The sender watches the relay alone, which passes on what it tells the receiver.
// `relays`: what the sender knows of that; without any, only what reaches the receiver somehow goes that way.
struct Trio {
  explicit Trio(RankContext* of, const std::vector<int>& relays = {kRelay}) : context(*of), node(of) {
    if (context.rank() == kRelay) {
      node.Connect(&to_relay, 1, kSender, kFirstMachine, true);
      EXPECT_TRUE(Lines::Made()->AddMates({Node::ProcessOf(kReceiver)}).ok());
    } else if (context.rank() == kSender) {
      node.Connect(&to_relay, 1, kRelay, kSecondMachine, true);
      node.Connect(&pair, 1, kReceiver, kSecondMachine, false, nullptr, relays);
      node.Connect(&last, 2, kReceiver, kSecondMachine, false, &pair, relays);
      Lines::Made()->AwaitLifelines(Node::ProcessOf(kRelay), service::Clock::now() + kPatient);
    } else {
      node.Connect(&pair, 1, kSender, kFirstMachine, false);
      node.Connect(&last, 2, kSender, kFirstMachine, false, &pair);
      EXPECT_TRUE(Lines::Made()->AddMates({Node::ProcessOf(kRelay)}).ok());
    }
    EXPECT_TRUE(context.Barrier());
  }
  ~Trio() {
    for (const Pair* each : {&pair, &last, &to_relay}) {
      if (each->reach != nullptr) each->reach->Detach();
    }
  }
  void TellCertainly(Pair* of, uint64_t value) {
    of->Say(value);
    of->reach->PublishAside({}, 0);
  }
  bool HasLineToReceiver() const {
    return Lines::Made()->Tell(Node::ProcessOf(kReceiver), {.kind = remote::Notice::kShown});
  }

  RankContext& context;
  Node node;
  Pair pair, last, to_relay;
};

// How the sender tells the receiver something newer while the relay is stopped.
enum class Newer { kInItsTurn, kStateOnALifeline };

class RelayTest : public testing::TestWithParam<Newer> {};

TEST_P(RelayTest, AStateThatComesLateReplacesNothing) {
  constexpr int kPid = 1, kHeard = 2;
  constexpr uint64_t kOld = 1, kNew = 2, kLast = 3;
  const Newer newer = GetParam();
  harness::RunRanks(harness::Processes(3), [=](RankContext& context) {
    if (context.rank() == kRelay) context.Set(kPid, static_cast<uint64_t>(getpid()));
    const auto receiver = Node::ProcessOf(kReceiver);
    // The relay passes on what `last` says behind what `pair` says.
    Trio trio(&context, {});
    Pair &pair = trio.pair, &last = trio.last;
    if (context.rank() == kSender) {
      const auto relay = static_cast<pid_t>(context.Get(kPid));
      Stop(context, relay);
      pair.Say(kOld);
      pair.reach->PublishState({}, 0);
      last.Say(kLast);
      last.reach->PublishState({}, 0);
      pair.Say(kNew);
      if (newer == Newer::kInItsTurn) {
        pair.reach->Publish(nullptr, {}, 128);
        pair.reach->PublishState({}, 0);
      } else {
        const remote::Notice any{.kind = remote::Notice::kShown};
        Lines::Made()->CallAndTell(receiver, any);
        AwaitUntil(context, [&] { return Lines::Made()->Tell(receiver, any); });
        pair.reach->PublishState({}, 0);
      }
      context.Await(kHeard);
      ASSERT_EQ(kill(relay, SIGCONT), 0);
    } else if (context.rank() == kReceiver) {
      AwaitUntil(context, [&] { return pair.Heard() == kNew; });
      EXPECT_NE(last.Heard(), kLast);
      context.Set(kHeard, 1);
      AwaitUntil(context, [&] { return last.Heard() == kLast; });
      EXPECT_EQ(pair.Heard(), kNew);
    }
    ASSERT_TRUE(context.Barrier());
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, RelayTest, testing::Values(Newer::kInItsTurn, Newer::kStateOnALifeline),
                         [](const auto& info) {
                           return info.param == Newer::kInItsTurn ? "InItsTurn" : "StateOnALifeline";
                         });

// The relay is stopped, and passes on nothing, but the sender has something to publish itself. What the relay passes on
// later comes a second time.
TEST(RelayedStates, AreNotOvertakenByWhatHasATurn) {
  constexpr int kPid = 1, kHeard = 2, kHeardAgain = 3;
  constexpr uint64_t kFirst = 1, kSecond = 2, kThird = 3;
  harness::RunRanks(harness::Processes(3), [=](RankContext& context) {
    if (context.rank() == kRelay) context.Set(kPid, static_cast<uint64_t>(getpid()));
    Trio trio(&context);
    if (context.rank() == kSender) {
      const auto relay = static_cast<pid_t>(context.Get(kPid));
      Stop(context, relay);
      trio.TellCertainly(&trio.pair, kFirst);
      trio.pair.Say(kSecond, 128);
      trio.pair.reach->Publish(nullptr, {}, 128);
      context.Await(kHeard);
      trio.TellCertainly(&trio.last, kFirst);
      ASSERT_EQ(kill(relay, SIGCONT), 0);
      context.Await(kHeardAgain);
      trio.pair.Say(kThird, 128);
      trio.pair.reach->Publish(nullptr, {}, 128);
    } else if (context.rank() == kReceiver) {
      AwaitUntil(context, [&] { return trio.pair.Heard(128) == kSecond; });
      EXPECT_EQ(trio.pair.Heard(), kFirst);
      context.Set(kHeard, 1);
      AwaitUntil(context, [&] { return trio.last.Heard() == kFirst; });
      context.Set(kHeardAgain, 1);
      AwaitUntil(context, [&] { return trio.pair.Heard(128) == kThird; });
      ExpectMessages(context, trio.pair, 3);
      EXPECT_FALSE(trio.pair.reach->Died());
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// Blocks the thread that passes on, until the cell is set. Who ends before has to wait for that.
void Block(RankContext* context, int cell) {
  const Status posted = service::Loop::Get().value()->Post([context, cell] { context->Await(cell); });
  ASSERT_TRUE(posted.ok());
}

// Passes on nothing from when it has set the first cell, and dies once the second one is set.
void DieWithoutPassing(RankContext* context, int blocked, int dies) {
  constexpr int kNever = 63;
  Block(context, kNever);
  context->Set(blocked, 1);
  context->Await(dies);
  context->Die();
}

// The relay dies before it has looked at what it was to pass on.
TEST(RelayedStates, AreToldAgainIfTheRelayDies) {
  constexpr int kBlocked = 1, kSaid = 2;
  harness::RunRanks(harness::Processes(3), [](RankContext& context) {
    Trio trio(&context);
    if (context.rank() == kRelay) DieWithoutPassing(&context, kBlocked, kSaid);
    if (context.rank() == kSender) {
      context.Await(kBlocked);
      trio.TellCertainly(&trio.pair, 1);
      trio.TellCertainly(&trio.last, 2);
      context.Set(kSaid, 1);
    } else {
      AwaitUntil(context, [&] { return trio.pair.Heard() == 1 && trio.last.Heard() == 2; });
    }
    ASSERT_TRUE(context.Barrier(1, 2));
  });
}

// The sender leaves after a failure, and has no time left for one of its ranks when the relay has not passed on
// anything.
TEST(RelayedStates, AreToldByWhoLeavesWithoutTime) {
  constexpr int kBlocked = 1, kSaid = 2, kHeard = 3;
  harness::RunRanks(harness::Processes(3), [](RankContext& context) {
    Trio trio(&context);
    if (context.rank() == kRelay) DieWithoutPassing(&context, kBlocked, kSaid);
    if (context.rank() == kSender) {
      context.Await(kBlocked);
      trio.TellCertainly(&trio.pair, 1);
      trio.TellCertainly(&trio.last, 2);
      trio.pair.reach->BeginFlush();
      trio.pair.reach->AwaitFlush(std::chrono::milliseconds(50));
      trio.pair.reach->Detach();
      trio.last.reach->Detach();
      context.Set(kSaid, 1);
      context.Await(kHeard);
    } else {
      AwaitUntil(context, [&] { return trio.pair.Heard() == 1 && trio.last.Heard() == 2; });
      context.Set(kHeard, 1);
    }
    ASSERT_TRUE(context.Barrier(1, 2));
  });
}

// What the relay has passed on is no reason to call the receiver when the relay ends.
TEST(RelayedStates, AreNotToldAgainOnceTheyHavePassed) {
  constexpr int kHeard = 1;
  harness::RunRanks(harness::Processes(3), [](RankContext& context) {
    Trio trio(&context);
    const auto relay = Node::ProcessOf(kRelay), receiver = Node::ProcessOf(kReceiver);
    if (context.rank() == kRelay) {
      context.Await(kHeard);
      context.Die();
    } else if (context.rank() == kSender) {
      for (uint64_t value = 1; value <= 50; ++value) trio.TellCertainly(&trio.pair, value);
      AwaitUntil(context, [&] { return Lines::Made()->HasPassed(relay, receiver, 50); });
      context.Set(kHeard, 1);
      AwaitUntil(context, [&] { return trio.to_relay.reach->Died(); });
      ASSERT_TRUE(service::Loop::Get().value()->Run([] {}).ok());  // whatever follows from that has been done
      trio.pair.Say(51, 128);
      trio.pair.reach->Publish(nullptr, {}, 128);
    } else {
      AwaitUntil(context, [&] { return trio.pair.Heard(128) == 51; });
      EXPECT_EQ(trio.pair.Heard(), 50u);
      ExpectMessages(context, trio.pair, 51);
    }
    if (context.rank() != kRelay) {
      ASSERT_TRUE(context.Barrier(1, 2));
    }
  });
}

// The sender watches two processes that may pass on what it tells. Once the first one has ended, the second one does,
// whether or not the first one has passed on anything.
class NextRelayTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Relays, NextRelayTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "OfOneThatHasPassed" : "OfOneThatHasNot"; });

TEST_P(NextRelayTest, PassesOnOnceOneHasEnded) {
  constexpr int kSecond = 3, kPassed = 1;
  const bool uses_first = GetParam();
  harness::RunRanks(harness::Processes(4), [=](RankContext& context) {
    Node node(&context);
    Pair pair, to_relay, to_second;
    const auto relay = Node::ProcessOf(kRelay), second = Node::ProcessOf(kSecond),
               receiver = Node::ProcessOf(kReceiver);
    const int rank = context.rank();
    if (rank == kSender) {
      node.Connect(&to_relay, 1, kRelay, kSecondMachine, true);
      node.Connect(&to_second, 1, kSecond, kSecondMachine, true);
      node.Connect(&pair, 1, kReceiver, kSecondMachine, false, nullptr, {kRelay, kSecond});
      for (const auto& process : {relay, second})
        Lines::Made()->AwaitLifelines(process, service::Clock::now() + kPatient);
    } else {
      node.Connect(&pair, 1, kSender, kFirstMachine, rank != kReceiver);
      const auto mates = rank == kReceiver ? std::vector{relay, second} : std::vector{receiver};
      ASSERT_TRUE(Lines::Made()->AddMates(mates).ok());
    }
    ASSERT_TRUE(context.Barrier());
    if (rank == kRelay) {
      context.Await(kPassed);
      context.Die();
    } else if (rank == kSender) {
      EXPECT_EQ(pair.reach->relay(), kRelay);
      if (uses_first) {
        pair.Say(1);
        pair.reach->PublishAside({}, 0);
        AwaitUntil(context, [&] { return Lines::Made()->HasPassed(relay, receiver, 1); });
      }
      context.Set(kPassed, 1);
      AwaitUntil(context, [&] { return pair.reach->relay() == kSecond; });
      pair.Say(2);
      pair.reach->PublishAside({}, 0);
      AwaitUntil(context, [&] { return Lines::Made()->HasPassed(second, receiver, 1); });
      EXPECT_FALSE(Lines::Made()->Tell(receiver, {.kind = remote::Notice::kShown}));
    } else if (rank == kReceiver) {
      AwaitUntil(context, [&] { return pair.Heard() == 2; });
      ExpectMessages(context, pair, uses_first ? 2 : 1);
    }
    ASSERT_TRUE(context.Barrier(1, 3));
    for (const Pair* each : {&pair, &to_relay, &to_second}) {
      if (each->reach != nullptr) each->reach->Detach();
    }
  });
}

// Who leaves waits until the relay has passed on what must come. If it does not, the sender tells the receiver itself.
enum class Relay { kWorks, kDies, kIsStopped };
class LeavingTest : public testing::TestWithParam<Relay> {};

TEST_P(LeavingTest, WaitsUntilAllIsPassedOn) {
  constexpr int kBlocked = 1, kSaid = 2, kGoes = 3, kNever = 4, kHeard = 5, kLeft = 6;
  const Relay relay = GetParam();
  harness::RunRanks(harness::Processes(3), [=](RankContext& context) {
    Trio trio(&context);
    const bool dies = relay == Relay::kDies;
    if (context.rank() == kRelay) {
      Block(&context, dies ? kNever : kGoes);
      context.Set(kBlocked, 1);
      context.Await(kSaid);
      if (relay == Relay::kIsStopped) context.Await(kHeard);
      context.Set(kGoes, 1);
      if (dies) context.Die();
      EXPECT_TRUE(service::Loop::Get().value()->Run([] {}).ok());  // the thread is done with the cells
    } else if (context.rank() == kSender) {
      context.Await(kBlocked);
      trio.TellCertainly(&trio.pair, 1);
      context.Set(kSaid, 1);
      trio.pair.reach->BeginFlush();
      trio.pair.reach->AwaitFlush(kPatient);
      if (relay == Relay::kWorks) {
        EXPECT_TRUE(Lines::Made()->HasPassed(Node::ProcessOf(kRelay), Node::ProcessOf(kReceiver), 1));
      } else {
        EXPECT_TRUE(trio.HasLineToReceiver());
      }
      context.Set(kLeft, 1);
      return;  // and ends
    } else {
      context.Await(kLeft);
      AwaitUntil(context, [&] { return trio.pair.Heard() == 1; });
      context.Set(kHeard, 1);
    }
    ASSERT_TRUE(context.Barrier(1, dies ? 1 : 2));
  });
}
INSTANTIATE_TEST_SUITE_P(Relays, LeavingTest, testing::Values(Relay::kWorks, Relay::kDies, Relay::kIsStopped),
                         [](const auto& info) {
                           return info.param == Relay::kWorks  ? "Works"
                                  : info.param == Relay::kDies ? "Dies"
                                                               : "IsStopped";
                         });

// A process is stopped while it is called, for longer than calls are made (with all tests), and then calls itself: the
// one of the smaller id counts, so that it refuses what has waited.
TEST(Stopped, AProcessIsNotGivenUpHoweverLongItWas) {
  constexpr int kStopped = 0, kPid = 1, kGoes = 2;
  const auto time = std::chrono::seconds(harness::FullTests() ? 22 : 1);
  harness::RunOptions options;
  options.deadline = std::chrono::seconds(80);
  harness::RunRanks(
      harness::Processes(2),
      [=](RankContext& context) {
        Node node(&context);
        Pair pair;
        const int rank = context.rank();
        if (rank == kStopped) context.Set(kPid, static_cast<uint64_t>(getpid()));
        node.Connect(&pair, 1, 1 - rank, rank == kStopped ? kSecondMachine : kFirstMachine, false);
        ASSERT_TRUE(context.Barrier());
        if (rank == kStopped) {
          context.Await(kGoes);
        } else {
          Stop(context, static_cast<pid_t>(context.Get(kPid)));
        }
        pair.Say(static_cast<uint64_t>(7 + rank));
        pair.reach->PublishAside({}, 0);
        if (rank != kStopped) {
          std::this_thread::sleep_for(time);
          context.Set(kGoes, 1);
          ASSERT_EQ(kill(static_cast<pid_t>(context.Get(kPid)), SIGCONT), 0);
        }
        AwaitUntil(context, [&] { return pair.Heard() == static_cast<uint64_t>(8 - rank); });
        EXPECT_FALSE(pair.reach->Died()) << pair.reach->Trouble();
        ASSERT_TRUE(context.Barrier());
        pair.reach->Detach();
      },
      options);
}

}  // namespace
}  // namespace axccl::tcp
