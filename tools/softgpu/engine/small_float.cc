#include "tools/softgpu/engine/small_float.h"

#include <cmath>

namespace softgpu::engine {
namespace {

// Whether `whole` + `fraction` (0 <= fraction < 1) is rounded up in magnitude.
bool RoundsUp(uint64_t whole, double fraction, bool negative, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return fraction > 0.5 || (fraction == 0.5 && (whole & 1) != 0);
    case Rounding::kAway:
      return fraction >= 0.5;
    case Rounding::kDown:
      return negative && fraction > 0;
    case Rounding::kUp:
      return !negative && fraction > 0;
    case Rounding::kZero:
      return false;
  }
  return false;
}

}  // namespace

uint32_t RoundTo(const FloatFormat& format, double value, Rounding rounding, bool finite) {
  if (std::isnan(value)) return format.nan;
  const bool negative = std::signbit(value);
  const uint32_t sign = negative ? format.sign() : 0;
  if (std::isinf(value)) return sign | (finite ? format.largest : format.infinity);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int smallest = 1 - format.bias();
  const int exponent = std::ilogb(magnitude);
  const bool subnormal = exponent < smallest;
  const double scaled = std::ldexp(magnitude, format.mantissa_bits - (subnormal ? smallest : exponent));
  uint64_t whole = static_cast<uint64_t>(scaled);
  if (RoundsUp(whole, scaled - static_cast<double>(whole), negative, rounding)) ++whole;
  // A carry out of the mantissa correctly increments the exponent.
  uint64_t bits = whole;
  if (!subnormal) {
    bits += static_cast<uint64_t>(exponent - smallest) << format.mantissa_bits;
  }
  if (bits <= format.largest) return sign | static_cast<uint32_t>(bits);
  const bool inward = rounding == Rounding::kZero || (rounding == Rounding::kDown && !negative) ||
                      (rounding == Rounding::kUp && negative);
  return sign | (finite || inward ? format.largest : format.infinity);
}

double ValueOf(const FloatFormat& format, uint32_t bits) {
  const uint32_t magnitude = bits & (format.sign() - 1);
  const double sign = (bits & format.sign()) != 0 ? -1 : 1;
  if (magnitude > format.largest) {
    return magnitude == format.infinity && format.infinity != format.nan ? sign * HUGE_VAL : std::nan("");
  }
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const double mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias() - format.mantissa_bits);
  return sign * std::ldexp(mantissa + (1u << format.mantissa_bits), exponent - format.bias() - format.mantissa_bits);
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x47800000) return sign | 0x7c00;  // 65536 and more
  if (magnitude < 0x38800000) {
    // Adding a number whose last place is the smallest half makes the machine round.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000));
  }
  const uint32_t rebiased = magnitude - (112u << 23);
  return static_cast<uint16_t>(sign | ((rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13));
}

double FusedToOdd(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  // The exact amount that the sum lost.
  const double c_part = sum - product;
  const double lost = (product - (sum - c_part)) + (c - c_part);
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  if (lost == 0 || (bits & 1) != 0) return sum;
  // Truncate towards the exact value, then mark that it lies beyond.
  const bool away = (lost > 0) == (sum > 0);
  return std::bit_cast<double>(away ? bits + 1 : bits - 1);
}

}  // namespace softgpu::engine
