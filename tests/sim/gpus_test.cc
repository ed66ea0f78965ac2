// What 8 GPUs with NVLink would reach with the lanes that the library would launch, if a block is as fast as its loads.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "src/cost/machine.h"
#include "src/sim/simulate.h"
#include "src/tune/tune.h"

namespace axccl::sim {
namespace {

using cost::Gpu;
using plan::Kind;

constexpr int kGpus = 8, kMostLanes = 64;
constexpr uint64_t kBytes = uint64_t{1} << 30, kScratch = 1 << 20, kSwitchScratch = 8 << 20,
                   kLargeScratch = 64 << 20;  // of a rotation copy

Fabric OfBlocks() {
  Fabric fabric;
  fabric.lane_memory_bytes_per_second = 2 * Gpu::kBytesInFlight / Gpu::kMemorySeconds;  // read and written
  fabric.lane_link_bytes_per_second = Gpu::kBytesInFlight / Gpu::kLinkSeconds;
  return fabric;
}

tune::Choice Choose(const std::string& filter, uint64_t scratch, int ranks_of_gpu = 1, bool multicast = false,
                    tune::Access access = tune::Access::kMapped) {
  const cost::Machine machine = cost::GpuMachine(Gpu::kMultiprocessors, ranks_of_gpu);
  const auto chooser = tune::Chooser::Create(machine, filter, scratch, kMostLanes).value();
  tune::Query query{{Kind::kAllReduce, kGpus, 0}, kBytes, DataType::kFloat32, access};
  query.sharers = ranks_of_gpu;
  if (multicast) query.multicast = tune::Multicast::kFolds;
  return chooser->Choose(query);
}

double BusBandwidth(const tune::Choice& choice, int lanes) {
  Request q;
  q.contract = {Kind::kAllReduce, kGpus, 0};
  q.algorithm = choice.algorithm;
  q.lanes = lanes;
  q.bytes = kBytes;
  q.tile_bytes = choice.tile_bytes;
  q.fabric = OfBlocks();
  return Simulate(q).value().bus_bytes_per_second / 1e9;
}

TEST(Gpus, LargeAllReducesFillTheLinks) {
  const tune::Choice choice = Choose("", kScratch);
  EXPECT_EQ(choice.algorithm, "direct");
  EXPECT_EQ(choice.lanes, kMostLanes / 2);
  EXPECT_GE(BusBandwidth(choice, choice.lanes), 440);
  EXPECT_LE(BusBandwidth(choice, choice.lanes), Gpu::kLinkBytesPerSecond / 1e9);
  // The part of a machine's multiprocessors that a rank once had does not fill them.
  EXPECT_LT(BusBandwidth(choice, Gpu::kMultiprocessors / kGpus), 370);
}

TEST(Gpus, SoDoRingsThatReadEachOthersBuffers) {
  const tune::Choice choice = Choose("ring", kScratch);
  EXPECT_EQ(choice.algorithm, "ring_pull");
  EXPECT_EQ(choice.lanes, kMostLanes / 2);
  EXPECT_GE(BusBandwidth(choice, choice.lanes), 440);
}

// Otherwise a ring passes data on through scratch, so its lanes need as much of that as NCCL's channels have.
TEST(Gpus, RingsWithoutAccessNeedScratch) {
  const auto choose = [](uint64_t scratch) { return Choose("ring", scratch, 1, false, tune::Access::kNone); };
  const tune::Choice small = choose(kScratch), large = choose(kLargeScratch);
  EXPECT_EQ(large.algorithm, "ring");
  EXPECT_EQ(large.lanes, kMostLanes);
  EXPECT_GE(BusBandwidth(large, large.lanes), 370);
  EXPECT_LT(BusBandwidth(small, small.lanes), 100);
}

// Through NVLink SHARP, a link carries little more than the data once in each direction. The rate of the switch is
// assumed (Fabric::multicast_bytes_per_second).
TEST(Gpus, TheSwitchAddsIfThereIsScratch) {
  const tune::Choice choice = Choose("", kSwitchScratch, 1, true);
  EXPECT_EQ(choice.algorithm, "nvls");
  EXPECT_EQ(choice.lanes, kMostLanes / 2);
  EXPECT_GE(BusBandwidth(choice, choice.lanes), 470);
  EXPECT_LE(BusBandwidth(choice, choice.lanes), 2.0 * 7 / 9 * Gpu::kMulticastBytesPerSecond / 1e9);
  EXPECT_EQ(Choose("", kScratch, 1, true).algorithm, "direct");
  EXPECT_EQ(Choose("", kSwitchScratch).algorithm, "direct");
  // An eighth of the lanes does not fill the links.
  EXPECT_LT(BusBandwidth(choice, kMostLanes / 8), 200);
}

TEST(Gpus, TheCostModelAgrees) {
  for (const std::string filter : {"direct", "ring", "ring_pull", "nvls"}) {
    const tune::Access access = filter == "ring" ? tune::Access::kNone : tune::Access::kMapped;
    const tune::Choice choice = Choose(filter, kLargeScratch, 1, true, access);
    EXPECT_EQ(choice.algorithm, filter);
    const double predicted = 2.0 * (kGpus - 1) / kGpus * kBytes / choice.seconds / 1e9;
    EXPECT_NEAR(predicted, BusBandwidth(choice, choice.lanes), 0.2 * predicted) << filter;
  }
}

// Without the limit of a block, few lanes are as fast as many.
TEST(Gpus, ALaneWithoutALimitOfItsOwnIsAsFastAsItsRank) {
  Request q;
  q.contract = {Kind::kAllReduce, kGpus, 0};
  q.algorithm = "direct";
  q.bytes = kBytes;
  q.lanes = 2;
  const double unlimited = Simulate(q).value().seconds;
  q.fabric = OfBlocks();
  const double limited = Simulate(q).value().seconds;
  // Each lane reads 7 parts, then 7 blocks, of an eighth of its half.
  EXPECT_NEAR(limited, 14.0 / 8 * kBytes / 2 / q.fabric.lane_link_bytes_per_second, 0.02 * limited);
  EXPECT_LT(unlimited, limited / 8);
}

}  // namespace
}  // namespace axccl::sim
