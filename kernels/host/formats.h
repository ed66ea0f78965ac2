// Element formats: how raw bits become vectors of the type in which the arithmetic is done, and back.
//
// A format F has: Lane (the arithmetic type), kIsFloat, kPacks (arithmetic vectors per raw vector), FactorOf(Factor),
// Up(raw) -> Pack, Down(pack) -> raw. Down rounds once to nearest even (mover.cc and box.cc give the thread the default
// mode) and turns every NaN into the format's canonical one; otherwise its payload would depend on which operand the
// compiler put first. fp8 saturates. Each format decides which element goes into which lane of a pack, because the
// arithmetic is element-wise and Down undoes what Up did.
//
// Small floats are processed in 32-bit words (a word is two 16-bit or four 8-bit elements): no shuffles, and the same
// code for every vector width. All conversions are exact integer or float operations, so every ISA gives the same bits.
// Internal to the per-ISA compilations, see vector.h. Pure functions.
#pragma once

#include "kernels/host/vector.h"
#include "src/base/types.h"

namespace axccl::kernels::AXCCL_KERNELS_ISA {

template <class Lane, int kBytes, int kPacks>
struct Pack {
  Vector<Lane, kBytes> v[kPacks];
};

inline constexpr uint32_t kSignBit = 0x80000000u;
inline constexpr uint32_t kF32Infinity = 0x7f800000u;
inline constexpr uint32_t kF32Nan = 0x7fc00000u;

template <int kBytes>
using F32s = Vector<float, kBytes>;
template <int kBytes>
using U32s = Vector<uint32_t, kBytes>;
template <int kBytes>
using U16s = Vector<uint16_t, kBytes>;
template <int kBytes>
using I16s = Vector<int16_t, kBytes>;
// For comparing bits whose sign is clear: x86 before AVX-512 has no unsigned comparison.
template <int kBytes>
using I32s = Vector<int32_t, kBytes>;

// Elements whose bits are their value: integers in their own width, with wrapping arithmetic (-fwrapv).
template <class LaneType>
struct Integer {
  using Lane = LaneType;
  static constexpr bool kIsFloat = false;
  static constexpr int kPacks = 1;
  static AXCCL_INLINE Lane FactorOf(const Factor& factor) { return static_cast<Lane>(factor.u64); }
  template <int kBytes>
  static AXCCL_INLINE Pack<Lane, kBytes, 1> Up(Raw<kBytes> raw) {
    return {{(Vector<Lane, kBytes>)raw}};
  }
  template <int kBytes>
  static AXCCL_INLINE Raw<kBytes> Down(const Pack<Lane, kBytes, 1>& pack) {
    return (Raw<kBytes>)pack.v[0];
  }
};

// Elements that only count as zero or not: converted to 1 (any other value) and 0, in their own width.
template <class LaneType>
struct Truth {
  using Lane = LaneType;
  static constexpr bool kIsFloat = false;
  static constexpr int kPacks = 1;
  template <int kBytes>
  static AXCCL_INLINE Pack<Lane, kBytes, 1> Up(Raw<kBytes> raw) {
    using Lanes = Vector<Lane, kBytes>;
    return {{(Lanes)((Lanes)raw != 0) & 1}};
  }
  template <int kBytes>
  static AXCCL_INLINE Raw<kBytes> Down(const Pack<Lane, kBytes, 1>& pack) {
    return (Raw<kBytes>)pack.v[0];
  }
};

struct Float64 {
  using Lane = double;
  static constexpr bool kIsFloat = true;
  static constexpr int kPacks = 1;
  static AXCCL_INLINE Lane FactorOf(const Factor& factor) { return factor.f64; }
  template <int kBytes>
  static AXCCL_INLINE Pack<Lane, kBytes, 1> Up(Raw<kBytes> raw) {
    return {{(Vector<Lane, kBytes>)raw}};
  }
  template <int kBytes>
  static AXCCL_INLINE Raw<kBytes> Down(const Pack<Lane, kBytes, 1>& pack) {
    using Bits = Vector<uint64_t, kBytes>;
    const Vector<double, kBytes> v = pack.v[0];
    return (Raw<kBytes>)(v != v ? (Bits{} + 0x7ff8000000000000u) : (Bits)v);
  }
};

struct Float32 {
  using Lane = float;
  static constexpr bool kIsFloat = true;
  static constexpr int kPacks = 1;
  static AXCCL_INLINE Lane FactorOf(const Factor& factor) { return factor.f32; }
  template <int kBytes>
  static AXCCL_INLINE Pack<Lane, kBytes, 1> Up(Raw<kBytes> raw) {
    return {{(F32s<kBytes>)raw}};
  }
  template <int kBytes>
  static AXCCL_INLINE Raw<kBytes> Down(const Pack<Lane, kBytes, 1>& pack) {
    const F32s<kBytes> v = pack.v[0];
    return (Raw<kBytes>)(v != v ? (U32s<kBytes>{} + kF32Nan) : (U32s<kBytes>)v);
  }
};

struct Bfloat16 {
  using Lane = float;
  static constexpr bool kIsFloat = true;
  static constexpr int kPacks = 2;
  static AXCCL_INLINE Lane FactorOf(const Factor& factor) { return factor.f32; }
  template <int kBytes>
  static AXCCL_INLINE Pack<Lane, kBytes, 2> Up(Raw<kBytes> raw) {
    return {{(F32s<kBytes>)(raw << 16), (F32s<kBytes>)(raw & 0xffff0000u)}};
  }
  template <int kBytes>
  static AXCCL_INLINE Raw<kBytes> Down(const Pack<Lane, kBytes, 2>& pack) {
    return (Rounded<kBytes>(pack.v[0]) >> 16) | (Rounded<kBytes>(pack.v[1]) & 0xffff0000u);
  }

