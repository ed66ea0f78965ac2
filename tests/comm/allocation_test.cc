// Calls that have been made before allocate no memory, whether they end at once, are left pending, or wait behind
// others.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "axccl/axccl.h"
#include "nccl.h"
#include "tests/harness/client.h"

namespace {

thread_local long t_allocations = 0;

}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);  // NOLINT: glibc's name
void* malloc(size_t bytes) {
  ++t_allocations;
  return __libc_malloc(bytes);
}
}

namespace axccl::tests {
namespace {

using harness::Cuda;

constexpr int kRanks = 2;

// Two ranks of this thread, so that it is certain who waits.
class AllocationTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ASSERT_EQ(ncclCommInitAll(comms_.data(), kRanks, nullptr), ncclSuccess);
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(axcclHostSetDevice(rank), ncclSuccess);
      const bool use_null = GetParam();
      ASSERT_EQ(axcclStreamCreate(&made_[rank], use_null ? axcclStreamDefault : axcclStreamNonBlocking), ncclSuccess);
      streams_[rank] = use_null ? nullptr : made_[rank];
    }
  }
  void TearDown() override {
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(axcclStreamDestroy(made_[rank]), ncclSuccess);
      EXPECT_EQ(ncclCommDestroy(comms_[rank]), ncclSuccess);
    }
  }

  void Call(int rank, size_t count) {
    ASSERT_EQ(axcclHostSetDevice(rank), ncclSuccess);
    ASSERT_EQ(ncclAllReduce(in_[rank].data(), out_[rank].data(), count, ncclInt32, ncclSum, comms_[rank],
                            Cuda(streams_[rank])),
              ncclSuccess);
  }
  void Wait(int rank) {
    ASSERT_EQ(axcclHostSetDevice(rank), ncclSuccess);
    ASSERT_EQ(axcclStreamSynchronize(streams_[rank]), ncclSuccess);
  }
  // The first call of rank 0 is left pending, the others wait behind it; those of rank 1 end at once.
  void Round(size_t count, int calls) {
    for (int i = 0; i < calls; ++i) Call(0, count);
    for (int i = 0; i < calls; ++i) Call(1, count);
    for (int rank = 0; rank < kRanks; ++rank) Wait(rank);
  }

  std::array<ncclComm_t, kRanks> comms_{};
  std::array<axcclStream_t, kRanks> made_{}, streams_{};
  std::array<std::array<int, 2048>, kRanks> in_{}, out_{};
};

TEST_P(AllocationTest, NoneInCallsThatWereMadeBefore) {
  for (const size_t count : {size_t{2}, size_t{100}, size_t{2048}}) {
    for (const int calls : {1, 8}) {
      for (int i = 0; i < 40; ++i) Round(count, calls);
      // The first wait of a thread that lasts long allocates once.
      long least = 1;
      for (int attempt = 0; attempt < 5 && least != 0; ++attempt) {
        const long before = t_allocations;
        for (int i = 0; i < 10; ++i) Round(count, calls);
        least = t_allocations - before;
      }
      EXPECT_EQ(least, 0) << count << " elements, " << calls << " calls at a time";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Streams, AllocationTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "NullBesideABlockingOne" : "NonBlocking"; });

}  // namespace
}  // namespace axccl::tests
