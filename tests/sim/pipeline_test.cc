// Pipelines: generated plans with slices, compared with known properties of collectives and with plans without slices.
#include "src/sim/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "src/algo/algo.h"

namespace axccl::sim {
namespace {

using plan::Kind;

constexpr int kRanks = 8;

Request Make(Kind kind, int slices, bool produced = false, uint64_t bytes = uint64_t{1} << 30) {
  Request q;
  q.contract = {kind, kRanks, 0};
  q.algorithm = algo::kChunkedDirect;
  q.slices = slices;
  q.produced = produced;
  q.bytes = bytes;
  return q;
}

// A part is a part of a whole block, and lanes do not divide it: whatever the slices, the links carry what the
// collective needs.
TEST(Pipeline, LinksCarryTheSameForAnyNumberOfSlices) {
  for (const auto& [kind, share] : {std::pair(Kind::kAllGather, 7.0 / 8), std::pair(Kind::kReduceScatter, 7.0 / 8),
                                    std::pair(Kind::kAllToAll, 7.0 / 8), std::pair(Kind::kAllReduce, 2 * 7.0 / 8)}) {
    for (const int slices : {1, 2, 8}) {
      const Request q = Make(kind, slices, true);
      const plan::Schedule s = algo::GenerateChunked(q.contract, q.algorithm, {slices, true}).value();
      const Program program = CompileAll(s, q.placement).value();
      const double part = static_cast<double>(q.bytes) / (kind == Kind::kAllReduce ? 1 : kRanks) / s.parts;
      const Outcome o = Execute(program, q.fabric, part, 1).value();
      const double expected = share * static_cast<double>(q.bytes) / q.fabric.link_bytes_per_second;
      for (uint32_t r = 0; r < kRanks; ++r) {
        EXPECT_NEAR(o.busy[r * kNumResources + kLinkIn], expected, 1e-9) << plan::KindName(kind) << " " << slices;
      }
      const Report report = Simulate(q).value();
      EXPECT_EQ(report.seconds, o.seconds);
      EXPECT_EQ(report.lanes, s.lanes);
      EXPECT_EQ(report.turns, 1u);
      EXPECT_LE(report.bus_bytes_per_second, report.limit_bytes_per_second);
      EXPECT_GT(report.seconds, expected);
    }
  }
}

// One rank has nothing to exchange, so no bytes count for the bus bandwidth.
TEST(Pipeline, OfOneRankHasNoBusBandwidth) {
  for (const Kind kind : {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll, Kind::kAllReduce}) {
    Request q = Make(kind, 2);
    q.contract.ranks = 1;
    const Report report = Simulate(q).value();
    EXPECT_GT(report.seconds, 0) << plan::KindName(kind);
    EXPECT_EQ(report.bus_bytes_per_second, 0) << plan::KindName(kind);
    EXPECT_EQ(report.limit_bytes_per_second, 0) << plan::KindName(kind);
  }
}

TEST(Pipeline, HidesTheShorterOne) {
  Request q = Make(Kind::kAllGather, 8);
  const double alone = Simulate(q).value().seconds;
  const double chunks = kRanks * 8;
  // Computation takes much longer: what remains visible of the communication is the way of the first chunk.
  q.caller.consume_seconds = 10 * alone / chunks;
  Pipeline p = SimulatePipeline(q).value();
  EXPECT_EQ(p.communication.seconds, alone);
  EXPECT_NEAR(p.compute_seconds, 10 * alone, 1e-12);
  EXPECT_GT(p.whole.seconds, p.compute_seconds);
  EXPECT_LT(p.whole.seconds, p.compute_seconds + alone / 50);
  EXPECT_NEAR(p.overlap, p.compute_seconds / p.whole.seconds, 1e-12);
  // Communication takes much longer: the computation with the last chunks remains visible.
  q.caller.consume_seconds = alone / 10 / chunks;
  p = SimulatePipeline(q).value();
  EXPECT_GE(p.whole.seconds, alone + q.caller.consume_seconds);
  EXPECT_LE(p.whole.seconds, alone + (kRanks - 1) * q.caller.consume_seconds + 1e-12);
  EXPECT_NEAR(p.overlap, alone / p.whole.seconds, 1e-12);
}

TEST(Pipeline, HidesCommunicationBehindTheInput) {
  Request q = Make(Kind::kReduceScatter, 8, true);
  const double alone = Simulate(q).value().seconds;
  q.caller.produce_seconds = 10 * alone / (kRanks * 8);
  const Pipeline p = SimulatePipeline(q).value();
  EXPECT_NEAR(p.compute_seconds, 10 * alone, 1e-12);
  EXPECT_GT(p.whole.seconds, p.compute_seconds);
  EXPECT_LT(p.whole.seconds, p.compute_seconds + alone / 4);
}

TEST(Pipeline, BulkIsTheFastestPlanAndTheComputationInTurn) {
  Request q = Make(Kind::kBroadcast, 4, true);
  q.caller = {1e-3, 2e-3};
  const Pipeline p = SimulatePipeline(q).value();
  double plain = 1;
  for (const std::string_view algorithm : algo::Algorithms(Kind::kBroadcast)) {
    Request other = q;
    other.slices = 0;
    other.algorithm = algorithm;
    plain = std::min(plain, Simulate(other).value().seconds);
  }
  // The root produces; all consume.
  EXPECT_NEAR(p.bulk_seconds, 4e-3 + plain + 8e-3, 1e-12);
  EXPECT_NEAR(p.compute_seconds, 12e-3, 1e-12);
  Request best = q;
  best.slices = 0;
  best.algorithm = p.bulk_algorithm;
  EXPECT_EQ(Simulate(best).value().seconds, plain);
}

TEST(Pipeline, EndsNoEarlierThanEachOfBoth) {
  for (const Kind kind :
       {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllToAll, Kind::kAllReduce, Kind::kBroadcast}) {
    for (const bool produced : {false, true}) {
      for (const double seconds : {1e-7, 1e-5, 1e-3}) {
        Request q = Make(kind, 4, produced);
        q.caller = {produced ? seconds : 0, seconds};
        const Pipeline p = SimulatePipeline(q).value();
        SCOPED_TRACE(std::string(plan::KindName(kind)) + (produced ? " produced " : " ") + std::to_string(seconds));
        EXPECT_GE(p.whole.seconds, p.communication.seconds);
        EXPECT_GE(p.whole.seconds, p.compute_seconds);
        EXPECT_LE(p.whole.seconds, p.communication.seconds + p.compute_seconds + 1e-12);
        EXPECT_LE(p.overlap, 1);
      }
    }
  }
}

TEST(Pipeline, InPlaceTheOwnBlockCostsNoMemory) {
  Request q = Make(Kind::kAllGather, 1);
  // Only memory limits the time.
  q.fabric.memory_bytes_per_second = 1e9;
  q.fabric.link_bytes_per_second = 1e18;
  const double block_seconds = static_cast<double>(q.bytes) / kRanks / 1e9;
  const auto saved = [&] {
    q.in_place = false;
    const double out_of_place = Simulate(q).value().seconds;
    q.in_place = true;
    return (out_of_place - Simulate(q).value().seconds) / block_seconds;
  };
  EXPECT_NEAR(saved(), 2, 1e-4);
  // The same for plans without slices, but direct still reads the block, once for all that it writes it to.
  q.slices = 0;
  q.algorithm = algo::kPull;
  EXPECT_NEAR(saved(), 2, 1e-4);
  q.algorithm = algo::kDirect;
  EXPECT_NEAR(saved(), 1, 1e-4);
}

void ExpectRefused(const Request& q, Code code, const char* what) {
  for (const Status& status : {Simulate(q).status(), SimulatePipeline(q).status()}) {
    ASSERT_FALSE(status.ok()) << what;
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(what), std::string_view::npos) << status.message();
  }
}

TEST(Pipeline, NamesWhatItCannotDo) {
  Request q = Make(Kind::kAllGather, 4);
  q.algorithm = "ring";
  ExpectRefused(q, Code::kInvalidArgument, "no algorithm 'ring' for this kind");
  ExpectRefused(Make(Kind::kAllGather, 100'000), Code::kInvalidUsage, "chunks of all ranks are more than can be held");
  q = Make(Kind::kAllGather, 4);
  q.placement = plan::Placement::Of(std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1});
  ExpectRefused(q, Code::kInvalidUsage, "a plan with slices is of one machine");
}

}  // namespace
}  // namespace axccl::sim
