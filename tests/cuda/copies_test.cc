// Large copies of ranks on GPUs, which processors from sm_90 on make in bulk, and older ones do not.
#include <gtest/gtest.h>

#include <string>

#include "tests/collectives/owned_view.h"
#include "tests/cuda/words.h"
#include "tests/harness/case_runner.h"
#include "tests/harness/guarded_buffer.h"

namespace axccl::tests {
namespace {

using harness::Call;
using harness::CaseRunner;
using harness::Choice;
using harness::Clique;
using harness::Cuda;
using harness::Fold;
using harness::GuardedArena;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Seed;

// What the software GPU counts; -1 without one.
int64_t Counted(const char* name) {
  const GpuCounter count = CounterOf(name);
  return count == nullptr ? -1 : static_cast<int64_t>(count());
}

// Bytes copied in bulk so far.
int64_t BulkBytes() { return Counted("softgpu_bulk_bytes"); }

void ExpectInBulk(bool in_bulk, int64_t before) {
  const int64_t now = BulkBytes();
  if (now < 0) return;
  if (in_bulk) {
    EXPECT_GT(now - before, 256 << 10);
  } else {
    EXPECT_EQ(now, 0);
  }
}

struct Device {
  int arch;
  Layout layout;

  bool in_bulk() const { return arch >= 90; }
  RunOptions options() const {
    RunOptions options = SmallGpu(2);
    options.environment.emplace_back("SOFTGPU_ARCH", std::to_string(arch));
    return options;
  }
};

class CopiesTest : public testing::TestWithParam<Device> {};

TEST_P(CopiesTest, AreRight) {
  const bool in_bulk = GetParam().in_bulk();
  const auto body = [in_bulk](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    CaseRunner runner(context, clique, size_t{4} << 20);
    const int64_t before = BulkBytes();
    for (const Call call : {Call::kAllReduce, Call::kAllGather, Call::kAllToAll, Call::kBroadcast, Call::kGather}) {
      for (const Choice misaligned : {Choice::kNo, Choice::kRandom}) {
        for (const size_t count : {40'000, 70'003})
          ASSERT_TRUE(runner.Run({call, ncclInt32, Fold::kSum, count, 0, Seed()}, {.misaligned = misaligned}));
      }
    }
    context.Barrier();
    ExpectInBulk(in_bulk, before);
  };
  RunRanks(GetParam().layout, body, GetParam().options());
}

// A block loads 8 stages of 10 KiB, the first ones of which take all of a copy.
TEST_P(CopiesTest, OfAnyNumberOfStagesAreRight) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    CaseRunner runner(context, clique, size_t{4} << 20);
    constexpr int64_t kStage = 10 << 10;
    for (const int64_t stages : {1, 2, 3, 4, 5, 7, 8, 9, 17}) {
      for (const int64_t more : {-17, -16, -1, 0, 1, 16}) {
        const auto bytes = static_cast<size_t>(stages * kStage + more);
        for (const Call call : {Call::kBroadcast, Call::kAllGather})
          ASSERT_TRUE(runner.Run({call, ncclInt8, Fold::kSum, bytes, 0, Seed()}, {.misaligned = Choice::kNo}));
      }
    }
  };
  RunRanks(GetParam().layout, body, GetParam().options());
}

// Gathered columns: rows shorter and longer than a stage.
class RowsTest : public testing::TestWithParam<std::tuple<Device, int64_t>> {};

