// Operations on f32 and f64 values as PTX defines them.
#pragma once

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tools/softgpu/engine/machine.h"
#include "tools/softgpu/engine/small_float.h"

namespace softgpu::engine {

enum class FloatOp : uint8_t {
  kAdd,
  kSub,
  kMul,
  kFma,
  kDiv,
  kMin,
  kMax,
  kAbs,
  kNeg,
  kCopysign,
  kRcp,
  kSqrt,
  kRsqrt,
  kSin,
  kCos,
  kLg2,
  kEx2,
  kTanh,
};

// Variants of min and max.
constexpr uint8_t kPropagateNan = 1, kXorSign = 2;

// Sets the rounding mode `rounding` for its lifetime. Values that go into an operation meanwhile must be opaque to the
// compiler.
class ScopedRounding {
 public:
  explicit ScopedRounding(Rounding rounding) : before_(std::fegetround()), changed_(rounding != Rounding::kNearest) {
    if (changed_) std::fesetround(Mode(rounding));
  }
  ~ScopedRounding() {
    if (changed_) std::fesetround(before_);
  }
  ScopedRounding(const ScopedRounding&) = delete;
  ScopedRounding& operator=(const ScopedRounding&) = delete;

 private:
  static int Mode(Rounding rounding) {
    switch (rounding) {
      case Rounding::kZero:
        return FE_TOWARDZERO;
      case Rounding::kDown:
        return FE_DOWNWARD;
      case Rounding::kUp:
        return FE_UPWARD;
      default:
        return FE_TONEAREST;
    }
  }
  const int before_;
  const bool changed_;
};

// The NaN that the GPU returns for every NaN.
template <class T>
T Canonical(T value) {
  if constexpr (std::is_same_v<T, float>) {
    if (value != value) return std::bit_cast<float>(0x7fffffffu);
  }
  return value;
}

inline float FlushToZero(float value) { return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value; }

template <class T>
T MinMax(T a, T b, bool max, uint8_t variant) {
  bool negative = false;
  if ((variant & kXorSign) != 0) {
    negative = std::signbit(a) != std::signbit(b);
    if ((variant & kPropagateNan) == 0 && (a != a || b != b)) negative = std::signbit(a != a ? b : a);
    a = std::fabs(a);
    b = std::fabs(b);
  }
  T result;
  if (a != a || b != b) {
    result = (variant & kPropagateNan) != 0 || (a != a && b != b) ? T(NAN) : (a != a ? b : a);
    if (result != result) return Canonical(result);
  } else if (a == b) {
    result = std::signbit(a) == max ? b : a;  // -0 is below +0
  } else {
    result = (a < b) != max ? a : b;
  }
  return (variant & kXorSign) != 0 && negative ? -result : result;
}

// The approximations of the hardware are computed as exactly as possible.
template <class T>
T Apply(FloatOp op, T a, T b, T c, uint8_t variant) {
  const auto through_double = [](double value) { return static_cast<T>(value); };
  switch (op) {
    case FloatOp::kAdd:
      return Canonical(a + b);
    case FloatOp::kSub:
      return Canonical(a - b);
    case FloatOp::kMul:
      return Canonical(a * b);
    case FloatOp::kFma:
      return Canonical(static_cast<T>(std::fma(a, b, c)));
    case FloatOp::kDiv:
      return Canonical(a / b);
    case FloatOp::kMin:
      return MinMax(a, b, false, variant);
    case FloatOp::kMax:
      return MinMax(a, b, true, variant);
    case FloatOp::kAbs:
      return Canonical(std::fabs(a));
    case FloatOp::kNeg:
      return Canonical(-a);
    case FloatOp::kCopysign:
      return std::copysign(b, a);
    case FloatOp::kRcp:
      return Canonical(1 / a);
    case FloatOp::kSqrt:
      return Canonical(std::sqrt(a));
    case FloatOp::kRsqrt:
      return Canonical(through_double(1 / std::sqrt(static_cast<double>(a))));
    case FloatOp::kSin:
      return Canonical(through_double(std::sin(static_cast<double>(a))));
    case FloatOp::kCos:
      return Canonical(through_double(std::cos(static_cast<double>(a))));
    case FloatOp::kLg2:
      return Canonical(through_double(std::log2(static_cast<double>(a))));
    case FloatOp::kEx2:
      return Canonical(through_double(std::exp2(static_cast<double>(a))));
    case FloatOp::kTanh:
      return Canonical(through_double(std::tanh(static_cast<double>(a))));
  }
  return a;
}

}  // namespace softgpu::engine
