#include "src/program/element.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "src/program/kinds.h"
#include "tests/harness/random.h"

namespace axccl::program {
namespace {

// The text of an element with these bits.
std::string Text(DataType type, uint64_t bits) {
  uint8_t bytes[8];
  std::memcpy(bytes, &bits, sizeof bytes);  // little-endian machines only, as are all that run the tests
  return ElementText(type, bytes);
}

bool Accepts(DataType type, const std::string& text) {
  uint8_t bytes[8];
  return ParseElement(type, text, bytes);
}

TEST(ElementTest, TextsAreTheShortest) {
  EXPECT_EQ(Text(DataType::kFloat32, 0x3dcccccd), "0.1");
  EXPECT_EQ(Text(DataType::kFloat32, 0x80000000), "-0");
  EXPECT_EQ(Text(DataType::kFloat32, 0xce6e6b28), "-1e+09");
  EXPECT_EQ(Text(DataType::kFloat32, 1), "1e-45");
  EXPECT_EQ(Text(DataType::kFloat32, 0x7fc00000), "0x7fc00000");
  EXPECT_EQ(Text(DataType::kFloat64, 0xfff0000000000000), "0xfff0000000000000");
  EXPECT_EQ(Text(DataType::kFloat64, 0x3fb999999999999a), "0.1");
  EXPECT_EQ(Text(DataType::kFloat16, 0x3c00), "1");
  EXPECT_EQ(Text(DataType::kFloat16, 0x7bff), "65504");
  EXPECT_EQ(Text(DataType::kFloat16, 0x0001), "5.9604645e-08");
  EXPECT_EQ(Text(DataType::kFloat16, 0xfc00), "0xfc00");
  EXPECT_EQ(Text(DataType::kBfloat16, 0x4049), "3.140625");
  EXPECT_EQ(Text(DataType::kBool, 1), "true");
  EXPECT_EQ(Text(DataType::kInt8, 0x80), "-128");
  EXPECT_EQ(Text(DataType::kUint8, 0x80), "128");
  EXPECT_EQ(Text(DataType::kInt64, 1ull << 63), "-9223372036854775808");
  EXPECT_EQ(Text(DataType::kUint64, ~0ull), "18446744073709551615");
}

TEST(ElementTest, OtherSpellingsAreRefused) {
  for (const char* text :
       {"",           " 1",          "1 ",          "+1",  "01",   "1.0",   "1e9",         "0.10",
        ".1",         "1.",          "inf",         "nan", "1e39", "1e-60", "x",           "0x7FC00000",
        "0x3f800000", "0x07fc00000", "0x17fc00000", "0x",  "0x-1", "true",  "0.1000000001"})
    EXPECT_FALSE(Accepts(DataType::kFloat32, text)) << text;
  for (const char* text : {"0.1", "65536", "1e-08", "0x3c00", "0x7c000"})
    EXPECT_FALSE(Accepts(DataType::kFloat16, text)) << text;
  EXPECT_FALSE(Accepts(DataType::kBfloat16, "0.1"));
  for (const char* text : {"128", "-129", "-0", "0x7f", "1.5", "00"})
    EXPECT_FALSE(Accepts(DataType::kInt8, text)) << text;
  for (const char* text : {"256", "-1", "18446744073709551617"}) EXPECT_FALSE(Accepts(DataType::kUint8, text)) << text;
  EXPECT_FALSE(Accepts(DataType::kUint64, "18446744073709551616"));
  for (const char* text : {"0", "1", "True", ""}) EXPECT_FALSE(Accepts(DataType::kBool, text)) << text;
}

// Every element of up to 16 bits, and some of all others.
TEST(ElementTest, BytesComeBack) {
  harness::Random random(harness::Seed());
  for (int i = 0; i < kNumDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    if (NameOf(type).empty()) continue;
    const size_t size = ElementSize(type);
    const uint64_t rounds = type == DataType::kBool ? 2 : size == 1 ? 256 : 65536;
    for (uint64_t round = 0; round < rounds; ++round) {
      const uint64_t bits = size <= 2 ? round : random.Next();
      uint8_t bytes[8] = {}, again[8] = {};
      std::memcpy(bytes, &bits, size);
      const std::string text = ElementText(type, bytes);
      ASSERT_TRUE(ParseElement(type, text, again)) << NameOf(type) << " " << text << ", seed " << harness::Seed();
      ASSERT_EQ(std::memcmp(bytes, again, size), 0) << NameOf(type) << " " << text << ", seed " << harness::Seed();
    }
  }
}

}  // namespace
}  // namespace axccl::program