 private:
  // The rounded element in the upper half of each word; the lower half is undefined.
  template <int kBytes>
  static AXCCL_INLINE U32s<kBytes> Rounded(F32s<kBytes> v) {
    const U32s<kBytes> bits = (U32s<kBytes>)v;
    const U32s<kBytes> rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return v != v ? (U32s<kBytes>{} + kF32Nan) : rounded;
  }
};

// The constants of the integer conversions for a float with a sign, kExponentBits and kMantissaBits.
template <int kExponentBits, int kMantissaBits>
struct Shape {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kDropped = 23 - kMantissaBits;           // additional mantissa bits of f32
  static constexpr uint32_t kRebias = (127u - kBias) << 23;     // f32 exponent - ours, in place
  static constexpr uint32_t kMinNormal = kRebias + (1u << 23);  // smallest normal, as f32 bits
  // The float whose last mantissa bit weighs as much as our smallest subnormal: adding it rounds to that grid.
  static constexpr uint32_t kGrid = (127u - kBias + 1 + kDropped) << 23;
  static constexpr uint32_t kSign = 1u << (kExponentBits + kMantissaBits);
  static constexpr uint32_t kMagnitude = kSign - 1;
};

// Converts elements in the low bits of each word, with zeros above, to f32; finite values only.
template <class S, int kBytes>
AXCCL_INLINE U32s<kBytes> Widened(U32s<kBytes> code) {
  const U32s<kBytes> shifted = (code & S::kMagnitude) << S::kDropped;
  const U32s<kBytes> normal = shifted + S::kRebias;
  // A subnormal is read as if it had the exponent of the smallest normal and an implicit one, which is then subtracted.
  // Unlike scaling an f32 subnormal, this also works if the thread flushes those to zero.
  const F32s<kBytes> subnormal = (F32s<kBytes>)(normal + (1u << 23)) - (F32s<kBytes>)(U32s<kBytes>{} + S::kMinNormal);
  return (I32s<kBytes>)normal < static_cast<int32_t>(S::kMinNormal) ? (U32s<kBytes>)subnormal : normal;
}

// Converts f32 magnitude bits to the code of the magnitude, rounded to nearest even. Magnitudes above `limit` (f32
// bits) become `limit`.
template <class S, int kBytes>
AXCCL_INLINE U32s<kBytes> Narrowed(U32s<kBytes> magnitude, uint32_t limit) {
  const U32s<kBytes> m = (I32s<kBytes>)magnitude > static_cast<int32_t>(limit) ? (U32s<kBytes>{} + limit) : magnitude;
  const U32s<kBytes> half = ((1u << (S::kDropped - 1)) - 1) + ((m >> S::kDropped) & 1u);
  const U32s<kBytes> normal = (m + half - S::kRebias) >> S::kDropped;
  const F32s<kBytes> grid = (F32s<kBytes>)(U32s<kBytes>{} + S::kGrid);
  const U32s<kBytes> subnormal = (U32s<kBytes>)((F32s<kBytes>)m + grid) - S::kGrid;
  return (I32s<kBytes>)m < static_cast<int32_t>(S::kMinNormal) ? subnormal : normal;
}

#if defined(__F16C__)

// Two vectors of f32 from one of f16, first half first. These instructions ignore the thread's denormal modes.
template <int kBytes>
AXCCL_INLINE Pack<float, kBytes, 2> HalvesUp(Raw<kBytes> raw) {
  if constexpr (kBytes == 16) {
    const __m128i v = (__m128i)raw;
    return {{(F32s<16>)_mm_cvtph_ps(v), (F32s<16>)_mm_cvtph_ps(_mm_unpackhi_epi64(v, v))}};
  } else if constexpr (kBytes == 32) {
    const __m256i v = (__m256i)raw;
    return {{(F32s<32>)_mm256_cvtph_ps(_mm256_castsi256_si128(v)),
             (F32s<32>)_mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))}};
  } else {
#if defined(__AVX512F__)
    const __m512i v = (__m512i)raw;
    return {{(F32s<64>)_mm512_cvtph_ps(_mm512_castsi512_si256(v)),
             (F32s<64>)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(v, 1))}};
