// How much shared memory a block gets for copies in bulk: two blocks fit on a multiprocessor of every kind.
#include "kernels/cuda/ring.h"

#include <gtest/gtest.h>

namespace axccl::kernels::cuda {
namespace {

constexpr uint64_t kKiB = 1024;
// The most that the kernel may declare: cuda_resources_test.
constexpr uint64_t kDeclared = 31 * kKiB;

SharedMemoryOf Processor(uint64_t multiprocessor, uint64_t declared = kDeclared) {
  return {multiprocessor * kKiB, (multiprocessor - 1) * kKiB, kKiB, declared};
}

TEST(CudaRing, LeavesRoomForTwoBlocks) {
  for (uint64_t multiprocessor = 32; multiprocessor < 512; ++multiprocessor) {
    for (uint64_t declared = 16; declared < kDeclared; declared += 1000) {
      const SharedMemoryOf shared = Processor(multiprocessor, declared);
      const uint32_t bytes = RingBytes(shared);
      if (bytes == 0) continue;
      EXPECT_LE(2 * (bytes + declared + shared.reserved), shared.multiprocessor);
      EXPECT_LE(bytes + declared, shared.block);
      EXPECT_LE(bytes, kMostRingBytes);
      EXPECT_EQ(bytes % (kBulkIssuers * kBulkStages * 128), 0u);
      // An mbarrier counts up to 2^20 - 1 bytes.
      EXPECT_LT(bytes / (kBulkIssuers * kBulkStages), 1u << 20);
    }
  }
}

TEST(CudaRing, HasStagesOf10KiBWhereTheMultiprocessorHas228) {
  EXPECT_EQ(RingBytes(Processor(228)), 80 * kKiB);
  EXPECT_EQ(RingBytes(Processor(228, 29 * kKiB)), 80 * kKiB);
  EXPECT_EQ(RingBytesInFlight(80 * kKiB), 60 * kKiB);
  // sm_120.
  EXPECT_EQ(RingBytes(Processor(100)), 16 * kKiB);
}

TEST(CudaRing, IsLeftOutWhereThereIsNoRoom) {
  EXPECT_EQ(RingBytes(Processor(64)), 0u);
  EXPECT_EQ(RingBytes({64 * kKiB, 48 * kKiB, kKiB, 48 * kKiB}), 0u);
  // As much as fits into a block.
  EXPECT_EQ(RingBytes({1024 * kKiB, 99 * kKiB, kKiB, kDeclared}), 64 * kKiB);
  EXPECT_EQ(RingBytes({1024 * kKiB, 999 * kKiB, kKiB, kDeclared}), kMostRingBytes);
}

}  // namespace
}  // namespace axccl::kernels::cuda
