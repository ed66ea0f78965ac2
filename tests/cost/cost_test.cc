// The cost model on schedules whose time can be calculated by hand.
#include "src/cost/cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/algo/algo.h"

namespace axccl::cost {
namespace {

using plan::Contract;
using plan::Kind;
using plan::Schedule;

constexpr double kSignal = 1e-7, kOp = 1e-8, kSwitch = 1e-6, kCall = 1e-6;  // seconds
constexpr double kCached = 1e10, kMemory = 1e9, kCallRate = 2e9;            // bytes per second

Machine TestMachine() {
  Machine m;
  m.signal_seconds = kSignal;
  m.op_seconds = kOp;
  m.switch_seconds = kSwitch;
  m.cached_bytes_per_second = kCached;
  m.memory_bytes_per_second = kMemory;
  m.call_seconds = kCall;
  m.call_bytes_per_second = kCallRate;
  m.cache_bytes = 1 << 20;
  m.cache_cores = 1;
  m.cores = 64;
  return m;
}

Schedule Make(Kind kind, int ranks, std::string_view algorithm, int lanes = 1) {
  return algo::Generate(Contract{kind, ranks, 0}, algorithm, lanes).value();
}

double Seconds(const Schedule& s, const Machine& m, uint64_t block, uint64_t tile = 0, bool by_call = false) {
  return Model(s, m, by_call).Seconds(block, tile);
}

TEST(Model, BarrierIsASignalAndAWait) {
  // A signal, then a wait that ends when the peer's signal arrives.
  EXPECT_NEAR(Seconds(Make(Kind::kBarrier, 2, "oneshot"), TestMachine(), 0), kOp + kSignal, 1e-12);
}

TEST(Model, AHopBetweenRanksThatShareACoreIsASwitch) {
  Machine m = TestMachine();
  m.cores = 1;
  // Two ranks on one core: twice the time for every operation, and the peer's turn on the core for every hop.
  EXPECT_NEAR(Seconds(Make(Kind::kBarrier, 2, "oneshot"), m, 0), 2 * kOp + 2 * kSwitch, 1e-12);
}

TEST(Model, CopiesAndReductionsCostTimePerByteReadAndWritten) {
  const Schedule alone = Make(Kind::kAllReduce, 1, "direct");
  EXPECT_NEAR(Seconds(alone, TestMachine(), 1000), kOp + 1000 / kCached, 1e-12);
  // Each of two ranks reads two halves and writes two.
  const Schedule direct = Make(Kind::kAllReduce, 2, "direct");
  const double per_byte = Seconds(direct, TestMachine(), 200000) - Seconds(direct, TestMachine(), 100000);
  EXPECT_NEAR(per_byte, 100000 / kCached, 1e-12);
}

TEST(Model, SlotsAreFilledFromWhatIsInTheCache) {
  // A copy of one half, a reduction of two into the output, a copy of that into a slot, and a copy of the other half.
  const Schedule schedule = Make(Kind::kAllReduce, 2, "twoshot");
  const double per_byte = Seconds(schedule, TestMachine(), 20000) - Seconds(schedule, TestMachine(), 10000);
  EXPECT_NEAR(per_byte, (1 + 1.5 + 1 + 1) * 5000 / kCached, 1e-12);
}

TEST(Model, UserDataBeyondTheCacheComesFromMemory) {
  const Schedule alone = Make(Kind::kAllReduce, 1, "direct");
  const uint64_t block = 512u << 20;
  const double seconds = Seconds(alone, TestMachine(), block);
  EXPECT_NEAR(seconds / (block / kMemory), 1, 0.01);
}

TEST(Model, ACallCostsTimeForBuffersOfOtherRanksOnly) {
  const Schedule direct = Make(Kind::kAllGather, 2, "direct");
  const double mapped = Seconds(direct, TestMachine(), 1000), called = Seconds(direct, TestMachine(), 1000, 0, true);
  EXPECT_NEAR(called - mapped, kCall + 1000 / kCallRate, 1e-12);
  const Schedule staged = Make(Kind::kAllGather, 2, "oneshot");
  EXPECT_EQ(Seconds(staged, TestMachine(), 1000, 0, true), Seconds(staged, TestMachine(), 1000, 0, false));
}

TEST(Model, TurnsOfAChainOverlap) {
  const Schedule chain = Make(Kind::kBroadcast, 8, "ring");
  const uint64_t block = 256u << 10;
  const double one_turn = Seconds(chain, TestMachine(), block);
  const double pipelined = Seconds(chain, TestMachine(), block, 16u << 10);
  EXPECT_LT(pipelined, 0.5 * one_turn);
}

TEST(Model, GrowsWithTheData) {
  for (Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter, Kind::kReduce}) {
    for (std::string_view algorithm : algo::Algorithms(kind)) {
      const Model model(Make(kind, 5, algorithm), TestMachine(), false);
      double last = 0;
      for (uint64_t block = 1024; block <= (1u << 30); block *= 2) {
        const double seconds = model.Seconds(block, 64u << 10);
        EXPECT_GT(seconds, last) << plan::KindName(kind) << " " << algorithm << " " << block;
        EXPECT_TRUE(std::isfinite(seconds));
        last = seconds;
      }
    }
  }
}

TEST(Model, LanesShareTheDataButAddNoCores) {
  Machine few = TestMachine();
  few.cores = 2;
  const uint64_t block = 256u << 10;
  const Schedule one = Make(Kind::kAllReduce, 2, "oneshot", 1), two = Make(Kind::kAllReduce, 2, "oneshot", 2);
  EXPECT_LT(Seconds(two, TestMachine(), block), 0.6 * Seconds(one, TestMachine(), block));
  EXPECT_GE(Seconds(two, few, block), Seconds(one, few, block));
}

plan::Placement Machines(std::vector<int> machine_of) { return plan::Placement::Of(machine_of); }

Machine WithNetwork() {
  Machine m = TestMachine();
  m.network_signal_seconds = 1e-5;
  m.network_message_seconds = 1e-6;
  m.link_bytes_per_second = 1e8;
  return m;
}

TEST(Network, ASignalToAnotherMachineTakesTheNetworkAndBothEnds) {
  const Schedule barrier = Make(Kind::kBarrier, 2, "oneshot");
  const Machine m = WithNetwork();
  const double apart = Model(barrier, m, false, Machines({0, 1})).Seconds(0, 0);
  EXPECT_NEAR(apart, kOp + m.network_message_seconds + m.network_signal_seconds, 1e-12);
  EXPECT_EQ(Model(barrier, m, false, Machines({0, 0})).Seconds(0, 0), Seconds(barrier, m, 0));
  // Three messages out; of the three that arrive, the first is received during the wait, the others after it.
  const Model four(Make(Kind::kBarrier, 4, "oneshot"), m, false, Machines({0, 1, 2, 3}));
  EXPECT_NEAR(four.Seconds(0, 0), 3 * kOp + 5 * m.network_message_seconds + m.network_signal_seconds, 1e-12);
}

TEST(Network, BytesCrossAtTheSpeedOfTheLink) {
  const Schedule pair = Make(Kind::kSendRecv, 2, "oneshot");
  const Model model(pair, WithNetwork(), false, Machines({0, 1}));
  const double per_byte = (model.Seconds(200000, 0) - model.Seconds(100000, 0)) / 100000;
  EXPECT_NEAR(per_byte, 1 / 1e8 + 2 / kCached, 1e-13);  // and into and out of the slot
}

// Four ranks with a quarter of the data each, or one with all of it.
TEST(Network, RanksOfAMachineShareItsDevicesInTurns) {
  const plan::Placement p = Machines({0, 0, 0, 0, 1, 1, 1, 1});
  const plan::Contract contract{Kind::kAllReduce, 8, 0};
  const auto seconds = [&](const char* algorithm) {
    return Model(algo::Generate(contract, algorithm, 1, p).value(), WithNetwork(), false, p).Seconds(8, 0);
  };
  EXPECT_NEAR(seconds("hierarchical_bruck") - seconds("hierarchical_leader"), 3 * 2.5e-7, 2e-7);  // and some steps
}

// Four ranks each send their block to four on the other machine: sixteen blocks, one link.
TEST(Network, RanksOfAMachineShareItsLink) {
  const Schedule gather = Make(Kind::kAllGather, 8, "oneshot");
  const uint64_t block = 100000;
  const auto growth = [&](const plan::Placement& p) {
    const Model model(gather, WithNetwork(), false, p);
    return model.Seconds(2 * block, 0) - model.Seconds(block, 0);
  };
  EXPECT_NEAR(growth(Machines({0, 0, 0, 0, 1, 1, 1, 1})) / (16 * block / 1e8), 1, 0.1);
  // A rank that is alone sends its block seven times, and receives seven.
  EXPECT_NEAR(growth(Machines({0, 1, 1, 1, 1, 1, 1, 1})) / (7 * block / 1e8), 1, 0.1);
}

// Each of four machines sends one block; the root's machine must receive all.
TEST(Network, ALinkReceivesWhatAllOthersSend) {
  const Model model(Make(Kind::kGather, 5, "oneshot"), WithNetwork(), false, Machines({0, 1, 2, 3, 4}));
  const uint64_t block = 100000;
  EXPECT_NEAR((model.Seconds(2 * block, 0) - model.Seconds(block, 0)) / (4 * block / 1e8), 1, 0.1);
}

// Waits for the network cost no core time, so a rank's work meanwhile is not added to them.
TEST(Network, APlanInTwoLevelsTakesLittleMoreThanTheLink) {
  const plan::Placement p = Machines({0, 0, 0, 0, 1, 1, 1, 1});
  const Schedule s = algo::Generate(Contract{Kind::kAllReduce, 8, 0}, algo::kHierarchical, 1, p).value();
  const uint64_t block = 16u << 20;
  const double seconds = Model(s, WithNetwork(), false, p).Seconds(block, 256u << 10);
  EXPECT_GT(seconds, block / 1e8);
  EXPECT_LT(seconds, 1.5 * block / 1e8);
}

// Operations that are the same in every lane need not be generated for every lane.
TEST(Model, CopiesOfALaneCountAsLanes) {
  Machine few = WithNetwork();
  few.cores = 3;
  const plan::Placement p = Machines({0, 0, 1, 1, 2});
  for (const plan::Placement& placement : {plan::Placement(), p}) {
    for (Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kAllToAll, Kind::kReduce}) {
      for (std::string_view algorithm : algo::Algorithms(kind, placement)) {
        const Schedule one = algo::Generate(Contract{kind, 5, 0}, algorithm, 1, placement).value();
        if (one.direct) continue;  // its lanes wait for each other
        const Schedule four = algo::Generate(Contract{kind, 5, 0}, algorithm, 4, placement).value();
        const Model copied(one, few, false, placement, 4), generated(four, few, false, placement);
        for (uint64_t block : {uint64_t{0}, uint64_t{8}, uint64_t{64} << 10, uint64_t{16} << 20})
          EXPECT_DOUBLE_EQ(copied.Seconds(block, 4096), generated.Seconds(block, 4096))
              << plan::KindName(kind) << algorithm;
      }
    }
  }
}

