// Element formats: how raw bits become vectors of the type the arithmetic is done in, and back.
//
// A format F has: Lane (the arithmetic type), kIsFloat, kPacks (arithmetic vectors per raw vector),
// Up(raw) -> Pack, Down(pack) -> raw. Down rounds once to nearest even (the rounding mode of the thread is assumed to be
// the default) and turns every NaN into the format's canonical one: otherwise its payload would depend on which operand
// the compiler put first. fp8 saturates. Which element lands in which lane of a pack is the format's own business, as
// the arithmetic is element-wise and Down undoes what Up did.
//
// Small floats are taken apart in 32-bit words (a word is two 16-bit or four 8-bit elements): no shuffles, and the same
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
  // The rounded element in the upper half of each word, rubbish in the lower one.
  template <int kBytes>
  static AXCCL_INLINE U32s<kBytes> Rounded(F32s<kBytes> v) {
    const U32s<kBytes> bits = (U32s<kBytes>)v;
    const U32s<kBytes> rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return v != v ? (U32s<kBytes>{} + kF32Nan) : rounded;
  }
};

// What the integer conversions need to know of a float with a sign, kExponentBits and kMantissaBits.
template <int kExponentBits, int kMantissaBits>
struct Shape {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kDropped = 23 - kMantissaBits;           // mantissa bits f32 has more
  static constexpr uint32_t kRebias = (127u - kBias) << 23;     // f32 exponent - ours, in place
  static constexpr uint32_t kMinNormal = kRebias + (1u << 23);  // smallest normal, as f32 bits
  // The float whose last mantissa bit weighs as much as our smallest subnormal: adding it rounds to that grid.
  static constexpr uint32_t kGrid = (127u - kBias + 1 + kDropped) << 23;
  static constexpr uint32_t kSign = 1u << (kExponentBits + kMantissaBits);
  static constexpr uint32_t kMagnitude = kSign - 1;
};

// Elements in the low bits of each word, zeros above, to f32, for all that is finite.
template <class S, int kBytes>
AXCCL_INLINE U32s<kBytes> Widened(U32s<kBytes> code) {
  const U32s<kBytes> shifted = (code & S::kMagnitude) << S::kDropped;
  const U32s<kBytes> normal = shifted + S::kRebias;
  // A subnormal is read as if it had the exponent of the smallest normal and an implicit one, which is taken off again.
  // Unlike scaling an f32 subnormal this also holds where the thread flushes those to zero.
  const F32s<kBytes> subnormal =
      (F32s<kBytes>)(normal + (1u << 23)) - (F32s<kBytes>)(U32s<kBytes>{} + S::kMinNormal);
  return (I32s<kBytes>)normal < static_cast<int32_t>(S::kMinNormal) ? (U32s<kBytes>)subnormal : normal;
}

// f32 magnitude bits to the code of magnitude, rounded to nearest even. Larger than `limit` (f32 bits) becomes `limit`.
template <class S, int kBytes>
AXCCL_INLINE U32s<kBytes> Narrowed(U32s<kBytes> magnitude, uint32_t limit) {
  const U32s<kBytes> m =
      (I32s<kBytes>)magnitude > static_cast<int32_t>(limit) ? (U32s<kBytes>{} + limit) : magnitude;
  const U32s<kBytes> half = ((1u << (S::kDropped - 1)) - 1) + ((m >> S::kDropped) & 1u);
  const U32s<kBytes> normal = (m + half - S::kRebias) >> S::kDropped;
  const F32s<kBytes> grid = (F32s<kBytes>)(U32s<kBytes>{} + S::kGrid);
  const U32s<kBytes> subnormal = (U32s<kBytes>)((F32s<kBytes>)m + grid) - S::kGrid;
  return (I32s<kBytes>)m < static_cast<int32_t>(S::kMinNormal) ? subnormal : normal;
}

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
    // Exponent 31 came out as 143; infinity and NaN have 255.
    const U32s<kBytes> special = finite + ((255u - 143u) << 23);
    const U32s<kBytes> magnitude = (I32s<kBytes>)finite >= (143 << 23) ? special : finite;
    return (F32s<kBytes>)(magnitude | ((code & S::kSign) << 16));
  }
  template <int kBytes>
  static AXCCL_INLINE U32s<kBytes> DownWord(F32s<kBytes> v) {
    const U32s<kBytes> bits = (U32s<kBytes>)v;
    const U32s<kBytes> magnitude = bits & ~kSignBit;
    // 65536 is what the code of infinity would mean; all that rounds to it is infinity.
    const U32s<kBytes> code = Narrowed<S, kBytes>(magnitude, 143u << 23) | ((bits & kSignBit) >> 16);
    return v != v ? (U32s<kBytes>{} + 0x7e00u) : code;
  }
  template <int kBytes>
  static AXCCL_INLINE Pack<Lane, kBytes, 2> Up(Raw<kBytes> raw) {
    return {{UpWord<kBytes>(raw & 0xffffu), UpWord<kBytes>(raw >> 16)}};
  }
  template <int kBytes>
  static AXCCL_INLINE Raw<kBytes> Down(const Pack<Lane, kBytes, 2>& pack) {
    return DownWord<kBytes>(pack.v[0]) | (DownWord<kBytes>(pack.v[1]) << 16);
  }
};

// OCP e4m3fn: no infinity, the code with all ones is NaN.
struct E4M3 {
  using S = Shape<4, 3>;
  static constexpr uint32_t kNanCode = 0x7f;
  static constexpr uint32_t kLargest = 0x43e00000u;  // 448
  template <int kBytes>
  static AXCCL_INLINE F32s<kBytes> UpWord(U32s<kBytes> code) {
    const U32s<kBytes> finite = Widened<S, kBytes>(code);
    const U32s<kBytes> magnitude =
        (I32s<kBytes>)finite > static_cast<int32_t>(kLargest) ? (U32s<kBytes>{} + kF32Nan) : finite;
    return (F32s<kBytes>)(magnitude | ((code & S::kSign) << 24));
  }
};

// OCP e5m2: the upper byte of an f16.
struct E5M2 {
  using S = Shape<5, 2>;
  static constexpr uint32_t kNanCode = 0x7f;
  static constexpr uint32_t kLargest = 0x47600000u;  // 57344
  template <int kBytes>
  static AXCCL_INLINE F32s<kBytes> UpWord(U32s<kBytes> code) {
    return Float16::UpWord<kBytes>(code << 8);
  }
};

template <class Code>
struct Float8 {
  using Lane = float;
  static constexpr bool kIsFloat = true;
  static constexpr int kPacks = 4;
  static AXCCL_INLINE Lane FactorOf(const Factor& factor) { return factor.f32; }

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

 private:
  template <int kBytes>
  static AXCCL_INLINE U32s<kBytes> DownWord(F32s<kBytes> v) {
    const U32s<kBytes> bits = (U32s<kBytes>)v;
    const U32s<kBytes> magnitude = bits & ~kSignBit;
    const U32s<kBytes> code = Narrowed<typename Code::S, kBytes>(magnitude, Code::kLargest) | ((bits & kSignBit) >> 24);
    return v != v ? (U32s<kBytes>{} + Code::kNanCode) : code;
  }
};

}  // namespace axccl::kernels::AXCCL_KERNELS_ISA
