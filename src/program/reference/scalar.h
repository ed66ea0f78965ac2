// Elements as numbers: how each data type is stored, and in which type of C++ it is computed. Floats of 16 bits are
// computed in float and rounded to nearest even. Pure functions, of the reference executor and of those who write
// constants: written from the formats' definitions, apart from the library's kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "src/base/types.h"

namespace axccl::program {

// A float of 16 bits with that many of them for the exponent.
template <int kExponentBits>
struct ShortFloat {
  static constexpr int kFraction = 15 - kExponentBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kLeast = 1 - kBias;  // exponent of normal numbers
  static constexpr uint16_t kInfinity = ((1 << kExponentBits) - 1) << kFraction;

  static float Load(uint16_t word) {
    const int exponent = word >> kFraction & ((1 << kExponentBits) - 1), fraction = word & ((1 << kFraction) - 1);
    float size = std::ldexp(static_cast<float>(fraction + (exponent == 0 ? 0 : 1 << kFraction)),
                            (exponent == 0 ? kLeast : exponent - kBias) - kFraction);
    if ((word & kInfinity) == kInfinity)
      size = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    return std::copysign(size, word >> 15 != 0 ? -1.0f : 1.0f);
  }
  // From double, so that what is exact there is rounded once.
  static uint16_t Store(double value) {
    const auto sign = static_cast<uint16_t>(std::signbit(value) ? 1 << 15 : 0);
    if (std::isnan(value)) return sign | kInfinity | 1 << (kFraction - 1);
    const double size = std::fabs(value);
    if (std::isinf(size)) return sign | kInfinity;
    if (size == 0) return sign;
    const int exponent = std::max(std::ilogb(size), kLeast);
    // To nearest even. A carry into the exponent is right, also into that of infinity.
    const auto digits = static_cast<int64_t>(std::nearbyint(std::ldexp(size, kFraction - exponent)));
    const int64_t word = (static_cast<int64_t>(exponent - kLeast) << kFraction) + digits;
    return static_cast<uint16_t>(sign | std::min<int64_t>(word, kInfinity));
  }
};

// Number: what elements are computed in. Load and Store of elements in memory.
template <class T, class StoredAs = T>
struct Scalar {
  using Number = T;
  static Number Load(const uint8_t* from) {
    StoredAs word;
    std::memcpy(&word, from, sizeof word);
    return static_cast<T>(word);
  }
  static void Store(Number number, uint8_t* to) {
    const auto word = static_cast<StoredAs>(number);
    std::memcpy(to, &word, sizeof word);
  }
};

template <int kExponentBits>
struct ShortScalar {
  using Number = float;
  static Number Load(const uint8_t* from) { return ShortFloat<kExponentBits>::Load(Scalar<uint16_t>::Load(from)); }
  static void Store(double number, uint8_t* to) {
    Scalar<uint16_t>::Store(ShortFloat<kExponentBits>::Store(number), to);
  }
};

// Calls visit(s) with a Scalar or ShortScalar for the type, which must be one of those that programs have.
template <class Visit>
decltype(auto) VisitScalar(DataType type, Visit&& visit) {
  switch (type) {
    case DataType::kInt8:
      return visit(Scalar<int8_t>());
    case DataType::kUint8:
      return visit(Scalar<uint8_t>());
    case DataType::kInt16:
      return visit(Scalar<int16_t>());
    case DataType::kUint16:
      return visit(Scalar<uint16_t>());
    case DataType::kInt32:
      return visit(Scalar<int32_t>());
    case DataType::kUint32:
      return visit(Scalar<uint32_t>());
    case DataType::kInt64:
      return visit(Scalar<int64_t>());
    case DataType::kUint64:
      return visit(Scalar<uint64_t>());
    case DataType::kFloat16:
      return visit(ShortScalar<5>());
    case DataType::kBfloat16:
      return visit(ShortScalar<8>());
    case DataType::kFloat64:
      return visit(Scalar<double>());
    case DataType::kBool:
      return visit(Scalar<bool, uint8_t>());
    default:
      return visit(Scalar<float>());
  }
}

}  // namespace axccl::program
