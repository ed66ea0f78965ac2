// The choice of the instruction set, with and without AXCCL_ISA (the build registers this program once for each value).

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/host/mover.h"

namespace axccl::kernels {
namespace {

TEST(IsaTest, BaselineComesFirstAndNamesDiffer) {
  ASSERT_GE(NumIsas(), 1);
  EXPECT_STREQ(IsaName(0), "baseline");
  for (int isa = 1; isa < NumIsas(); ++isa) EXPECT_STRNE(IsaName(isa), IsaName(isa - 1));
}

TEST(IsaTest, UsesTheForcedSetIfItRunsHereElseTheBest) {
  std::string expected = IsaName(NumIsas() - 1);
  const char* forced = std::getenv("AXCCL_ISA");
  for (int isa = 0; forced != nullptr && isa < NumIsas(); ++isa) {
    if (std::string(forced) == IsaName(isa)) expected = forced;
  }
  EXPECT_EQ(ActiveIsa(), expected);
}

TEST(IsaTest, TheFirstCallsWorkAndKeepTheChoice) {
  const float a[3] = {1, 2, 3};
  const float b[3] = {10, 20, 30};
  float sum[3] = {};
  float copy[3] = {};
  void* sum_dst[1] = {sum};
  void* copy_dst[1] = {copy};
  const void* src[2] = {a, b};
  const std::string before = ActiveIsa();
  Reduce({.dst = sum_dst,
          .num_dst = 1,
          .src = src,
          .num_src = 2,
          .count = 3,
          .type = DataType::kFloat32,
          .combine = Combine::kSum});
  Copy(copy_dst, 1, sum, sizeof(sum), false);
  EXPECT_EQ(copy[0], 11);
  EXPECT_EQ(copy[1], 22);
  EXPECT_EQ(copy[2], 33);
  EXPECT_EQ(ActiveIsa(), before);
}

}  // namespace
}  // namespace axccl::kernels
