// The conversions of f16, bf16 and fp8 on every instruction set, exhaustively where possible: every code in both
// directions, every pair of fp8 codes under every combination, and a dense set of f32 values to each format.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/host/mover.h"
#include "tests/kernels/oracle.h"

namespace axccl::kernels {
namespace {

constexpr Combine kFloatCombines[] = {Combine::kSum, Combine::kProd, Combine::kMax, Combine::kMin};
constexpr DataType kSmallFloats[] = {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3,
                                     DataType::kFloat8E5M2};

// Reduces `src` (vectors of elements' bits) into one destination and compares every element with the oracle's.
void Check(int isa, DataType type, Combine combine, const std::vector<std::vector<uint8_t>>& src,
           const std::vector<Factor>& pre) {
  const size_t size = ElementSize(type);
  const size_t count = src[0].size() / size;
  OracleRequest oracle = {.type = type, .combine = combine, .src = {}, .pre = pre};
  for (const std::vector<uint8_t>& s : src) oracle.src.push_back(s.data());
  std::vector<uint8_t> result(src[0].size());
  void* dst[1] = {result.data()};
  ReduceRequest request = {.dst = dst,
                           .num_dst = 1,
                           .src = oracle.src.data(),
                           .num_src = static_cast<int>(src.size()),
                           .count = count,
                           .type = type,
                           .combine = combine};
  if (!pre.empty()) request.pre = pre.data();
  ReduceWithIsa(isa, request);
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(LoadElement(result.data(), i, size), Expected(oracle, i))
        << IsaName(isa) << " " << DataTypeName(type) << " combine " << static_cast<int>(combine) << " of "
        << LoadElement(src[0].data(), i, size) << " and " << (src.size() > 1 ? LoadElement(src[1].data(), i, size) : 0)
        << " factor " << (pre.empty() ? 1 : pre[0].f32);
  }
}

std::vector<uint8_t> EveryCode(DataType type) {
  const size_t size = ElementSize(type);
  const size_t num = size_t{1} << (8 * size);
  std::vector<uint8_t> codes(num * size);
  for (size_t i = 0; i < num; ++i) StoreElement(codes.data(), i, size, i);
  return codes;
}

TEST(RoundingTest, EveryCodeSurvivesAFactorOfOne) {
  for (DataType type : kSmallFloats) {
    for (int isa = 0; isa < NumIsas(); ++isa) {
      Check(isa, type, Combine::kSum, {EveryCode(type)}, {Factor{.f32 = 1.0f}});
      if (HasFatalFailure()) return;
    }
  }
}

// Distinguishes an exact f32 from one that merely rounds back to its code.
TEST(RoundingTest, EveryCodeAgainstRandomOnes) {
  for (DataType type : kSmallFloats) {
    const std::vector<uint8_t> codes = EveryCode(type);
    const size_t size = ElementSize(type);
    for (int round = 0; round < 4; ++round) {
      std::vector<uint8_t> other(codes.size());
      for (size_t i = 0; i < codes.size() / size; ++i) {
        StoreElement(other.data(), i, size, RandomElement(type, Random()));
      }
      for (int isa = 0; isa < NumIsas(); ++isa) {
        for (Combine combine : kFloatCombines) {
          Check(isa, type, combine, {codes, other}, {});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(RoundingTest, EveryPairOfFp8Codes) {
  for (DataType type : {DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    std::vector<uint8_t> a(65536);
    std::vector<uint8_t> b(65536);
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<uint8_t>(i >> 8);
      b[i] = static_cast<uint8_t>(i);
    }
    for (int isa = 0; isa < NumIsas(); ++isa) {
      for (Combine combine : kFloatCombines) {
        Check(isa, type, combine, {a, b}, {});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The boundaries between neighbouring codes, values just above and just below them, and the extremes of f32.
std::vector<float> Boundaries(DataType type) {
  std::vector<float> values = {0.0f,
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN(),
                               std::bit_cast<float>(0x7f800001u),
                               std::bit_cast<float>(0xffffffffu)};
  const uint32_t num_magnitudes = 1u << (8 * ElementSize(type) - 1);
  for (uint32_t code = 0; code + 1 < num_magnitudes; ++code) {
    const double low = Decode(type, code);
    const double high = Decode(type, code + 1);
    if (std::isnan(low) || std::isinf(low)) break;
    // Past the last finite code, the tie is half a step beyond it.
    const double step = std::isfinite(high) ? high - low : low - Decode(type, code - 1);
    const float tie = static_cast<float>(low + step / 2);
    values.insert(values.end(), {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, INFINITY)});
  }
  for (int i = 0; i < 20000; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(Random()())));
  const size_t num = values.size();
  for (size_t i = 0; i < num; ++i) values.push_back(-values[i]);
  return values;
}

// An f32 reaches the rounding unchanged as the factor of a source whose value is 1. Other sources of 2^k and 0 put
// neighbours with other exponents into the same vector.
TEST(RoundingTest, DenseF32Down) {
  for (DataType type : kSmallFloats) {
    const size_t size = ElementSize(type);
    constexpr size_t kCount = 67;  // a vector of any kernel, and a remainder
    std::vector<uint8_t> ones(kCount * size);
    for (size_t i = 0; i < kCount; ++i) {
      const float value = i % 4 == 3 ? 0.0f : std::ldexp(1.0f, static_cast<int>(i % 4) * 3 - 3);
      StoreElement(ones.data(), i, size, Encode(type, i % 5 == 0 ? 1.0f : value));
    }
    int isa = 0;
    for (float value : Boundaries(type)) {
      // If there are too many values for all instruction sets, the sets take turns.
      const int first = size == 1 ? 0 : isa++ % NumIsas();
      const int last = size == 1 ? NumIsas() - 1 : first;
      for (int i = first; i <= last; ++i) Check(i, type, Combine::kSum, {ones}, {Factor{.f32 = value}});
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace axccl::kernels
