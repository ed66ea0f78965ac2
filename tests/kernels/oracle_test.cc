// The oracle, compared with values from the formats' definitions (OCP OFP8 1.0, IEEE 754 binary16) and with the
// compiler's own conversions: an oracle that was wrong in the same way as the movers would prove nothing.

#include "tests/kernels/oracle.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace axccl::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(OracleTest, DecodesPublishedExtremes) {
  EXPECT_EQ(Decode(DataType::kFloat8E4M3, 0x7e), 448);
  EXPECT_EQ(Decode(DataType::kFloat8E4M3, 0x08), 0x1p-6);
  EXPECT_EQ(Decode(DataType::kFloat8E4M3, 0x01), 0x1p-9);
  EXPECT_TRUE(std::isnan(Decode(DataType::kFloat8E4M3, 0xff)));
  EXPECT_EQ(Decode(DataType::kFloat8E5M2, 0x7b), 57344);
  EXPECT_EQ(Decode(DataType::kFloat8E5M2, 0x04), 0x1p-14);
  EXPECT_EQ(Decode(DataType::kFloat8E5M2, 0x01), 0x1p-16);
  EXPECT_EQ(Decode(DataType::kFloat8E5M2, 0xfc), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(Decode(DataType::kFloat16, 0x7bff), 65504);
  EXPECT_EQ(Decode(DataType::kFloat16, 0x0400), 0x1p-14);
  EXPECT_EQ(Decode(DataType::kFloat16, 0x8001), -0x1p-24);
  EXPECT_EQ(Decode(DataType::kBfloat16, 0x3f80), 1);
  EXPECT_EQ(Decode(DataType::kBfloat16, 0x0001), 0x1p-133);
}

TEST(OracleTest, RoundsTiesToEvenAndOverflowsAsEachFormatDemands) {
  EXPECT_EQ(Encode(DataType::kFloat16, 65519.996f), 0x7bffu);
  EXPECT_EQ(Encode(DataType::kFloat16, 65520.0f), 0x7c00u);
  EXPECT_EQ(Encode(DataType::kFloat16, 1.0f + 0x1p-11f), 0x3c00u);
  EXPECT_EQ(Encode(DataType::kFloat16, 1.0f + 0x3p-11f), 0x3c02u);
  EXPECT_EQ(Encode(DataType::kFloat16, 0x1p-25f), 0u);
  EXPECT_EQ(Encode(DataType::kFloat16, -0x1.8p-25f), 0x8001u);
  EXPECT_EQ(Encode(DataType::kBfloat16, std::numeric_limits<float>::max()), 0x7f80u);
  EXPECT_EQ(Encode(DataType::kFloat8E4M3, kInfinity), 0x7eu);
  EXPECT_EQ(Encode(DataType::kFloat8E4M3, -449.0f), 0xfeu);
  EXPECT_EQ(Encode(DataType::kFloat8E5M2, kInfinity), 0x7bu);
  EXPECT_EQ(Encode(DataType::kFloat8E5M2, 0x1p-17f), 0u);
  EXPECT_EQ(Encode(DataType::kFloat8E5M2, 0x3p-17f), 2u);
  for (DataType type : {DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    EXPECT_EQ(Encode(type, std::numeric_limits<float>::quiet_NaN()), 0x7fu);
  }
}

TEST(OracleTest, EveryCodeEncodesToItself) {
  for (DataType type : {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    const uint32_t num_codes = 1u << (8 * ElementSize(type));
    for (uint32_t code = 0; code < num_codes; ++code) {
      const double value = Decode(type, code);
      const bool saturated = std::isinf(value) && ElementSize(type) == 1;
      if (std::isnan(value) || saturated) continue;
      ASSERT_EQ(Encode(type, static_cast<float>(value)), code) << DataTypeName(type);
    }
  }
}

TEST(OracleTest, DecodesF32LikeTheMachine) {
  Generator& random = Random();
  for (int i = 0; i < 100000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random());
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(Decode(DataType::kFloat32, bits), static_cast<double>(value)) << bits;
    ASSERT_EQ(Encode(DataType::kFloat32, value), bits);
  }
}

}  // namespace
}  // namespace axccl::kernels
