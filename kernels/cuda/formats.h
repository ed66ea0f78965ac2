// Element formats on the device: how the 16 bytes that a thread processes at a time become values, and back.
//
// The arithmetic contract is that of kernels/host/mover.h, to the bit: integers wrap, small floats are computed in f32
// and rounded once to nearest even, every NaN of a result is the canonical one, fp8 saturates. A format F has: Lane
// (the type of the arithmetic), kLanes (lanes of a Raw), kBytes (of an element), kIsFloat, Up(raw, i) -> the i-th lane,
// Down(lane, i, &raw), Combined<Op>(a, b), Scaled(lane, factor); small floats have Rounded. Pure functions.
#pragma once

#include <cstdint>

#include "kernels/cuda/primitives.h"
#include "src/base/types.h"

namespace axccl::kernels::cuda {

template <class To, class From>
AXCCL_DEVICE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

AXCCL_DEVICE uint64_t DoubleWord(const Raw& raw, int i) {
  return uint64_t{raw.word[2 * i]} | uint64_t{raw.word[2 * i + 1]} << 32;
}
AXCCL_DEVICE void SetDoubleWord(uint64_t value, int i, Raw* raw) {
  raw->word[2 * i] = static_cast<uint32_t>(value);
  raw->word[2 * i + 1] = static_cast<uint32_t>(value >> 32);
}
// The i-th element of kBytes <= 4.
template <int kBytes>
AXCCL_DEVICE uint32_t Code(const Raw& raw, int i) {
  constexpr int kPerWord = 4 / kBytes, kBits = 8 * kBytes;
  return raw.word[i / kPerWord] >> (i % kPerWord * kBits) & (~0u >> (32 - kBits));
}
// Elements must be set in order: the first of a word clears the rest of it.
template <int kBytes>
AXCCL_DEVICE void SetCode(uint32_t code, int i, Raw* raw) {
  constexpr int kPerWord = 4 / kBytes, kBits = 8 * kBytes;
  uint32_t& word = raw->word[i / kPerWord];
  word = (i % kPerWord == 0 ? 0u : word) | code << (i % kPerWord * kBits);
}

AXCCL_DEVICE bool IsSigned(DataType type) {
  return type == DataType::kInt8 || type == DataType::kInt16 || type == DataType::kInt32 || type == DataType::kInt64;
}

// value / divisor, toward zero; the caller extends signed values to 64 bits.
AXCCL_DEVICE_CALL inline uint64_t Quotient(uint64_t value, uint64_t divisor, bool is_signed) {
  const bool negative = is_signed && static_cast<int64_t>(value) < 0;
  const uint64_t quotient = (negative ? 0 - value : value) / divisor;
  return negative ? 0 - quotient : quotient;
}

// Divides every integer of `bytes` bytes of a piece by `divisor`.
AXCCL_DEVICE_CALL inline Raw Quotients(Raw raw, uint64_t divisor, uint32_t bytes, bool is_signed) {
  const uint64_t low = DoubleWord(raw, 0), high = DoubleWord(raw, 1);
  const uint32_t unused = 64 - 8 * bytes;  // bits
  uint64_t quotients[2] = {0, 0};
#pragma unroll 1
  for (uint32_t at = 0; at < 16; at += bytes) {
    const uint64_t upper = (at < 8 ? low : high) >> (8 * (at % 8)) << unused;
    const uint64_t value = is_signed ? static_cast<uint64_t>(static_cast<int64_t>(upper) >> unused) : upper >> unused;
    const uint64_t quotient = Quotient(value, divisor, is_signed) << unused >> unused << (8 * (at % 8));
    quotients[0] |= at < 8 ? quotient : 0;
    quotients[1] |= at < 8 ? 0 : quotient;
  }
  SetDoubleWord(quotients[0], 0, &raw);
  SetDoubleWord(quotients[1], 1, &raw);
  return raw;
}

// Integers of 32 and 64 bits.
template <class T>
struct Integer {
  using Lane = T;
  static constexpr int kBytes = sizeof(T), kLanes = 16 / kBytes;
  static constexpr bool kIsFloat = false;