#endif
  }
}

// The inverse, rounded to nearest even; NaN keeps a payload.
template <int kBytes>
AXCCL_INLINE U16s<kBytes> HalvesDown(F32s<kBytes> first, F32s<kBytes> second) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT;
  if constexpr (kBytes == 16) {
    return (U16s<16>)_mm_unpacklo_epi64(_mm_cvtps_ph((__m128)first, kNearest), _mm_cvtps_ph((__m128)second, kNearest));
  } else if constexpr (kBytes == 32) {
    return (U16s<32>)_mm256_inserti128_si256(_mm256_castsi128_si256(_mm256_cvtps_ph((__m256)first, kNearest)),
                                             _mm256_cvtps_ph((__m256)second, kNearest), 1);
  } else {
#if defined(__AVX512F__)
    return (U16s<64>)_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtps_ph((__m512)first, kNearest)),
                                        _mm512_cvtps_ph((__m512)second, kNearest), 1);
#endif
  }
}

template <int kBytes>
AXCCL_INLINE U16s<kBytes> IsNan(U16s<kBytes> half_magnitude) {
  return (U16s<kBytes>)((I16s<kBytes>)half_magnitude > 0x7c00);
}

// Rounds to S's number of mantissa bits, or to its subnormal grid: adds a number large enough that the excess bits are
// dropped, and subtracts it again. It is one and a half times a power of two, so that the sum stays in one binade
// whatever the sign.
template <class S, int kBytes>
AXCCL_INLINE F32s<kBytes> RoundedTo(F32s<kBytes> v) {
  constexpr uint32_t kHalf = 0x00400000u;
  const U32s<kBytes> bits = (U32s<kBytes>)v;
  // Values too large for a grid saturate anyway: any grid keeps them large. NaN stays NaN.
  const I32s<kBytes> exponent = (I32s<kBytes>)(bits & kF32Infinity);
  const I32s<kBytes> cap = I32s<kBytes>{} + (200 << 23);
  const I32s<kBytes> normal = (exponent < cap ? exponent : cap) + static_cast<int32_t>((S::kDropped << 23) | kHalf);
  const I32s<kBytes> least = I32s<kBytes>{} + static_cast<int32_t>(S::kGrid | kHalf);
  const F32s<kBytes> grid = (F32s<kBytes>)(normal > least ? normal : least);
  const F32s<kBytes> rounded = (v + grid) - grid;
  return (F32s<kBytes>)((U32s<kBytes>)rounded | (bits & kSignBit));  // -0, and values that round to it
}

