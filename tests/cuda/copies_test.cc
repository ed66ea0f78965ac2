// Large copies of ranks on GPUs, which processors from sm_90 on make in bulk, and older ones do not.
#include <dlfcn.h>
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

// Bytes copied in bulk so far; -1 if no software GPU counts them.
int64_t BulkBytes() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  auto* const count = reinterpret_cast<uint64_t (*)()>(dlsym(library, "softgpu_bulk_bytes"));
  return count == nullptr ? -1 : static_cast<int64_t>(count());
}

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

// Gathered columns: rows of 4 KiB and more.
TEST_P(CopiesTest, OfLongRowsAreRight) {
  const bool in_bulk = GetParam().in_bulk();
  const auto body = [in_bulk](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr int64_t kRows = 60, kColumns = 1028;
    const int n = context.nranks();
    const int64_t before = BulkBytes();
    std::vector<std::unique_ptr<GuardedArena>> arenas;
    std::vector<int32_t*> outs;
    ASSERT_OK(ncclGroupStart());
    for (int i = 0; i < clique.size(); ++i) {
      arenas.push_back(GuardedArena::Create(harness::Memory::kMalloc, size_t{4} << 20));
      auto* const in = static_cast<int32_t*>(arenas.back()->Take(kRows * kColumns * sizeof(int32_t), 0));
      outs.push_back(static_cast<int32_t*>(arenas.back()->Take(n * kRows * kColumns * sizeof(int32_t), 0)));
      for (int64_t k = 0; k < kRows * kColumns; ++k) in[k] = static_cast<int32_t>(k) + 1'000'000 * clique.rank(i);
      ASSERT_OK(axcclAllGather(1, View(in, {kRows, kColumns}), View(outs.back(), {kRows, n * kColumns}), 1,
                               axcclDefaultChannel(clique.comm(i)), nullptr, Cuda(clique.stream(i))));
    }
    ASSERT_OK(ncclGroupEnd());
    ASSERT_TRUE(clique.Synchronize());
    for (const int32_t* const out : outs) {
      for (int64_t k = 0; k < n * kRows * kColumns; ++k) {
        const int64_t row = k / (n * kColumns), column = k % (n * kColumns);
        ASSERT_EQ(out[k], row * kColumns + column % kColumns + 1'000'000 * (column / kColumns))
            << row << ", " << column;
      }
    }
    context.Barrier();
    ExpectInBulk(in_bulk, before);
  };
  RunRanks(GetParam().layout, body, GetParam().options());
}

INSTANTIATE_TEST_SUITE_P(Devices, CopiesTest,
                         testing::Values(Device{90, harness::Threads(2)}, Device{90, harness::OneThread(3)},
                                         Device{80, harness::Threads(2)}),
                         [](const auto& info) {
                           return "sm_" + std::to_string(info.param.arch) + "_" + info.param.layout.Text();
                         });

}  // namespace
}  // namespace axccl::tests
