// Narrow floating-point formats: exact values, and one correct rounding from double in every direction of PTX.
#pragma once

#include <bit>
#include <cstdint>

namespace softgpu::engine {

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp, kAway };

struct FloatFormat {
  int exponent_bits, mantissa_bits;
  uint32_t largest;   // bits of the largest finite value
  uint32_t infinity;  // the result of an overflow; the NaN if there is no infinity
  uint32_t nan;       // the result of NaNs

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
};

inline constexpr FloatFormat kHalf = {5, 10, 0x7bff, 0x7c00, 0x7fff};
inline constexpr FloatFormat kBfloat = {8, 7, 0x7f7f, 0x7f80, 0x7fff};
inline constexpr FloatFormat kE4m3 = {4, 3, 0x7e, 0x7f, 0x7f};
inline constexpr FloatFormat kE5m2 = {5, 2, 0x7b, 0x7c, 0x7f};
inline constexpr FloatFormat kSingle = {8, 23, 0x7f7fffff, 0x7f800000, 0x7fffffff};
// The upper 19 bits of an f32.
inline constexpr FloatFormat kTf32 = {8, 10, 0x3fbff, 0x3fc00, 0x3ffff};

// With `finite`, a value that would overflow becomes the largest finite value, infinities too.
uint32_t RoundTo(const FloatFormat& format, double value, Rounding rounding, bool finite = false);
double ValueOf(const FloatFormat& format, uint32_t bits);

// These two must be fast.
inline float HalfToFloat(uint16_t half) {
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fff) << 13;
  uint32_t bits = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  if ((half & 0x7c00) == 0x7c00) bits |= 0x7f800000;
  return std::bit_cast<float>(bits | static_cast<uint32_t>(half & 0x8000) << 16);
}
inline float BfloatToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
uint16_t FloatToHalf(float value);
inline uint16_t FloatToBfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (value != value) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// a * b + c without rounding except of the last bit, which is set if bits were lost: rounding the result to a format of
// at most 24 bits is then as good as rounding the exact value. For a, b and c of such formats with products that fit.
double FusedToOdd(double a, double b, double c);

}  // namespace softgpu::engine
