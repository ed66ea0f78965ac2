// The data patterns: exact in any order, sensitive to any misplacement, and counted correctly.

#include "perf/common/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "nccl.h"
#include "perf/common/types.h"

namespace axccl::perf {
namespace {

uint32_t Seed() {
  const char* text = std::getenv("AXCCL_TEST_SEED");
  uint32_t seed = text ? static_cast<uint32_t>(std::strtoul(text, nullptr, 0)) : std::random_device()();
  std::printf("AXCCL_TEST_SEED=%u\n", seed);
  return seed;
}

uint64_t ElementAt(const std::vector<char>& data, int type, size_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, data.data() + i * ElementBytes(type), ElementBytes(type));
  return bits;
}

std::vector<char> Filled(const Sequence& s, size_t first, size_t count) {
  std::vector<char> data(count * ElementBytes(s.type));
  FillSequence(s, first, count, data.data());
  return data;
}

TEST(Numbers, EverySmallFloatSurvivesDecodingAndEncoding) {
  for (int type : {ncclFloat16, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2}) {
    for (uint64_t bits = 0; bits < uint64_t{1} << FormatOf(type).bits; ++bits) {
      double value = DecodeFloat(type, bits);
      if (!std::isfinite(value)) continue;
      ASSERT_EQ(EncodeFloat(type, value), bits) << DataTypeName(type);
    }
  }
}

TEST(Numbers, FloatAndDoubleAreTheProcessorsOwn) {
  std::mt19937_64 random(Seed());
  for (int i = 0; i < 100000; ++i) {
    uint64_t bits = random();
    double d;
    std::memcpy(&d, &bits, sizeof(d));
    if (std::isfinite(d)) {
      ASSERT_EQ(DecodeFloat(ncclFloat64, bits), d);
    }
    uint32_t low = static_cast<uint32_t>(bits);
    float f;
    std::memcpy(&f, &low, sizeof(f));
    if (!std::isfinite(f)) continue;
    ASSERT_EQ(DecodeFloat(ncclFloat32, low), static_cast<double>(f));
    ASSERT_EQ(EncodeFloat(ncclFloat32, static_cast<double>(f)), low);
  }
}

TEST(Numbers, KnownValues) {
  EXPECT_EQ(EncodeFloat(ncclFloat16, 1.0), 0x3c00u);
  EXPECT_EQ(EncodeFloat(ncclBfloat16, -2.0), 0xc000u);
  EXPECT_EQ(DecodeFloat(ncclFloat8e4m3, 0x7e), 448.0);
  EXPECT_TRUE(std::isnan(DecodeFloat(ncclFloat8e4m3, 0x7f)));
  EXPECT_EQ(DecodeFloat(ncclFloat8e5m2, 0x7b), 57344.0);
  EXPECT_TRUE(std::isinf(DecodeFloat(ncclFloat8e5m2, 0x7c)));
  EXPECT_EQ(UlpAt(ncclFloat16, 1.0), std::ldexp(1.0, -10));
}

double Apply(int op, double a, double b) {
  switch (op) {
    case kProd:
      return a * b;
    case kMax:
      return std::max(a, b);
    case kMin:
      return std::min(a, b);
    default:
      return a + b;
  }
}

// Folds the ranks' elements in a random order, rounding to the type after every step.
double FoldRounded(int type, int op, std::vector<double> x, std::mt19937_64* random) {
  std::shuffle(x.begin(), x.end(), *random);
  double result = x[0];
  for (size_t i = 1; i < x.size(); ++i) {
    result = DecodeFloat(type, EncodeFloat(type, Apply(op, result, x[i])));
  }
  return result;
}

// Every order gives the expected bits, although every step rounds: with these inputs all results are exact.
TEST(Data, ReductionsOfFloatsAreExactInAnyOrder) {
  std::mt19937_64 random(Seed());
  constexpr size_t kCount = 200;
  for (int type : {ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2}) {
    for (int op : {kSum, kProd, kMax, kMin, kMulSum}) {
      for (int ranks : {1, 2, 3, 5, 8, 17, 64}) {
        std::vector<std::vector<char>> inputs;
        for (int r = 0; r < ranks; ++r) inputs.push_back(Filled({type, op, 7, ranks, r}, 0, kCount));
        std::vector<char> want = Filled({type, op, 7, ranks, kReduced}, 0, kCount);
        for (size_t i = 0; i < kCount; ++i) {
          std::vector<double> x;
          for (int r = 0; r < ranks; ++r) {
            double scalar = op == kMulSum ? MulSumScalar(r) : 1;
            x.push_back(scalar * DecodeFloat(type, ElementAt(inputs[static_cast<size_t>(r)], type, i)));
          }
          ASSERT_EQ(FoldRounded(type, op, x, &random), DecodeFloat(type, ElementAt(want, type, i)))
              << DataTypeName(type) << " " << OpName(op) << " ranks " << ranks << " element " << i;
        }
      }
    }
  }
}

// NCCL may scale by the rounded 1/n before the sum, or divide after it: both stay within the tolerance.
TEST(Data, AveragesOfFloatsAcceptBothPlacesOfTheDivision) {
  std::mt19937_64 random(Seed());
  constexpr size_t kCount = 200;
  for (int type : {ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2}) {
    for (int ranks : {1, 2, 3, 4, 6, 7, 8, 13, 64}) {
      std::vector<char> before(kCount * ElementBytes(type));
      std::vector<char> after(before.size());
      double scale = DecodeFloat(type, EncodeFloat(type, 1.0 / ranks));
      for (size_t i = 0; i < kCount; ++i) {
        std::vector<double> x;
        std::vector<double> scaled;
        for (int r = 0; r < ranks; ++r) {
          std::vector<char> one = Filled({type, kAvg, 3, ranks, r}, i, 1);
          x.push_back(DecodeFloat(type, ElementAt(one, type, 0)));
          scaled.push_back(DecodeFloat(type, EncodeFloat(type, x.back() * scale)));
        }
        uint64_t early = EncodeFloat(type, FoldRounded(type, kSum, scaled, &random));
        uint64_t late = EncodeFloat(type, FoldRounded(type, kSum, x, &random) / ranks);
        std::memcpy(before.data() + i * ElementBytes(type), &early, ElementBytes(type));
        std::memcpy(after.data() + i * ElementBytes(type), &late, ElementBytes(type));
      }
      Sequence want{type, kAvg, 3, ranks, kReduced};
      EXPECT_EQ(CountWrong(want, 0, kCount, before.data()), 0u) << DataTypeName(type) << " ranks " << ranks;
      EXPECT_EQ(CountWrong(want, 0, kCount, after.data()), 0u) << DataTypeName(type) << " ranks " << ranks;
    }
  }
}

TEST(Data, IntegerSumsWrapAndAveragesTruncate) {
  constexpr int kRanks = 3;
  constexpr size_t kCount = 500;
  std::vector<char> sum = Filled({ncclInt8, kSum, 1, kRanks, kReduced}, 0, kCount);
  std::vector<char> average = Filled({ncclInt32, kAvg, 1, kRanks, kReduced}, 0, kCount);
  for (size_t i = 0; i < kCount; ++i) {
    uint8_t byte = 0;
    int64_t total = 0;
    for (int r = 0; r < kRanks; ++r) {
      byte = static_cast<uint8_t>(byte + ElementAt(Filled({ncclInt8, kSum, 1, kRanks, r}, i, 1), ncclInt8, 0));
      total += static_cast<int32_t>(ElementAt(Filled({ncclInt32, kAvg, 1, kRanks, r}, i, 1), ncclInt32, 0));
    }
    EXPECT_EQ(ElementAt(sum, ncclInt8, i), byte);
    EXPECT_EQ(static_cast<int32_t>(ElementAt(average, ncclInt32, i)), total / kRanks);
  }
}

TEST(Data, LongBuffersRepeatThePeriodAndCountEveryDifference) {
  std::mt19937_64 random(Seed());
  for (int type = 0; type < kNumDataTypes; ++type) {
    Sequence s{type, kMove, 5, 2, 1};
    size_t first = random() % 100000;
    size_t count = 2 * kPeriod + 17;
    std::vector<char> data = Filled(s, first, count);
    ASSERT_EQ(CountWrong(s, first, count, data.data()), 0u) << DataTypeName(type);
    std::vector<size_t> places = {0, kPeriod - 1, kPeriod, count - 1};
    for (size_t place : places) data[place * ElementBytes(type)] ^= 1;
    EXPECT_EQ(CountWrong(s, first, count, data.data()), places.size()) << DataTypeName(type);
  }
}

// The typical mistakes of collectives: another rank's data, an old run's data, data one element or one power of two
// off.
TEST(Data, MisplacedDataIsFound) {
  constexpr size_t kCount = 4096;
  Sequence want{ncclFloat32, kMove, 9, 4, 2};
  auto wrong = [&](const Sequence& s, size_t first) {
    std::vector<char> data = Filled(s, first, kCount);
    return CountWrong(want, 0, kCount, data.data());
  };
  EXPECT_EQ(wrong(want, 0), 0u);
  EXPECT_GT(wrong({ncclFloat32, kMove, 9, 4, 1}, 0), kCount * 9 / 10);
  EXPECT_GT(wrong({ncclFloat32, kMove, 8, 4, 2}, 0), kCount * 9 / 10);
  for (size_t shift = 1; shift <= size_t{1} << 30; shift *= 2) EXPECT_GT(wrong(want, shift), kCount * 9 / 10) << shift;
}

TEST(Data, AMissingRankIsFoundInEveryReduction) {
  constexpr size_t kCount = 2000;
  for (int type = 0; type < kNumDataTypes; ++type) {
    for (int op : {kSum, kAvg, kMulSum}) {
      std::vector<char> one = Filled({type, op, 4, 2, 0}, 0, kCount);
      EXPECT_GT(CountWrong({type, op, 4, 2, kReduced}, 0, kCount, one.data()), kCount / 4)
          << DataTypeName(type) << " " << OpName(op);
    }
  }
}

TEST(Data, NanAndSignOfZero) {
  Sequence s{ncclFloat32, kSum, 1, 2, kReduced};
  std::vector<char> data = Filled(s, 0, 1);
  float nan = std::nanf("");
  std::memcpy(data.data(), &nan, sizeof(nan));
  EXPECT_EQ(CountWrong(s, 0, 1, data.data()), 1u);
}

}  // namespace
}  // namespace axccl::perf