  static AXCCL_DEVICE Lane Up(const Raw& raw, int i) {
    if constexpr (kBytes == 8) return static_cast<T>(DoubleWord(raw, i));
    return static_cast<T>(raw.word[i]);
  }
  static AXCCL_DEVICE void Down(Lane lane, int i, Raw* raw) {
    if constexpr (kBytes == 8) {
      SetDoubleWord(static_cast<uint64_t>(lane), i, raw);
    } else {
      raw->word[i] = static_cast<uint32_t>(lane);
    }
  }
  template <class Op>
  static AXCCL_DEVICE Lane Combined(Lane a, Lane b) {
    return Op::template Of<T>(a, b);
  }
  static AXCCL_DEVICE Lane Scaled(Lane lane, const Factor& factor) {
    return static_cast<T>(static_cast<uint64_t>(lane) * factor.u64);
  }
};

// Integers of 8 and 16 bits: a lane is a word of several.
template <class T>
struct PackedInteger {
  using Lane = uint32_t;
  static constexpr int kBytes = sizeof(T), kLanes = 4;
  static constexpr int kBits = 8 * kBytes;
  static constexpr uint32_t kMask = (1u << kBits) - 1;
  static constexpr bool kIsFloat = false;

  static AXCCL_DEVICE Lane Up(const Raw& raw, int i) { return raw.word[i]; }
  static AXCCL_DEVICE void Down(Lane lane, int i, Raw* raw) { raw->word[i] = lane; }
  template <class Op>
  static AXCCL_DEVICE Lane Combined(Lane a, Lane b) {
    return Each([&](int shift) { return Op::template Of<T>(static_cast<T>(a >> shift), static_cast<T>(b >> shift)); });
  }
  static AXCCL_DEVICE Lane Scaled(Lane lane, const Factor& factor) {
    return Each([&](int shift) { return (lane >> shift) * static_cast<uint32_t>(factor.u64); });
  }

 private:
  template <class Function>
  static AXCCL_DEVICE Lane Each(const Function& function) {
    Lane lane = 0;
#pragma unroll
    for (int shift = 0; shift < 32; shift += kBits) lane |= (static_cast<uint32_t>(function(shift)) & kMask) << shift;
    return lane;
  }
};

struct Float64 {
  using Lane = double;
  static constexpr int kBytes = 8, kLanes = 2;
  static constexpr bool kIsFloat = true;

  static AXCCL_DEVICE Lane Up(const Raw& raw, int i) { return BitCast<double>(DoubleWord(raw, i)); }
  static AXCCL_DEVICE void Down(Lane lane, int i, Raw* raw) {
    SetDoubleWord(lane != lane ? 0x7ff8000000000000u : BitCast<uint64_t>(lane), i, raw);
  }
  template <class Op>
  static AXCCL_DEVICE Lane Combined(Lane a, Lane b) {
    return Op::template Of<double>(a, b);
  }
  static AXCCL_DEVICE Lane Scaled(Lane lane, const Factor& factor) { return lane * factor.f64; }
};

// Floats whose arithmetic is done in f32: Format converts one at a time.
template <class Format>
struct InFloat32 {
  using Lane = float;
  static constexpr int kBytes = Format::kBytes, kLanes = 16 / kBytes;
  static constexpr bool kIsFloat = true;

  static AXCCL_DEVICE Lane Up(const Raw& raw, int i) { return Format::ToFloat(Code<kBytes>(raw, i)); }
  static AXCCL_DEVICE void Down(Lane lane, int i, Raw* raw) { SetCode<kBytes>(CodeOf(lane), i, raw); }
  template <class Op>
  static AXCCL_DEVICE Lane Combined(Lane a, Lane b) {
    return Op::template Of<float>(a, b);
  }
  static AXCCL_DEVICE Lane Scaled(Lane lane, const Factor& factor) { return lane * factor.f32; }
  // The value after storing and loading it.
  static AXCCL_DEVICE Lane Rounded(Lane lane) { return Format::ToFloat(CodeOf(lane)); }