#endif  // __F16C__

struct Float16 {
  using Lane = float;
  using S = Shape<5, 10>;
  static constexpr bool kIsFloat = true;
  static constexpr int kPacks = 2;
  static AXCCL_INLINE Lane FactorOf(const Factor& factor) { return factor.f32; }

  // One element in the low bits of each word.
  template <int kBytes>
  static AXCCL_INLINE F32s<kBytes> UpWord(U32s<kBytes> code) {
    const U32s<kBytes> finite = Widened<S, kBytes>(code);
    // Exponent 31 became 143; infinity and NaN must have 255.
    const U32s<kBytes> special = finite + ((255u - 143u) << 23);
    const U32s<kBytes> magnitude = (I32s<kBytes>)finite >= (143 << 23) ? special : finite;
    return (F32s<kBytes>)(magnitude | ((code & S::kSign) << 16));
  }
  template <int kBytes>
  static AXCCL_INLINE U32s<kBytes> DownWord(F32s<kBytes> v) {
    const U32s<kBytes> bits = (U32s<kBytes>)v;
    const U32s<kBytes> magnitude = bits & ~kSignBit;
    // The code of infinity would mean 65536; everything that rounds to it becomes infinity.
    const U32s<kBytes> code = Narrowed<S, kBytes>(magnitude, 143u << 23) | ((bits & kSignBit) >> 16);
    return v != v ? (U32s<kBytes>{} + 0x7e00u) : code;
  }
  template <int kBytes>
  static AXCCL_INLINE Pack<Lane, kBytes, 2> Up(Raw<kBytes> raw) {
#if defined(__F16C__)
    return HalvesUp<kBytes>(raw);
#else
    return {{UpWord<kBytes>(raw & 0xffffu), UpWord<kBytes>(raw >> 16)}};
#endif
  }
  template <int kBytes>
  static AXCCL_INLINE Raw<kBytes> Down(const Pack<Lane, kBytes, 2>& pack) {
#if defined(__F16C__)
    const U16s<kBytes> code = HalvesDown<kBytes>(pack.v[0], pack.v[1]);
    const U16s<kBytes> is_nan = IsNan<kBytes>(code & 0x7fff);
    return (Raw<kBytes>)(is_nan ? (U16s<kBytes>{} + 0x7e00) : code);
#else
    return DownWord<kBytes>(pack.v[0]) | (DownWord<kBytes>(pack.v[1]) << 16);
#endif
  }
};

// OCP e4m3fn: no infinity, the code with all ones is NaN.
struct E4M3 {
  using S = Shape<4, 3>;
  static constexpr uint8_t kLargestCode = 0x7e;
  static constexpr uint32_t kLargestBits = 0x43e00000u;  // 448
  template <int kBytes>
  static AXCCL_INLINE F32s<kBytes> UpWord(U32s<kBytes> code) {
    const U32s<kBytes> finite = Widened<S, kBytes>(code);
    const U32s<kBytes> magnitude =
        (I32s<kBytes>)finite > static_cast<int32_t>(kLargestBits) ? (U32s<kBytes>{} + kF32Nan) : finite;
    return (F32s<kBytes>)(magnitude | ((code & S::kSign) << 24));
  }
#if defined(__F16C__)
  // If a code is read as f16 with the exponent shifted into place, it is 2^-8 of its value.
  static constexpr float kScale = 256.0f;
  static constexpr int kHalfShift = 1;
  template <int kBytes>
  static AXCCL_INLINE U16s<kBytes> ToHalf(U16s<kBytes> upper) {
    const U16s<kBytes> half = (U16s<kBytes>)((I16s<kBytes>)upper >> 1) & 0xbf80;
    return half | (U16s<kBytes>)((half & 0x3f80) == 0x3f80);
  }
#endif
};

