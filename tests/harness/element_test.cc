// The oracle's conversions against values written down by hand and against properties every format has.
#include "tests/harness/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace axccl::harness {
namespace {

constexpr ncclDataType_t kSmallFloats[] = {ncclFloat16, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};

TEST(Element, KnownValues) {
  EXPECT_EQ(EncodeFloat(ncclFloat16, 1.0), 0x3c00u);
  EXPECT_EQ(EncodeFloat(ncclFloat16, -2.5), 0xc100u);
  EXPECT_EQ(EncodeFloat(ncclFloat16, 65504.0), 0x7bffu);
  EXPECT_EQ(EncodeFloat(ncclFloat16, 65520.0), 0x7c00u);  // halfway to the next: rounds to infinity
  EXPECT_EQ(EncodeFloat(ncclFloat16, std::ldexp(1.0, -24)), 0x0001u);
  EXPECT_EQ(EncodeFloat(ncclBfloat16, 1.0), 0x3f80u);
  EXPECT_EQ(EncodeFloat(ncclBfloat16, 1.00390625), 0x3f80u);  // half an ulp above 1: to even
  EXPECT_EQ(EncodeFloat(ncclBfloat16, 1.01171875), 0x3f82u);  // one and a half: to even
  EXPECT_EQ(EncodeFloat(ncclFloat8e4m3, 1.0), 0x38u);
  EXPECT_EQ(EncodeFloat(ncclFloat8e4m3, 448.0), 0x7eu);
  EXPECT_EQ(EncodeFloat(ncclFloat8e4m3, 1e6), 0x7eu);
  EXPECT_EQ(EncodeFloat(ncclFloat8e4m3, std::ldexp(1.0, -9)), 0x01u);
  EXPECT_EQ(EncodeFloat(ncclFloat8e5m2, 1.0), 0x3cu);
  EXPECT_EQ(EncodeFloat(ncclFloat8e5m2, -57344.0), 0xfbu);
  EXPECT_EQ(EncodeFloat(ncclFloat8e5m2, 1e9), 0x7bu);
  EXPECT_TRUE(std::isnan(DecodeFloat(ncclFloat8e4m3, 0x7f)));
  EXPECT_EQ(DecodeFloat(ncclFloat8e4m3, 0x78), 256.0);
  EXPECT_TRUE(std::isinf(DecodeFloat(ncclFloat8e5m2, 0x7c)));
}

TEST(Element, EveryPatternOfSmallFormatsSurvivesARoundTrip) {
  for (const ncclDataType_t type : kSmallFloats) {
    const uint64_t patterns = uint64_t{1} << (8 * TypeBytes(type));
    for (uint64_t bits = 0; bits < patterns; ++bits) {
      const double value = DecodeFloat(type, bits);
      if (std::isnan(value)) continue;
      if (type == ncclFloat8e5m2 && std::isinf(value)) continue;
      ASSERT_EQ(EncodeFloat(type, value), bits) << TypeName(type) << " " << value;
    }
  }
}

TEST(Element, RoundsToTheNearestNeighbourAndTiesToEven) {
  for (const ncclDataType_t type : kSmallFloats) {
    const uint64_t largest = EncodeFloat(type, 440.0);
    for (uint64_t bits = 0; bits < largest; ++bits) {
      const double low = DecodeFloat(type, bits);
      const double high = DecodeFloat(type, bits + 1);
      const double middle = (low + high) / 2;
      ASSERT_EQ(EncodeFloat(type, std::nextafter(middle, low)), bits) << TypeName(type);
      ASSERT_EQ(EncodeFloat(type, std::nextafter(middle, high)), bits + 1) << TypeName(type);
      ASSERT_EQ(EncodeFloat(type, middle) & 1, 0u) << TypeName(type);
    }
  }
}

TEST(Element, AgreesWithTheCompilerForFloatAndDouble) {
  const double values[] = {0.0, 1.0, -1.5, 3.14159274101257324219, 1e-40, -1e38, 16777217.0};
  for (const double value : values) {
    const float narrow = static_cast<float>(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &narrow, sizeof bits);
    EXPECT_EQ(EncodeFloat(ncclFloat32, value), bits) << value;
    EXPECT_EQ(EncodeFormat(ncclFloat32, value), bits) << value;
    EXPECT_EQ(DecodeFloat(ncclFloat32, bits), static_cast<double>(narrow));
    uint64_t wide = 0;
    std::memcpy(&wide, &value, sizeof wide);
    EXPECT_EQ(EncodeFloat(ncclFloat64, value), wide) << value;
    EXPECT_EQ(EncodeFormat(ncclFloat64, value), wide) << value;
    EXPECT_EQ(DecodeFloat(ncclFloat64, wide), value);
  }
}

}  // namespace
}  // namespace axccl::harness
