// How much a small call costs on the device, which the software GPU counts (tools/softgpu/engine/trace.h): round trips
// to memory, one after the other, and instructions of the warp that has the most to do, up to its last store.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/collectives/owned_view.h"
#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

constexpr int kRanks = 8;

RunOptions Traced() {
  RunOptions options;
  options.environment = {{"SOFTGPU_TRACE", "1"}, {"SOFTGPU_DEVICES", "1"}};
  return options;
}

// Makes a call that sums up ones, of `words` words a rank, in place or to `out`.
using SumOnes = ncclResult_t (*)(Words* in, Words* out, const Clique& clique);

struct Efforts {
  uint64_t trips, instructions;
};

// Each rank launches a kernel of its own, so the last one to come waits for no other, and what it does is the least.
void ExpectLittle(size_t in_words, size_t out_words, const Efforts& most, SumOnes call) {
  const auto body = [=](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words in(in_words), out(out_words);
    const auto sum = [&] {
      in.Fill(1);
      out.Fill(-1);
      ASSERT_OK(call(&in, &out, clique));
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      ASSERT_TRUE(out.AreAll(kRanks));
    };
    for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(sum());
    ASSERT_TRUE(context.Barrier());
    const GpuCounter forget = CounterOf("softgpu_forget_efforts");
    if (context.rank() == 0 && forget != nullptr) forget();
    ASSERT_TRUE(context.Barrier());
    for (int i = 0; i < 50; ++i) ASSERT_NO_FATAL_FAILURE(sum());
    ASSERT_TRUE(context.Barrier());
    if (context.rank() != 0 || forget == nullptr) return;
    const uint64_t trips = CounterOf("softgpu_least_trips")();
    const uint64_t instructions = CounterOf("softgpu_least_instructions")();
    std::printf("%llu round trips, %llu instructions\n", static_cast<unsigned long long>(trips),
                static_cast<unsigned long long>(instructions));
    EXPECT_LE(trips, most.trips);
    EXPECT_LE(instructions, most.instructions);
  };
  RunRanks(harness::Threads(kRanks), body, Traced());
}

// A quarter of what the interpreter of plans once needed for 8 bytes: 101 and 3844.
constexpr Efforts kOfWords{25, 961};

ncclResult_t SumUp(Words* in, Words* out, const Clique& clique) { return Sum(in, out, clique.comm(), clique.stream()); }

TEST(SmallCalls, AnAllReduceCostsLittle) { ExpectLittle(2, 2, kOfWords, SumUp); }

// Of 4000 bytes, which travel in rows.
constexpr Efforts kOfRows{12, 1800};
TEST(SmallCalls, AnAllReduceInRowsCostsLittle) { ExpectLittle(1000, 1000, kOfRows, SumUp); }

// The same on views.
ncclResult_t SumUpViews(Words* in, Words* out, const Clique& clique) {
  const View from(in->get(), {1, 2}), to(out->get(), {1, 2});
  return axcclAllReduce(1, from, to, ncclSum, axcclDefaultChannel(clique.comm()), nullptr,
                        harness::Cuda(clique.stream()));
}
TEST(SmallCalls, AnAllReduceOfAViewCostsLittle) { ExpectLittle(2, 2, kOfWords, SumUpViews); }

template <size_t kWords>
ncclResult_t SumUpBlocks(Words* in, Words* out, const Clique& clique) {
  return ncclReduceScatter(in->get(), out->get(), kWords, ncclInt32, ncclSum, clique.comm(),
                           harness::Cuda(clique.stream()));
}

// Of 8 bytes for each rank.
TEST(SmallCalls, AReduceScatterCostsLittle) { ExpectLittle(2 * kRanks, 2, kOfWords, SumUpBlocks<2>); }

// Of 1 KiB for each rank.
TEST(SmallCalls, AReduceScatterInRowsCostsLittle) { ExpectLittle(256 * kRanks, 256, kOfRows, SumUpBlocks<256>); }

template <bool kOfBlocks, size_t kWords>
ncclResult_t SumUpScaled(Words* in, Words* out, const Clique& clique) {
  const ncclComm_t comm = clique.comm();
  ncclRedOp_t scaled_sum;
  int32_t factor = 1;
  ncclResult_t result = ncclRedOpCreatePreMulSum(&scaled_sum, &factor, ncclInt32, ncclScalarHostImmediate, comm);
  if (result != ncclSuccess) return result;
  const auto stream = harness::Cuda(clique.stream());
  result = kOfBlocks ? ncclReduceScatter(in->get(), out->get(), kWords, ncclInt32, scaled_sum, comm, stream)
                     : ncclAllReduce(in->get(), out->get(), kWords, ncclInt32, scaled_sum, comm, stream);
  const ncclResult_t destroyed = ncclRedOpDestroy(scaled_sum, comm);
  return result != ncclSuccess ? result : destroyed;
}

// Of inputs that are multiplied before: 8 bytes, and 8 bytes for each rank. The interpreter of plans needs 141 round
// trips for the latter.
constexpr Efforts kOfScaledWords{4, 1200};
TEST(SmallCalls, AScaledAllReduceCostsLittle) { ExpectLittle(2, 2, kOfScaledWords, SumUpScaled<false, 2>); }
TEST(SmallCalls, AScaledReduceScatterCostsLittle) { ExpectLittle(2 * kRanks, 2, kOfScaledWords, SumUpScaled<true, 2>); }

// 4000 bytes, and 1 KiB for each rank. The interpreter needs 44 and 98 round trips.
TEST(SmallCalls, AScaledAllReduceInRowsCostsLittle) { ExpectLittle(1000, 1000, kOfRows, SumUpScaled<false, 1000>); }
TEST(SmallCalls, AScaledReduceScatterInRowsCostsLittle) {
  ExpectLittle(256 * kRanks, 256, kOfRows, SumUpScaled<true, 256>);
}

}  // namespace
}  // namespace axccl::tests
