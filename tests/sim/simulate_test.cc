// The report of a simulation, compared with known properties of collectives.
#include "src/sim/simulate.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "src/cost/cost.h"
#include "tests/algo/cases.h"

namespace axccl::sim {
namespace {

using algo::Even;
using plan::Kind;
using plan::Placement;

Request Make(Kind kind, int machines, int each, std::string_view algorithm, uint64_t bytes = 64 << 20) {
  Request q;
  q.contract = {kind, machines * each, 0};
  q.algorithm = algorithm;
  q.placement = Even(machines, each);
  q.bytes = bytes;
  return q;
}

TEST(Simulate, AHierarchicalAllReduceCrossesTheMinimum) {
  for (const auto& [h, g] : {std::pair(2, 8), std::pair(4, 4), std::pair(8, 8), std::pair(512, 8)}) {
    const Request q = Make(Kind::kAllReduce, h, g, "hierarchical", 1 << 30);
    const Report r = Simulate(q).value();
    const double bytes = 2.0 * (h - 1) / h * static_cast<double>(q.bytes);
    EXPECT_EQ(r.ranks, g);
    EXPECT_NEAR(r.sent[0] / bytes, 1, 1e-9);
    EXPECT_NEAR(r.received[0] / bytes, 1, 1e-9);
    EXPECT_EQ(r.messages, static_cast<uint64_t>(2 * g * (h - 1)));
  }
}

TEST(Simulate, CountsSizesLikeNcclTests) {
  // A ring all-gather of n blocks sends n - 1 of them over each link, and so over the NIC between two machines.
  const Report gather = Simulate(Make(Kind::kAllGather, 2, 4, "ring", 8000)).value();
  EXPECT_NEAR(gather.sent[0], 7 * 1000, 1e-6);
  EXPECT_NEAR(gather.bus_bytes_per_second * gather.seconds, 7.0 / 8 * 8000, 1e-6);
  const Report reduce = Simulate(Make(Kind::kAllReduce, 2, 4, "ring", 8000)).value();
  EXPECT_NEAR(reduce.sent[0], 2 * 7 * 1000, 1e-6);
  EXPECT_NEAR(reduce.bus_bytes_per_second * reduce.seconds, 2 * 7.0 / 8 * 8000, 1e-6);
  const Report broadcast = Simulate(Make(Kind::kBroadcast, 2, 4, "ring", 8000)).value();
  EXPECT_NEAR(broadcast.sent[0], 8000, 1e-6);
  EXPECT_EQ(broadcast.ranks, 8);
  EXPECT_NEAR(broadcast.bus_bytes_per_second * broadcast.seconds, 8000, 1e-6);
  EXPECT_EQ(Simulate(Make(Kind::kBarrier, 2, 4, "hierarchical")).value().bus_bytes_per_second, 0);
}

TEST(Simulate, CutsBlocksIntoTilesForEachLane) {
  Request q = Make(Kind::kAllReduce, 2, 4, "ring", 1 << 20);
  EXPECT_EQ(Simulate(q).value().turns, 1u);
  q.lanes = 2;
  q.tile_bytes = 100000;
  EXPECT_EQ(Simulate(q).value().turns, 6u);
  // The bytes are the same for every cut.
  EXPECT_NEAR(Simulate(q).value().sent[0], 2 * 7.0 / 8 * (1 << 20), 1e-6);
}

TEST(Simulate, NoAlgorithmBeatsTheLinks) {
  std::vector<Placement> placements = {Even(2, 4), Even(4, 2), Even(4, 1), Even(3, 5), Placement()};
  for (const auto& machine_of : algo::SomeMachines()) placements.push_back(Placement::Of(machine_of));
  int simulated = 0;
  for (const Placement& p : placements) {
    for (int k = 0; k < plan::kNumKinds; ++k) {
      Request q;
      q.contract = {static_cast<Kind>(k), p.is_flat() ? 4 : p.ranks(), 0};
      q.placement = p;
      q.bytes = 1 << 30;
      // Only the links limit the time.
      q.fabric.memory_bytes_per_second = 1e15;
      if (q.contract.kind == Kind::kSendRecv) continue;
      for (const std::string_view algorithm : algo::Algorithms(q.contract.kind, p)) {
        q.algorithm = algorithm;
        const Result<Report> r = Simulate(q);
        if (!r.ok()) continue;  // direct between machines
        EXPECT_LE(r.value().bus_bytes_per_second, r.value().limit_bytes_per_second)
            << algo::Describe(q.contract, algorithm, 1) << " " << algo::Describe(p);
        EXPECT_LE(r.value().busiest_share, 1.0);
        ++simulated;
      }
    }
  }
  EXPECT_GT(simulated, 300);
}

TEST(LinkLimit, DependsOnNicsOrARanksLinks) {
  const Fabric f;
  const auto limit = [&](Kind kind, int h, int g) { return LinkLimit({kind, h * g, 0}, Even(h, g), f) / 1e9; };
  // 2 (h - 1) / h over 8 NICs of 50 GB/s, 2 (n - 1) / n counted.
  EXPECT_NEAR(limit(Kind::kAllReduce, 32, 8), 400 * (255.0 / 256) * (32.0 / 31), 1e-9);
  EXPECT_NEAR(limit(Kind::kAllGather, 32, 8), 400 * (255.0 / 256) * (32.0 / 31), 1e-9);
  EXPECT_NEAR(limit(Kind::kAllToAll, 32, 8), 50 * 255.0 / 248, 1e-9);
  EXPECT_NEAR(limit(Kind::kBroadcast, 32, 8), 400, 1e-9);
  EXPECT_NEAR(limit(Kind::kAllReduce, 2, 8), 500, 1e-9);  // what a rank receives over its NIC and its link
  EXPECT_NEAR(limit(Kind::kAllReduce, 1, 8), 450, 1e-9);
  EXPECT_NEAR(limit(Kind::kAllReduce, 4, 1), 50, 1e-9);
}

// Both describe the same machine, and bytes between machines dominate.
TEST(Simulate, AgreesWithTheCostModel) {
  for (const char* algorithm : {"ring", "tree", "rhd", "twoshot", "hierarchical"}) {
    for (const uint64_t bytes : {uint64_t{64} << 10, uint64_t{16} << 20}) {
      Request q = Make(Kind::kAllReduce, 2, 4, algorithm, bytes);
      q.tile_bytes = 1 << 20;
      cost::Machine m;
      m.cores = 64;
      m.op_seconds = q.fabric.op_seconds;
      m.signal_seconds = q.fabric.signal_seconds;
      m.cached_bytes_per_second = m.memory_bytes_per_second = q.fabric.link_bytes_per_second;
      m.network_signal_seconds = q.fabric.network_seconds;
      m.network_message_seconds = q.fabric.message_seconds;
      m.link_bytes_per_second = 4 * q.fabric.nic_bytes_per_second;
      const plan::Schedule s = algo::Generate(q.contract, algorithm, 1, q.placement).value();
      const double model = cost::Model(s, m, false, q.placement).Seconds(bytes, q.tile_bytes);
      const double simulated = Simulate(q).value().seconds;
      EXPECT_LT(simulated, 4 * model) << algorithm << " " << bytes;
      EXPECT_GT(simulated, model / 4) << algorithm << " " << bytes;
    }
  }
}

// By number of machines, too: the simulation finds out whether one machine stands for all, and then the time is that of
// all.
TEST(Simulate, TakesTheTimeOfAllRanks) {
  for (const int machines : {2, 3, 5, 6, 9, 16, 17}) {
    for (const Kind kind : {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll}) {
      for (const std::string_view algorithm : algo::Algorithms(kind, Even(machines, 2))) {
        const Request q = Make(kind, machines, 2, algorithm);
        const plan::Schedule s = algo::Generate(q.contract, algorithm, 1, q.placement).value();
        if (s.direct) continue;
        SCOPED_TRACE(algo::Describe(q.contract, algorithm, 1));
        EXPECT_EQ(Simulate(q).value().seconds, SimulateAll(s, q).value().seconds);
      }
    }
  }
}

TEST(Simulate, IsDeterministic) {
  const Request q = Make(Kind::kAllReduce, 3, 4, "tree");
  const Report a = Simulate(q).value(), b = Simulate(q).value();
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.busiest, b.busiest);
  EXPECT_EQ(a.operations, b.operations);
}

void ExpectRefused(const Request& q, Code code, const char* what) {
  const Result<Report> r = Simulate(q);
  ASSERT_FALSE(r.ok()) << what;
  EXPECT_EQ(r.status().code(), code) << r.status().message();
  EXPECT_NE(r.status().message().find(what), std::string_view::npos) << r.status().message();
}

TEST(Simulate, NamesWhatItCannotDo) {
  ExpectRefused(Make(Kind::kAllReduce, 2, 2, "direct"), Code::kInvalidUsage, "needs memory that its ranks share");
  ExpectRefused(Make(Kind::kAllReduce, 2, 2, "warp"), Code::kInvalidArgument, "'warp'");
  ExpectRefused(Make(Kind::kAllReduce, 2049, 8, "hierarchical"), Code::kInvalidArgument, "must be 1 to 16384");
  Request q = Make(Kind::kAllReduce, 2, 2, "ring");
  q.contract.ranks = 5;
  ExpectRefused(q, Code::kInvalidArgument, "machines of 4 ranks; must be of all");
  q = Make(Kind::kAllReduce, 2, 2, "ring");
  q.fabric.nic_bytes_per_second = 0;
  ExpectRefused(q, Code::kInvalidArgument, "NIC bandwidth 0; must be finite and more than 0");
  q = Make(Kind::kAllReduce, 2, 2, "ring", uint64_t{1} << 60);
  q.tile_bytes = 1;
  ExpectRefused(q, Code::kInvalidUsage, "take a larger tile");
  // Thousands of ranks on different machines: a hundred million operations.
  std::vector<int> machine_of = {0};
  for (int r = 0; r < 4088; ++r) machine_of.push_back(1 + r / 8);
  q.placement = Placement::Of(machine_of);
  q.contract.ranks = 4089;
  q.tile_bytes = 0;
  ExpectRefused(q, Code::kInvalidUsage, "no machine stands for all");
}

}  // namespace
}  // namespace axccl::sim
