// The arithmetic of StableHLO on single numbers (scalar.h), for the reference executor: integers wrap, divisions by
// zero have the results that XLA gives them (all bits set, and the dividend as remainder), i1 is boolean, minimum and
// maximum of floats return a NaN if there is one, and take -0 for less than 0. Pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "src/program/program.h"

namespace axccl::program {

template <class N>
N WrapTo(uint64_t bits) {
  return static_cast<N>(bits);
}

template <class N>
N DivideIntegers(N a, N b, bool remainder) {
  if (b == 0) return remainder ? a : static_cast<N>(-1);
  if constexpr (std::is_signed_v<N>) {
    if (b == -1) return remainder ? N{0} : WrapTo<N>(uint64_t{0} - static_cast<uint64_t>(a));
  }
  return static_cast<N>(remainder ? a % b : a / b);
}

template <class N>
N PowerOfIntegers(N base, N exponent) {
  if constexpr (std::is_signed_v<N>) {
    if (exponent < 0) return base == 1 ? N{1} : base == -1 ? static_cast<N>(exponent % 2 == 0 ? 1 : -1) : N{0};
  }
  uint64_t power = 1, square = static_cast<uint64_t>(base);
  for (auto left = static_cast<uint64_t>(exponent); left != 0; left >>= 1, square *= square) {
    if (left % 2 != 0) power *= square;
  }
  return WrapTo<N>(power);
}

template <class N>
N Extreme(bool maximum, N a, N b) {
  if constexpr (std::is_floating_point_v<N>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<N>::quiet_NaN();
    if (a == b) return std::signbit(a) == maximum ? b : a;  // -0 and 0
  }
  return (a < b) == maximum ? b : a;
}

inline bool BinaryOfBools(OpKind kind, bool a, bool b) {
  switch (kind) {
    case OpKind::kAdd:
    case OpKind::kMaximum:
    case OpKind::kOr:
      return a || b;
    case OpKind::kXor:
      return a != b;
    default:
      return a && b;
  }
}

template <class N>
N BinaryOfFloats(OpKind kind, N a, N b) {
  switch (kind) {
    case OpKind::kAdd:
      return a + b;
    case OpKind::kSubtract:
      return a - b;
    case OpKind::kMultiply:
      return a * b;
    case OpKind::kDivide:
      return a / b;
    case OpKind::kRemainder:
      return std::fmod(a, b);
    case OpKind::kPower:
      return std::pow(a, b);
    default:
      return Extreme(kind == OpKind::kMaximum, a, b);
  }
}

template <class N>
N BinaryOfIntegers(OpKind kind, N a, N b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (kind) {
    case OpKind::kAdd:
      return WrapTo<N>(x + y);
    case OpKind::kSubtract:
      return WrapTo<N>(x - y);
    case OpKind::kMultiply:
      return WrapTo<N>(x * y);
    case OpKind::kDivide:
    case OpKind::kRemainder:
      return DivideIntegers(a, b, kind == OpKind::kRemainder);
    case OpKind::kPower:
      return PowerOfIntegers(a, b);
    case OpKind::kAnd:
      return WrapTo<N>(x & y);
    case OpKind::kOr:
      return WrapTo<N>(x | y);
    case OpKind::kXor:
      return WrapTo<N>(x ^ y);
    default:
      return Extreme(kind == OpKind::kMaximum, a, b);
  }
}

template <class N>
N Binary(OpKind kind, N a, N b) {
  if constexpr (std::is_same_v<N, bool>) {
    return BinaryOfBools(kind, a, b);
  } else if constexpr (std::is_floating_point_v<N>) {
    return BinaryOfFloats(kind, a, b);
  } else {
    return BinaryOfIntegers(kind, a, b);
  }
}

// The reduction of two numbers.
template <class N>
N Fold(Combine fold, N a, N b) {
  constexpr OpKind kKinds[] = {OpKind::kAdd, OpKind::kMultiply, OpKind::kMaximum, OpKind::kMinimum,
                               OpKind::kAnd, OpKind::kOr,       OpKind::kXor};
  return Binary(kKinds[static_cast<int>(fold)], a, b);
}

template <class N>
N UnaryOfFloat(OpKind kind, N x) {
  switch (kind) {
    case OpKind::kAbs:
      return std::fabs(x);
    case OpKind::kCosine:
      return std::cos(x);
    case OpKind::kExponential:
      return std::exp(x);
    case OpKind::kFloor:
      return std::floor(x);
    case OpKind::kLog:
      return std::log(x);
    case OpKind::kNegate:
      return -x;
    case OpKind::kRsqrt:
      return 1 / std::sqrt(x);
    case OpKind::kSign:
      return x > 0 ? N{1} : x < 0 ? N{-1} : x;
    case OpKind::kSine:
      return std::sin(x);
    case OpKind::kSqrt:
      return std::sqrt(x);
    default:
      return std::tanh(x);
  }
}

template <class N>
N UnaryOfInteger(OpKind kind, N x) {
  const auto bits = static_cast<uint64_t>(x);
  switch (kind) {
    case OpKind::kAbs:
      return x < 0 ? WrapTo<N>(uint64_t{0} - bits) : x;
    case OpKind::kNegate:
      return WrapTo<N>(uint64_t{0} - bits);
    case OpKind::kSign:
      return static_cast<N>(x > 0 ? 1 : x < 0 ? -1 : 0);
    default:
      return WrapTo<N>(~bits);  // not
  }
}

template <class N>
N Unary(OpKind kind, N x) {
  if constexpr (std::is_same_v<N, bool>) {
    return kind == OpKind::kNot ? !x : x;
  } else if constexpr (std::is_floating_point_v<N>) {
    return UnaryOfFloat(kind, x);
  } else {
    return UnaryOfInteger(kind, x);
  }
}

template <class N>
bool Compare(Direction direction, N a, N b) {
  switch (direction) {
    case Direction::kEq:
      return a == b;
    case Direction::kNe:
      return a != b;
    case Direction::kGe:
      return a >= b;
    case Direction::kGt:
      return a > b;
    case Direction::kLe:
      return a <= b;
    default:
      return a < b;
  }
}

// Floats become integers by truncation, at most the largest or least one, and NaN becomes 0.
template <class To, class From>
To Convert(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != 0;
  } else if constexpr (std::is_floating_point_v<From> && !std::is_floating_point_v<To>) {
    if (std::isnan(x)) return 0;
    const From limit = std::ldexp(From{1}, std::numeric_limits<To>::digits);
    if (x >= limit) return std::numeric_limits<To>::max();
    if (x <= (std::is_signed_v<To> ? -limit : From{0})) return std::numeric_limits<To>::min();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// A place along a dimension. One of 64 bits without sign may be beyond all dimensions, but never before them.
template <class N>
int64_t IndexOf(N number) {
  if constexpr (std::is_same_v<N, uint64_t>) number = std::min<N>(number, std::numeric_limits<int64_t>::max());
  return Convert<int64_t>(number);
}

}  // namespace axccl::program