 private:
  static AXCCL_DEVICE uint32_t CodeOf(Lane lane) { return lane != lane ? Format::kNan : Format::FromFloat(lane); }
};

struct Binary32 {
  static constexpr int kBytes = 4;
  static constexpr uint32_t kNan = 0x7fc00000u;
  static AXCCL_DEVICE float ToFloat(uint32_t code) { return BitCast<float>(code); }
  static AXCCL_DEVICE uint32_t FromFloat(float value) { return BitCast<uint32_t>(value); }
};

struct Brain16 {
  static constexpr int kBytes = 2;
  static constexpr uint32_t kNan = 0x7fc0;
  static AXCCL_DEVICE float ToFloat(uint32_t code) { return BitCast<float>(code << 16); }
  static AXCCL_DEVICE uint32_t FromFloat(float value) {
    const auto bits = BitCast<uint32_t>(value);
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  }
};

struct Binary16 {
  static constexpr int kBytes = 2;
  static constexpr uint32_t kNan = 0x7e00;
  static AXCCL_DEVICE float ToFloat(uint32_t code) { return HalfToFloat(code); }
  static AXCCL_DEVICE uint32_t FromFloat(float value) { return FloatToHalf(value); }
};

// Small floats by integer arithmetic, for devices (and fibers) without instructions for them.
template <int kExponentBits, int kMantissaBits>
struct SmallFloat {
  static constexpr uint32_t kBias = (1u << (kExponentBits - 1)) - 1;
  static constexpr int kDropped = 23 - kMantissaBits;             // additional mantissa bits of f32
  static constexpr uint32_t kRebias = (127u - kBias) << 23;       // f32 exponent - ours, in place
  static constexpr uint32_t kLeastNormal = kRebias + (1u << 23);  // as f32 bits
  // The f32 whose last mantissa bit weighs as much as our smallest subnormal: adding it rounds to that grid.
  static constexpr uint32_t kGrid = (127u - kBias + 1 + kDropped) << 23;
  static constexpr uint32_t kSign = 1u << (kExponentBits + kMantissaBits);
  static constexpr int kSignShift = 31 - kExponentBits - kMantissaBits;

  // Widens any finite code to f32 bits without the sign.
  static AXCCL_DEVICE uint32_t Widened(uint32_t code) {
    const uint32_t normal = ((code & (kSign - 1)) << kDropped) + kRebias;
    // A subnormal is read as if it had an implicit one, which is then subtracted.
    const float subnormal = BitCast<float>(normal + (1u << 23)) - BitCast<float>(kLeastNormal);
    return normal < kLeastNormal ? BitCast<uint32_t>(subnormal) : normal;
  }
  // f32 bits to a code, rounded to nearest even; magnitudes above `limit` (f32 bits) become it.
  static AXCCL_DEVICE uint32_t Narrowed(uint32_t bits, uint32_t limit) {
    uint32_t magnitude = bits & 0x7fffffffu;
    magnitude = magnitude > limit ? limit : magnitude;
    const uint32_t half = ((1u << (kDropped - 1)) - 1) + (magnitude >> kDropped & 1u);
    const uint32_t normal = (magnitude + half - kRebias) >> kDropped;
    const uint32_t subnormal = BitCast<uint32_t>(BitCast<float>(magnitude) + BitCast<float>(kGrid)) - kGrid;
    return (magnitude < kLeastNormal ? subnormal : normal) | (bits >> kSignShift & kSign);
  }
};

// OCP e4m3fn has no infinity, e5m2 is the upper byte of an f16. Both saturate.
template <bool kE4M3>
struct Float8 {
  static constexpr int kBytes = 1;
  static constexpr uint32_t kNan = 0x7f;
  static constexpr uint32_t kLargest = kE4M3 ? 0x43e00000u : 0x47600000u;  // 448, 57344 as f32

#if defined(AXCCL_CUDA_HAS_FLOAT8)
  static AXCCL_DEVICE float ToFloat(uint32_t code) { return Float8ToFloat<kE4M3>(code); }
  static AXCCL_DEVICE uint32_t FromFloat(float value) { return FloatToFloat8<kE4M3>(value); }
#else
  using Shape = SmallFloat<kE4M3 ? 4 : 5, kE4M3 ? 3 : 2>;
  static AXCCL_DEVICE float ToFloat(uint32_t code) {
    if constexpr (!kE4M3) return HalfToFloat(code << 8);
    const uint32_t finite = Shape::Widened(code);
    const uint32_t magnitude = finite > kLargest ? Binary32::kNan : finite;
    return BitCast<float>(magnitude | (code & 0x80u) << 24);
  }
  static AXCCL_DEVICE uint32_t FromFloat(float value) { return Shape::Narrowed(BitCast<uint32_t>(value), kLargest); }
#endif
};

using Float32 = InFloat32<Binary32>;
using Float16 = InFloat32<Binary16>;
using Bfloat16 = InFloat32<Brain16>;
using Float8E4M3 = InFloat32<Float8<true>>;
using Float8E5M2 = InFloat32<Float8<false>>;

}  // namespace axccl::kernels::cuda
