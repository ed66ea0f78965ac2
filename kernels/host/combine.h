// The combinations, element by element on vectors of the arithmetic type. Pure functions.
//
// Max and min of floats are made commutative and associative bit for bit, so that the result does not depend on the
// algorithm: -0 is less than +0, and NaN wins (Down of the format makes it the canonical one).
// Internal to the per-ISA compilations, see vector.h.
#pragma once

#include <utility>

#include "kernels/host/vector.h"

namespace axccl::kernels::AXCCL_KERNELS_ISA {

struct Sum {
  template <bool kIsFloat, class V>
  static AXCCL_INLINE V Apply(V a, V b) {
    return a + b;
  }
};

struct Prod {
  template <bool kIsFloat, class V>
  static AXCCL_INLINE V Apply(V a, V b) {
    return a * b;
  }
};

// The result if neither float is larger: they are equal, or one is NaN. Or-ing the magnitudes keeps either; the signs
// are and-ed (max: +0 wins) or or-ed (min: -0 wins).
template <bool kSignsAnd, class V>
AXCCL_INLINE V Tied(V a, V b) {
  using Bits = decltype(a < b);
  const Bits both = (Bits)a & (Bits)b;
  const Bits any = (Bits)a | (Bits)b;
  if constexpr (!kSignsAnd) return (V)any;
  constexpr int kSignShift = 8 * sizeof(both[0]) - 1;
  const Bits sign = (Bits{} + 1) << kSignShift;
  return (V)((any & ~sign) | both);
}

struct Max {
  template <bool kIsFloat, class V>
  static AXCCL_INLINE V Apply(V a, V b) {
    if constexpr (!kIsFloat) return a > b ? a : b;
    return a > b ? a : (a < b ? b : Tied<true>(a, b));
  }
};

struct Min {
  template <bool kIsFloat, class V>
  static AXCCL_INLINE V Apply(V a, V b) {
    if constexpr (!kIsFloat) return a < b ? a : b;
    return a < b ? a : (a > b ? b : Tied<false>(a, b));
  }
};

struct And {
  template <bool kIsFloat, class V>
  static AXCCL_INLINE V Apply(V a, V b) {
    return a & b;
  }
};

struct Or {
  template <bool kIsFloat, class V>
  static AXCCL_INLINE V Apply(V a, V b) {
    return a | b;
  }
};

struct Xor {
  template <bool kIsFloat, class V>
  static AXCCL_INLINE V Apply(V a, V b) {
    return a ^ b;
  }
};

// Lane i of the result is lane (i & kAnd) ^ kXor of v.
template <int kAnd, int kXor, class V, int... kLanes>
AXCCL_INLINE V Permuted(V v, std::integer_sequence<int, kLanes...>) {
  return __builtin_shufflevector(v, v, ((kLanes & kAnd) ^ kXor)...);
}

// (a + bi)(c + di) = (ac - bd) + (ad + bc)i, with each product and sum rounded separately. Real and imaginary parts
// alternate in the lanes.
struct ComplexProd {
  template <bool kIsFloat, class V>
  static AXCCL_INLINE V Apply(V x, V y) {
    using Bits = decltype(x < y);
    constexpr int kNum = sizeof(V) / sizeof(x[0]);
    constexpr std::make_integer_sequence<int, kNum> kLanes;
    const Bits minus = SignsOfEven<Bits>(kLanes);
    const V ac_ad = Permuted<~1, 0>(x, kLanes) * y;
    const V bd_bc = Permuted<~1, 1>(x, kLanes) * Permuted<~0, 1>(y, kLanes);
    return ac_ad + (V)((Bits)bd_bc ^ minus);
  }

 private:
  // The mask that negates the even lanes.
  template <class Bits, int... kLanes>
  static AXCCL_INLINE Bits SignsOfEven(std::integer_sequence<int, kLanes...>) {
    constexpr int kSignShift = 8 * (sizeof(Bits) / sizeof...(kLanes)) - 1;
    return Bits{(kLanes % 2 == 0)...} << kSignShift;
  }
};

}  // namespace axccl::kernels::AXCCL_KERNELS_ISA