// OCP e5m2: the upper byte of an f16.
struct E5M2 {
  using S = Shape<5, 2>;
  static constexpr uint8_t kLargestCode = 0x7b;
  static constexpr uint32_t kLargestBits = 0x47600000u;  // 57344
  template <int kBytes>
  static AXCCL_INLINE F32s<kBytes> UpWord(U32s<kBytes> code) {
    return Float16::UpWord<kBytes>(code << 8);
  }
#if defined(__F16C__)
  static constexpr float kScale = 1.0f;
  static constexpr int kHalfShift = 0;
  template <int kBytes>
  static AXCCL_INLINE U16s<kBytes> ToHalf(U16s<kBytes> upper) {
    return upper & 0xff00;
  }
#endif
};

// Both fp8 formats. With F16C they are converted through f16, which represents every value of both (e4m3 scaled)
// exactly. The rounding happens before, in f32, so there is only one.
template <class Code>
struct Float8 {
  using Lane = float;
  static constexpr bool kIsFloat = true;
  static constexpr int kPacks = 4;
  static constexpr uint32_t kNanCode = 0x7f;
  static AXCCL_INLINE Lane FactorOf(const Factor& factor) { return factor.f32; }

#if defined(__F16C__)
  template <int kBytes>
  static AXCCL_INLINE Pack<Lane, kBytes, 4> Up(Raw<kBytes> raw) {
    const U16s<kBytes> pairs = (U16s<kBytes>)raw;
    const Pack<float, kBytes, 2> even = HalvesUp<kBytes>((Raw<kBytes>)Code::template ToHalf<kBytes>(pairs << 8));
    const Pack<float, kBytes, 2> odd = HalvesUp<kBytes>((Raw<kBytes>)Code::template ToHalf<kBytes>(pairs));
    return {{even.v[0] * Code::kScale, even.v[1] * Code::kScale, odd.v[0] * Code::kScale, odd.v[1] * Code::kScale}};
  }
  template <int kBytes>
  static AXCCL_INLINE Raw<kBytes> Down(const Pack<Lane, kBytes, 4>& pack) {
    const U16s<kBytes> even = DownPair<kBytes>(pack.v[0], pack.v[1]);
    const U16s<kBytes> odd = DownPair<kBytes>(pack.v[2], pack.v[3]);
    return (Raw<kBytes>)((even >> 8) | odd);
  }
#else
  template <int kBytes>
  static AXCCL_INLINE Pack<Lane, kBytes, 4> Up(Raw<kBytes> raw) {
    return {{Code::template UpWord<kBytes>(raw & 0xffu), Code::template UpWord<kBytes>((raw >> 8) & 0xffu),
             Code::template UpWord<kBytes>((raw >> 16) & 0xffu), Code::template UpWord<kBytes>(raw >> 24)}};
  }
  template <int kBytes>
  static AXCCL_INLINE Raw<kBytes> Down(const Pack<Lane, kBytes, 4>& pack) {
    return DownWord<kBytes>(pack.v[0]) | (DownWord<kBytes>(pack.v[1]) << 8) | (DownWord<kBytes>(pack.v[2]) << 16) |
           (DownWord<kBytes>(pack.v[3]) << 24);
  }
#endif

