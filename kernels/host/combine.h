// The four combinations, element by element on vectors of the arithmetic type. Pure functions.
//
// Max and min of floats are made commutative and associative bit for bit, so that the result does not depend on the
// algorithm: -0 is less than +0, and NaN wins (Down of the format makes it the canonical one).
// Internal to the per-ISA compilations, see vector.h.
#pragma once

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

// What is left when neither float is the larger one: they are equal, or one is NaN. Or-ing the magnitudes keeps either;
// the signs are and-ed (max: +0 wins) or or-ed (min: -0 wins).
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

}  // namespace axccl::kernels::AXCCL_KERNELS_ISA
