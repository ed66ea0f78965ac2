// The simulation of schedules whose time can be calculated by hand.
#include "src/sim/engine.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "src/algo/builder.h"

namespace axccl::sim {
namespace {

using algo::AllSlots;
using algo::Builder;
using algo::In;
using algo::Out;
using algo::Slot;
using plan::Placement;
using plan::Schedule;

constexpr double kOp = 1e-6, kSignal = 1e-5, kMessage = 1e-4, kNetwork = 1e-3;
constexpr double kPart = 1000;                                               // bytes
constexpr double kMemory = 1e-9, kLink = 1e-8, kSwitch = 2e-8, kNic = 1e-6;  // seconds per byte
constexpr double kClose = 1e-15;

Fabric TestFabric() {
  Fabric f;
  f.op_seconds = kOp;
  f.memory_bytes_per_second = 1 / kMemory;
  f.link_bytes_per_second = 1 / kLink;
  f.multicast_bytes_per_second = 1 / kSwitch;
  f.signal_seconds = kSignal;
  f.nic_bytes_per_second = 1 / kNic;
  f.message_seconds = kMessage;
  f.network_seconds = kNetwork;
  return f;
}

// Makes a schedule by hand: no credits. Calls `write` for each lane.
Schedule Make(int ranks, const std::function<void(Builder*)>& write, int lanes = 1) {
  Builder b({plan::Kind::kBarrier, ranks, 0}, "example", 1);
  Schedule s = b.Empty();
  for (int l = 0; l < lanes; ++l) {
    write(&b);
    b.MoveTo(&s);
  }
  b.Seal(&s);
  return s;
}

Outcome RunTurns(const Schedule& s, const std::vector<int>& machine_of, uint64_t turns = 1) {
  const Program program = CompileAll(s, Placement::Of(machine_of)).value();
  return Execute(program, TestFabric(), kPart, turns).value();
}

TEST(Engine, ACopyReadsAndWritesMemory) {
  const Schedule s = Make(1, [](Builder* b) { b->Copy(0, {Out(0)}, In(0)); });
  EXPECT_NEAR(RunTurns(s, {0}).seconds, kOp + 2 * kPart * kMemory, kClose);
  EXPECT_NEAR(RunTurns(s, {0}, 3).seconds, 3 * (kOp + 2 * kPart * kMemory), kClose);
}

TEST(Engine, RemoteDataGoOverALink) {
  const Schedule get = Make(2, [](Builder* b) { b->Copy(0, {Out(0)}, Slot(1, 0)); });
  const Schedule put = Make(2, [](Builder* b) { b->Copy(0, {Slot(1, 0)}, In(0)); });
  for (const Schedule& s : {get, put}) EXPECT_NEAR(RunTurns(s, {0, 0}).seconds, kOp + kPart * kLink, kClose);
  const Outcome got = RunTurns(get, {0, 0});
  EXPECT_NEAR(got.busy[1 * kNumResources + kLinkOut], kPart * kLink, kClose);
  EXPECT_NEAR(got.busy[0 * kNumResources + kLinkIn], kPart * kLink, kClose);
  EXPECT_NEAR(got.busy[0 * kNumResources + kMemory], 2 * kPart * kMemory, kClose);
  EXPECT_EQ(got.busy[0 * kNumResources + kNicOut], 0);
}

// The rank's own slots take the way through the switch, too.
TEST(Engine, MulticastDataGoOverTheLinksOfAllRanks) {
  const double on_switch = kPart * kSwitch, copied = kPart * kMemory;
  const auto busy = [](const Outcome& o, int rank, Resource resource) {
    return o.busy[static_cast<size_t>(rank) * kNumResources + resource];
  };
  const Outcome stored =
      RunTurns(Make(3, [](Builder* b) { b->Copy(1, {AllSlots(0)}, In(1)); }), std::vector<int>(3, 0));
  const Outcome added =
      RunTurns(Make(3, [](Builder* b) { b->Reduce(1, {Out(1)}, {AllSlots(0)}); }), std::vector<int>(3, 0));
  for (const Outcome& o : {stored, added}) EXPECT_NEAR(o.seconds, kOp + on_switch, kClose);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_NEAR(busy(stored, rank, kLinkIn), on_switch, kClose);
    EXPECT_NEAR(busy(stored, rank, kLinkOut), rank == 1 ? on_switch : 0, kClose);
    EXPECT_NEAR(busy(added, rank, kLinkOut), on_switch, kClose);
    EXPECT_NEAR(busy(added, rank, kLinkIn), rank == 1 ? on_switch : 0, kClose);
    for (const Outcome& o : {stored, added})
      EXPECT_NEAR(busy(o, rank, sim::kMemory), rank == 1 ? 2 * copied : copied, kClose);
  }
  const Schedule apart = Make(2, [](Builder* b) { b->Copy(0, {AllSlots(0)}, In(0)); });
  EXPECT_EQ(CompileAll(apart, Placement::Of(std::vector<int>{0, 1})).status().message(),
            "Simulate(example barrier): needs slots of all ranks at once, which only one machine has");
}

// Alone, each of both ranks would end at that time.
TEST(Engine, RanksThatReadFromOneShareItsLink) {
  const Schedule s = Make(3, [](Builder* b) {
    for (const int r : {1, 2}) b->Copy(r, {Out(r)}, Slot(0, 0));
  });
  EXPECT_NEAR(RunTurns(s, {0, 0, 0}).seconds, kOp + 2 * kPart * kLink, kClose);
}

TEST(Engine, LanesShareTheMemoryOfTheirRankButNotItsOperations) {
  const Schedule s = Make(
      1, [](Builder* b) { b->Copy(0, {Out(0)}, In(0)); }, 3);
  EXPECT_NEAR(RunTurns(s, {0}).seconds, kOp + 3 * 2 * kPart * kMemory, kClose);
}

TEST(Engine, ASignalIsSeenLater) {
  const Schedule s = Make(2, [](Builder* b) {
    b->Signal(0, 1);
    b->Wait(1, 0);
  });
  EXPECT_NEAR(RunTurns(s, {0, 0}).seconds, kOp + kSignal, kClose);
  // A wait for a signal that has arrived already costs no more than the operation.
  const Schedule late = Make(2, [](Builder* b) {
    b->Signal(0, 1);
    for (int i = 0; i < 100; ++i) b->Copy(1, {Out(1)}, In(1));
    b->Wait(1, 0);
  });
  EXPECT_NEAR(RunTurns(late, {0, 0}).seconds, 101 * kOp + 100 * 2 * kPart * kMemory, kClose);
}

TEST(Engine, ATokenIsSeenAtOnce) {
  Schedule s = Make(1, [](Builder* b) { b->Signal(0, 0); });
  Builder b({plan::Kind::kBarrier, 1, 0}, "example", 1);
  b.WaitToken(0, 0, 0);
  b.Copy(0, {Out(0)}, In(0));
  b.MoveTo(&s);
  EXPECT_NEAR(RunTurns(s, {0}).seconds, kOp + kOp + 2 * kPart * kMemory, kClose);
}

// Rank 0 puts a part into the scratch of rank 1, which copies it out.
void WriteSend(Builder* b) {
  b->Copy(0, {Slot(1, 0)}, In(0));
  b->Signal(0, 1);
  b->Wait(1, 0);
  b->Copy(1, {Out(1)}, Slot(1, 0));
}

constexpr double kCopy = kOp + 2 * kPart * kMemory;   // in local memory
constexpr double kNicTime = kMessage + kPart * kNic;  // the time for which a message keeps a NIC busy
constexpr double kLeaves = kCopy + kOp;               // the signal of WriteSend

TEST(Engine, AMessageIsSeenWhenItHasArrived) {
  const Outcome sent = RunTurns(Make(2, WriteSend), {0, 1});
  EXPECT_NEAR(sent.seconds, kLeaves + kMessage + kNetwork + kNicTime + kCopy, kClose);
  EXPECT_EQ(sent.sent, (std::vector<double>{kPart, 0}));
  EXPECT_EQ(sent.received, (std::vector<double>{0, kPart}));
  EXPECT_EQ(sent.messages, 1u);
  EXPECT_EQ(sent.operations, 4u);
  EXPECT_NEAR(sent.busy[0 * kNumResources + kNicOut], kNicTime, kClose);
  EXPECT_NEAR(sent.busy[1 * kNumResources + kNicIn], kNicTime, kClose);
  EXPECT_EQ(sent.busy[0 * kNumResources + kLinkOut], 0);
}

TEST(Engine, ASignalToAnotherMachineIsAMessageWithoutData) {
  const Schedule s = Make(2, [](Builder* b) {
    b->Signal(0, 1);
    b->Wait(1, 0);
  });
  EXPECT_NEAR(RunTurns(s, {0, 1}).seconds, kOp + kMessage + kNetwork + kMessage, kClose);
}

// If messages arrive at the same time, that of the next machine is first.
TEST(Engine, TwoThatSendToOneShareItsNic) {
  const Schedule s = Make(3, [](Builder* b) {
    for (const int r : {2, 1}) {
      b->Copy(r, {Slot(0, r)}, In(r));
      b->Signal(r, 0);
      b->Wait(0, r);
    }
  });
  EXPECT_NEAR(RunTurns(s, {0, 1, 2}).seconds, kLeaves + kMessage + kNetwork + 2 * kNicTime, kClose);
}

TEST(Engine, OneThatSendsToTwoSharesItsNicAndGoesOnMeanwhile) {
  const Schedule s = Make(3, [](Builder* b) {
    b->Copy(0, {Slot(1, 0), Slot(2, 0)}, In(0));
    for (const int r : {1, 2}) {
      b->Signal(0, r);
      b->Wait(r, 0);
    }
    b->Copy(0, {Out(0)}, In(0));
  });
  const double copied = kOp + 3 * kPart * kMemory;
  EXPECT_NEAR(RunTurns(s, {0, 1, 2}).seconds, copied + kOp + kNicTime + kMessage + kNetwork + kNicTime, kClose);
}

// A rank prepares a turn while the NIC sends the previous one, and receives one while the next is under way.
TEST(Engine, TurnsArePipelined) {
  for (const uint64_t turns : {2, 5, 50}) {
    const double seconds = RunTurns(Make(2, WriteSend), {0, 1}, turns).seconds;
    const double expected = kLeaves + kMessage + kNetwork + static_cast<double>(turns) * kNicTime + kCopy;
    EXPECT_NEAR(seconds, expected, kClose * static_cast<double>(turns));
  }
}

TEST(Engine, ADeadlockIsAnErrorThatNamesThePlace) {
  const Schedule s = Make(2, [](Builder* b) {
    b->Signal(0, 1);
    b->Wait(1, 0, 0, 1);
    b->Wait(1, 0, 0, 2);
    b->Wait(0, 1);
  });
  const Program program = CompileAll(s, Placement()).value();
  const Result<Outcome> result = Execute(program, TestFabric(), kPart, 1);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalidUsage);
  EXPECT_NE(result.status().message().find("rank 0, lane 0 waits forever at operation 1 of turn 0"),
            std::string_view::npos)
      << result.status().message();
  // A turn later: the signals of two turns do not reach the value of the wait.
  const Schedule second = Make(2, [](Builder* b) {
    b->Signal(0, 1);
    b->Wait(1, 0, 0, 1);
    b->Wait(0, 1, 0, 1);
    b->Signal(1, 0);
  });
  EXPECT_TRUE(Execute(CompileAll(second, Placement()).value(), TestFabric(), kPart, 4).ok());
}

TEST(Engine, RefusesFiguresThatNoMachineHas) {
  const Program program = CompileAll(Make(2, WriteSend), Placement()).value();
  double Fabric::*const rates[] = {&Fabric::memory_bytes_per_second, &Fabric::link_bytes_per_second,
                                   &Fabric::nic_bytes_per_second, &Fabric::network_seconds};
  double Fabric::*const times[] = {&Fabric::op_seconds, &Fabric::signal_seconds, &Fabric::message_seconds};
  const auto refused = [&](double Fabric::*figure, double value) {
    Fabric f = TestFabric();
    f.*figure = value;
    return !Execute(program, f, kPart, 1).ok();
  };
  for (const auto rate : rates) {
    for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity()})
      EXPECT_TRUE(refused(rate, bad)) << bad;
  }
  for (const auto time : times) {
    EXPECT_FALSE(refused(time, 0));
    for (const double bad : {-1e-9, std::numeric_limits<double>::quiet_NaN()}) EXPECT_TRUE(refused(time, bad)) << bad;
  }
}

}  // namespace
}  // namespace axccl::sim
