// Three processes on two machines, of which one passes on what another one is told, and is stopped meanwhile.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/transports/tcp_node.h"
#include "transports/remote/lines.h"

namespace axccl::tcp {
namespace {

using harness::RankContext;
using remote::Lines;
using test::AwaitUntil;
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

// How the sender tells the receiver something newer while the relay is stopped.
enum class Newer { kInItsTurn, kStateOnALifeline };

class RelayTest : public testing::TestWithParam<Newer> {};

TEST_P(RelayTest, AStateThatComesLateReplacesNothing) {
  constexpr int kPid = 1, kHeard = 2;
  constexpr uint64_t kOld = 1, kNew = 2, kLast = 3;
  const Newer newer = GetParam();
  harness::RunRanks(harness::Processes(3), [=](RankContext& context) {
    Node node(&context);
    // The relay passes on what `last` says behind what `pair` says.
    Pair pair, last, to_relay;
    const auto receiver = Node::ProcessOf(kReceiver);
    if (context.rank() == kRelay) {
      context.Set(kPid, static_cast<uint64_t>(getpid()));
      node.Connect(&to_relay, 1, kSender, kFirstMachine, true);
      ASSERT_TRUE(Lines::Made()->AddMates({receiver}).ok());
    } else if (context.rank() == kSender) {
      node.Connect(&to_relay, 1, kRelay, kSecondMachine, true);
      node.Connect(&pair, 1, kReceiver, kSecondMachine, false);
      node.Connect(&last, 2, kReceiver, kSecondMachine, false, &pair);
      Lines::Made()->AwaitLifelines(Node::ProcessOf(kRelay), service::Clock::now() + kPatient);
    } else {
      node.Connect(&pair, 1, kSender, kFirstMachine, false);
      node.Connect(&last, 2, kSender, kFirstMachine, false, &pair);
      ASSERT_TRUE(Lines::Made()->AddMates({Node::ProcessOf(kRelay)}).ok());
    }
    ASSERT_TRUE(context.Barrier());
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
    for (const Pair* each : {&pair, &last, &to_relay}) {
      if (each->reach != nullptr) each->reach->Detach();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, RelayTest, testing::Values(Newer::kInItsTurn, Newer::kStateOnALifeline),
                         [](const auto& info) {
                           return info.param == Newer::kInItsTurn ? "InItsTurn" : "StateOnALifeline";
                         });

}  // namespace
}  // namespace axccl::tcp