TEST_P(RowsTest, AreRight) {
  const Device device = std::get<0>(GetParam());
  const int64_t columns = std::get<1>(GetParam());
  const bool in_bulk = device.in_bulk(), long_rows = columns * sizeof(int32_t) >= 10 << 10;
  const auto body = [in_bulk, long_rows, columns](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr int64_t kRows = 60;
    const int n = context.nranks();
    const int64_t before = BulkBytes();
    std::vector<std::unique_ptr<GuardedArena>> arenas;
    std::vector<int32_t*> outs;
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique.size(); ++i) {
      arenas.push_back(GuardedArena::Create(harness::Memory::kMalloc, size_t{4} << 20));
      auto* const in = static_cast<int32_t*>(arenas.back()->Take(kRows * columns * sizeof(int32_t), 0));
      outs.push_back(static_cast<int32_t*>(arenas.back()->Take(n * kRows * columns * sizeof(int32_t), 0)));
      for (int64_t k = 0; k < kRows * columns; ++k) in[k] = static_cast<int32_t>(k) + 1'000'000 * clique.rank(i);
      ASSERT_OK(axcclAllGather(1, View(in, {kRows, columns}), View(outs.back(), {kRows, n * columns}), 1,
                               axcclDefaultChannel(clique.comm(i)), nullptr, Cuda(clique.stream(i))));
    }
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    for (const int32_t* const out : outs) {
      for (int64_t k = 0; k < n * kRows * columns; ++k) {
        const int64_t row = k / (n * columns), column = k % (n * columns);
        ASSERT_EQ(out[k], row * columns + column % columns + 1'000'000 * (column / columns)) << row << ", " << column;
      }
    }
    context.Barrier();
    if (long_rows || !in_bulk) ExpectInBulk(in_bulk, before);
  };
  RunRanks(device.layout, body, device.options());
}

// Launches of 512 threads and more shared memory still leave room for a second one.
TEST_P(CopiesTest, AskForSharedMemoryIfTheyAreLarge) {
  const int64_t wanted = GetParam().in_bulk() ? 80 << 10 : 0;
  const auto body = [wanted](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    if (CounterOf("softgpu_last_dynamic_shared") == nullptr) GTEST_SKIP();
    CaseRunner runner(context, clique, size_t{4} << 20);
    for (const auto& [bytes, asked] :
         {std::pair{size_t{8}, int64_t{0}}, {4 << 10, 0}, {1 << 19, wanted}, {8 << 10, 0}}) {
      ASSERT_TRUE(runner.Run({Call::kAllGather, ncclInt8, Fold::kSum, bytes, 0, Seed()}, {}));
      context.Barrier();
      EXPECT_EQ(Counted("softgpu_last_dynamic_shared"), asked) << bytes;
      EXPECT_GE(Counted("softgpu_last_blocks_together"), 2);
      context.Barrier();
    }
  };
  RunRanks(GetParam().layout, body, GetParam().options());
}

const auto kDevices = testing::Values(Device{90, harness::Threads(2)}, Device{90, harness::OneThread(3)},
                                      Device{80, harness::Threads(2)});
std::string NameOf(const Device& device) { return "sm_" + std::to_string(device.arch) + "_" + device.layout.Text(); }

INSTANTIATE_TEST_SUITE_P(Devices, CopiesTest, kDevices, [](const auto& info) { return NameOf(info.param); });
INSTANTIATE_TEST_SUITE_P(Devices, RowsTest, testing::Combine(kDevices, testing::Values(1028, 2564)),
                         [](const auto& info) {
                           return NameOf(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param));
                         });

// With warps that advance side by side, and copies that arrive late.
TEST(Copies, KeepMostOfTheRingInFlight) {
  RunOptions options = SmallGpu(2);
  options.environment.emplace_back("SOFTGPU_BURST", "8");
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    if (CounterOf("softgpu_most_bulk_bytes_in_flight") == nullptr) GTEST_SKIP();
    CaseRunner runner(context, clique, size_t{4} << 20);
    ASSERT_TRUE(runner.Run({Call::kAllGather, ncclInt8, Fold::kSum, 1 << 20, 0, Seed()}, {.misaligned = Choice::kNo}));
    const int64_t ring = Counted("softgpu_last_dynamic_shared"), most = Counted("softgpu_most_bulk_bytes_in_flight");
    EXPECT_GE(ring, 64 << 10);
    EXPECT_GE(most, ring * 3 / 4);
    EXPECT_LE(most, ring);
  };
  RunRanks(harness::OneThread(2), body, options);
}

}  // namespace
}  // namespace axccl::tests
