// The device code in the library is a fatbin, the one of this build, and not too large.

#include "kernels/cuda/fatbin.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace {

TEST(CudaFatbin, IsValidAndSmall) {
  uint32_t magic;
  ASSERT_GT(axccl_cuda_fatbin_bytes, sizeof(magic));
  std::memcpy(&magic, axccl_cuda_fatbin, sizeof(magic));
  EXPECT_EQ(magic, 0xba55ed50u);
  EXPECT_LE(axccl_cuda_fatbin_bytes, 4u << 20);
}

// A compiler cache that does not know what the assembler embeds would give back an older one.
TEST(CudaFatbin, IsTheOneOfThisBuild) {
  std::ifstream file(FATBIN, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ASSERT_EQ(axccl_cuda_fatbin_bytes, bytes.size()) << FATBIN;
  EXPECT_EQ(std::memcmp(axccl_cuda_fatbin, bytes.data(), bytes.size()), 0) << FATBIN;
}

}  // namespace