TEST(Model, ADeadlockTakesForever) {
  Schedule s = Make(Kind::kAllReduce, 2, "oneshot");
  for (auto& op : s.program[0][0].ops) {
    if (op.kind == plan::OpKind::kSignal) op.kind = plan::OpKind::kNop;
  }
  EXPECT_TRUE(std::isinf(Seconds(s, TestMachine(), 0)));
}

// Where all ranks do the same, the program of one tells the time of all, at a fraction of the cost.
TEST(Model, OneRankStandsForAllThatAreAlike) {
  size_t compared = 0;
  for (int ranks = 2; ranks <= 33; ranks += ranks < 9 ? 1 : 8) {
    for (int k = 0; k < plan::kNumKinds; ++k) {
      const Contract contract{static_cast<Kind>(k), ranks, 0};
      std::vector<std::string_view> algorithms = algo::Algorithms(contract.kind);
      const auto& multicast = algo::MulticastAlgorithms(contract.kind);
      algorithms.insert(algorithms.end(), multicast.begin(), multicast.end());
      for (const std::string_view algorithm : algorithms) {
        if (!algo::Alike(contract, algorithm)) continue;
        ++compared;
        for (const int lanes : {1, 2}) {
          SCOPED_TRACE(std::string(algorithm) + " " + plan::KindName(contract.kind) + " of " + std::to_string(ranks));
          const Schedule all = algo::Generate(contract, algorithm, lanes).value();
          const int rank = algo::kStandsForAll;
          const Schedule one = algo::Generate(contract, algorithm, lanes, {}, {&rank, 1}).value();
          EXPECT_EQ(one.slots, all.slots);
          EXPECT_EQ(one.parts, all.parts);
          EXPECT_EQ(one.direct, all.direct);
          EXPECT_EQ(plan::Pushes(one), plan::Pushes(all));
          EXPECT_TRUE(algo::Complete(all));
          for (const bool by_call : {false, true}) {
            const Model of_all(all, TestMachine(), by_call), of_one(one, TestMachine(), by_call, {}, 1, rank);
            for (const uint64_t bytes : {8u, 100000u, 10000000u}) {
              const double seconds = of_all.Seconds(bytes, bytes / 3);
              // In each of up to four turns, the first rank and the last one make a copy less.
              const double edge = algorithm == "twoshot" || algorithm == "nvls" ? 4 * kOp : 0;
              EXPECT_NEAR(of_one.Seconds(bytes, bytes / 3), seconds, edge + seconds * 1e-9);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 200u);
}

// A lane writes to other GPUs, or reads there, at its own speed, and all lanes together at that of the link.
TEST(Model, GpusReadEachOtherOverLinks) {
  constexpr double kPeer = 1e8, kLink = 1e9;
  constexpr uint64_t kBlock = 64 << 20;
  Machine m = TestMachine();
  m.peer_bytes_per_second = kPeer;
  m.gpu_link_bytes_per_second = kLink;
  const auto seconds = [&](int lanes, int sharers) {
    const Schedule s = Make(Kind::kAllGather, 3, "direct", lanes);
    return Model(s, m, false, {}, 1, -1, sharers).Seconds(kBlock, 0);
  };
  // A rank writes its block to two other GPUs.
  EXPECT_NEAR(seconds(1, 1), 2 * kBlock / kPeer, 0.01 * kBlock / kPeer);
  EXPECT_NEAR(seconds(2, 1), seconds(1, 1) / 2, 0.01 * seconds(1, 1));
  EXPECT_NEAR(seconds(64, 1), 2 * kBlock / kLink, 0.02 * kBlock / kLink);
  EXPECT_LT(seconds(1, 0), 0.5 * seconds(1, 1));  // all on one GPU
  // Each of three ranks there reads a block and writes three.
  m.gpu_memory_bytes_per_second = kMemory / 10;
  EXPECT_NEAR(seconds(64, 0), 12 * kBlock / m.gpu_memory_bytes_per_second, 0.01 * seconds(64, 0));
}

// A store to all takes a lane as long as one to another GPU, and arrives on every link, the rank's own too.
TEST(Model, GpusReachAllOthersThroughTheSwitch) {
  constexpr double kPeer = 1e8, kLink = 1e9, kSwitch = 5e8;
  constexpr uint64_t kBlock = 64 << 20;
  Machine m = TestMachine();
  m.peer_bytes_per_second = kPeer;
  m.gpu_link_bytes_per_second = kLink;
  m.gpu_multicast_bytes_per_second = kSwitch;
  const auto seconds = [&](Kind kind, int lanes, bool one) {
    const int rank = algo::kStandsForAll;
    const Schedule s = one ? algo::Generate({kind, 4, 0}, "nvls", lanes, {}, {&rank, 1}).value()
                           : algo::Generate({kind, 4, 0}, "nvls", lanes).value();
    return Model(s, m, false, {}, 1, one ? rank : -1, 1).Seconds(kBlock, 0);
  };
  const double copies = 2 * kBlock / kMemory + 3 * kBlock / kCached;  // of its block, and of the others'
  EXPECT_NEAR(seconds(Kind::kAllGather, 1, false), kBlock / kPeer + copies, 0.3 * kBlock / kPeer);
  for (const bool one : {false, true}) {
    // All blocks of four ranks come over a link, and go over it to be added.
    EXPECT_NEAR(seconds(Kind::kAllGather, 64, one), 4 * kBlock / kSwitch, 0.02 * 4 * kBlock / kSwitch);
    EXPECT_NEAR(seconds(Kind::kReduceScatter, 64, one), 4 * kBlock / kSwitch, 0.02 * 4 * kBlock / kSwitch);
    // Everything goes to be added, and a quarter of the sum comes back and goes to all.
    EXPECT_NEAR(seconds(Kind::kAllReduce, 64, one), 1.25 * kBlock / kSwitch, 0.02 * kBlock / kSwitch);
  }
}

}  // namespace
}  // namespace axccl::cost
