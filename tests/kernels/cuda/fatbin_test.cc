// The device code in the library is a fatbin, and not too large.

#include "kernels/cuda/fatbin.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace {

TEST(CudaFatbin, IsValidAndSmall) {
  uint32_t magic;
  ASSERT_GT(axccl_cuda_fatbin_bytes, sizeof(magic));
  std::memcpy(&magic, axccl_cuda_fatbin, sizeof(magic));
  EXPECT_EQ(magic, 0xba55ed50u);
  EXPECT_LE(axccl_cuda_fatbin_bytes, 4u << 20);
}

}  // namespace
