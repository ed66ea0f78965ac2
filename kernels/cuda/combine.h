// The combinations of two elements on the device, with the bits of kernels/host/combine.h. Pure functions.
//
// Max and min of floats are commutative and associative bit for bit: -0 is less than +0, and NaN wins (formats make it
// the canonical one).
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/formats.h"

namespace axccl::kernels::cuda {

struct Sum {
  template <class T>
  static AXCCL_DEVICE T Of(T a, T b) {
    return static_cast<T>(a + b);
  }
};

struct Prod {
  template <class T>
  static AXCCL_DEVICE T Of(T a, T b) {
    // Not in int, which would overflow.
    if constexpr (sizeof(T) < 4) return static_cast<T>(uint32_t{a} * uint32_t{b});
    return static_cast<T>(a * b);
  }
};

// The result if neither float is larger: they are equal, or one is NaN. Or-ing the magnitudes keeps either; the signs
// are and-ed (max: +0 wins) or or-ed (min: -0 wins). Computed whether they are tied or not, because a branch for each
// lane costs more.
template <bool kSignsAnd, class T>
AXCCL_DEVICE T Tied(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  const Bits x = BitCast<Bits>(a), y = BitCast<Bits>(b);
  constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
  return BitCast<T>(kSignsAnd ? ((x | y) & ~kSign) | (x & y) : x | y);
}

struct Max {
  template <class T>
  static AXCCL_DEVICE T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const T tied = Tied<true>(a, b);
      return a > b ? a : (a < b ? b : tied);
    } else {
      return a > b ? a : b;
    }
  }
};

struct Min {
  template <class T>
  static AXCCL_DEVICE T Of(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const T tied = Tied<false>(a, b);
      return a < b ? a : (a > b ? b : tied);
    } else {
      return a < b ? a : b;
    }
  }
};

struct And {
  template <class T>
  static AXCCL_DEVICE T Of(T a, T b) {
    return static_cast<T>(a & b);
  }
};

struct Or {
  template <class T>
  static AXCCL_DEVICE T Of(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct Xor {
  template <class T>
  static AXCCL_DEVICE T Of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Any value but 0 is true; results are 0 and 1.
struct LogicalAnd {
  template <class T>
  static AXCCL_DEVICE T Of(T a, T b) {
    return static_cast<T>(a != 0 && b != 0);
  }
};

struct LogicalOr {
  template <class T>
  static AXCCL_DEVICE T Of(T a, T b) {
    return static_cast<T>(a != 0 || b != 0);
  }
};

struct LogicalXor {
  template <class T>
  static AXCCL_DEVICE T Of(T a, T b) {
    return static_cast<T>((a != 0) != (b != 0));
  }
};

// (a + bi)(c + di) = (ac - bd) + (ad + bc)i, with each product and sum rounded separately: the device code is compiled
// without contraction to fused multiply-adds.
struct ComplexProd {
  template <class T>
  static AXCCL_DEVICE void OfPair(T* re, T* im, T c, T d) {
    const T a = *re, b = *im;
    *re = a * c - b * d;
    *im = a * d + b * c;
  }
};

}  // namespace axccl::kernels::cuda