 private:
#if defined(__F16C__)
  // Codes in the upper bytes, zeros in the lower: a value rounded to the format has no other bits of f16. Saturation
  // comes last, where one operation does it for two vectors.
  template <int kBytes>
  static AXCCL_INLINE U16s<kBytes> DownPair(F32s<kBytes> first, F32s<kBytes> second) {
    constexpr int kLimit = (Code::kLargestCode << 8) >> Code::kHalfShift;
    const F32s<kBytes> a = RoundedTo<typename Code::S, kBytes>(first) * (1.0f / Code::kScale);
    const F32s<kBytes> b = RoundedTo<typename Code::S, kBytes>(second) * (1.0f / Code::kScale);
    const U16s<kBytes> half = HalvesDown<kBytes>(a, b);
    const U16s<kBytes> magnitude = half & 0x7fff;
    const U16s<kBytes> limit = U16s<kBytes>{} + kLimit;
    const U16s<kBytes> clamped = (I16s<kBytes>)magnitude < (I16s<kBytes>)limit ? magnitude : limit;
    const U16s<kBytes> code = (clamped << Code::kHalfShift) | (half & 0x8000);
    return IsNan<kBytes>(magnitude) ? (U16s<kBytes>{} + (kNanCode << 8)) : code;
  }
#else
  template <int kBytes>
  static AXCCL_INLINE U32s<kBytes> DownWord(F32s<kBytes> v) {
    const U32s<kBytes> bits = (U32s<kBytes>)v;
    const U32s<kBytes> magnitude = bits & ~kSignBit;
    const U32s<kBytes> code =
        Narrowed<typename Code::S, kBytes>(magnitude, Code::kLargestBits) | ((bits & kSignBit) >> 24);
    return v != v ? (U32s<kBytes>{} + kNanCode) : code;
  }
#endif
};

// Small floats as integers in the order of their values, for max and min: no conversion, two to four times the lanes.
// NaN takes the place at the end that wins: the last, kNanLast, for max.
template <class LaneType, LaneType kLargestCode, LaneType kNanCode, bool kSaturates, bool kNanLast>
struct Ordered {
  using Lane = LaneType;
  static constexpr bool kIsFloat = false;
  static constexpr int kPacks = 1;
  static constexpr Lane kMagnitude = static_cast<Lane>(~(Lane{1} << (8 * sizeof(Lane) - 1)));
  static constexpr Lane kInfinity = kLargestCode + 1;  // the first NaN in e4m3, which has no infinity
  static constexpr Lane kLastNumber = kNanCode == kInfinity ? kLargestCode : kInfinity;
  static constexpr Lane kNanKey = kNanLast ? kMagnitude : static_cast<Lane>(~kMagnitude);

  template <int kBytes>
  using Lanes = Vector<Lane, kBytes>;

  template <int kBytes>
  static AXCCL_INLINE Pack<Lane, kBytes, 1> Up(Raw<kBytes> raw) {
    const Lanes<kBytes> code = (Lanes<kBytes>)raw;
    const Lanes<kBytes> key = Flipped<kBytes>(code);
    return {{(code & kMagnitude) > kLastNumber ? (Lanes<kBytes>{} + kNanKey) : key}};
  }
  template <int kBytes>
  static AXCCL_INLINE Raw<kBytes> Down(const Pack<Lane, kBytes, 1>& pack) {
    Lanes<kBytes> code = Flipped<kBytes>(pack.v[0]);
    const Lanes<kBytes> magnitude = code & kMagnitude;
    // Comparisons give -1, which turns infinity into the largest finite code.
    if constexpr (kSaturates && kLastNumber == kInfinity) code += (Lanes<kBytes>)(magnitude == kInfinity);
    return (Raw<kBytes>)(magnitude > kLastNumber ? (Lanes<kBytes>{} + kNanCode) : code);
  }

 private:
  // Negative codes count away from zero, keys count up. The function is its own inverse.
  template <int kBytes>
  static AXCCL_INLINE Lanes<kBytes> Flipped(Lanes<kBytes> v) {
    return v ^ ((Lanes<kBytes>)(v < 0) & kMagnitude);
  }
};

template <bool kNanLast>
using OrderedFloat16 = Ordered<int16_t, 0x7bff, 0x7e00, false, kNanLast>;
template <bool kNanLast>
using OrderedBfloat16 = Ordered<int16_t, 0x7f7f, 0x7fc0, false, kNanLast>;
template <bool kNanLast>
using OrderedE4M3 = Ordered<int8_t, 0x7e, 0x7f, true, kNanLast>;
template <bool kNanLast>
using OrderedE5M2 = Ordered<int8_t, 0x7b, 0x7f, true, kNanLast>;

}  // namespace axccl::kernels::AXCCL_KERNELS_ISA
