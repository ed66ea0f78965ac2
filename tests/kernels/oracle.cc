#include "tests/kernels/oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

namespace axccl::kernels {
namespace {

struct Layout {
  int exponent_bits;
  int mantissa_bits;
  uint32_t nan;      // canonical
  uint32_t largest;  // finite
  bool has_infinity;
  bool saturates;
};

const Layout& LayoutOf(DataType type) {
  static const Layout kF16 = {5, 10, 0x7e00, 0x7bff, true, false};
  static const Layout kBf16 = {8, 7, 0x7fc0, 0x7f7f, true, false};
  static const Layout kE4M3 = {4, 3, 0x7f, 0x7e, false, true};
  static const Layout kE5M2 = {5, 2, 0x7f, 0x7b, true, true};
  static const Layout kF32 = {8, 23, 0x7fc00000, 0x7f7fffff, true, false};
  switch (type) {
    case DataType::kFloat16:
      return kF16;
    case DataType::kBfloat16:
      return kBf16;
    case DataType::kFloat8E4M3:
      return kE4M3;
    case DataType::kFloat8E5M2:
      return kE5M2;
    default:
      return kF32;
  }
}

// The values of the codes 0 .. largest, ascending; for formats that overflow to infinity, also the value that the next
// code would have, so that overflow is rounding to it.
const std::vector<double>& Magnitudes(DataType type) {
  static std::vector<double> tables[kNumDataTypes] = {};
  static const bool filled = [] {
    for (DataType t : {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
      const Layout& layout = LayoutOf(t);
      std::vector<double>& table = tables[static_cast<int>(t)];
      for (uint32_t code = 0; code <= layout.largest; ++code) table.push_back(Decode(t, code));
      const size_t n = table.size();
      if (!layout.saturates) table.push_back(table[n - 1] + (table[n - 1] - table[n - 2]));
    }
    return true;
  }();
  (void)filled;
  return tables[static_cast<int>(type)];
}

template <class T>
T Combined(Combine combine, T a, T b) {
  switch (combine) {
    case Combine::kSum:
      return a + b;
    case Combine::kProd:
      return a * b;
    case Combine::kMax:
    case Combine::kMin: {
      if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
        const bool max = combine == Combine::kMax;
        if (a == b) return (std::signbit(a) == max) ? b : a;
        return (a > b) == max ? a : b;
      } else {
        return combine == Combine::kMax ? std::max(a, b) : std::min(a, b);
      }
    }
    default:
      return a;
  }
}

uint64_t CombinedBits(Combine combine, uint64_t a, uint64_t b) {
  switch (combine) {
    case Combine::kAnd:
      return a & b;
    case Combine::kOr:
      return a | b;
    case Combine::kXor:
      return a ^ b;
    case Combine::kLogicalAnd:
      return a != 0 && b != 0 ? 1 : 0;
    case Combine::kLogicalOr:
      return a != 0 || b != 0 ? 1 : 0;
    default:
      return Combined(combine, a, b);
  }
}

// StableHLO calls the sum and the product of bools "or" and "and".
bool CombinedBool(Combine combine, bool a, bool b) {
  switch (combine) {
    case Combine::kSum:
    case Combine::kMax:
    case Combine::kOr:
    case Combine::kLogicalOr:
      return a || b;
    case Combine::kXor:
      return a != b;
    default:
      return a && b;
  }
}

uint64_t ExpectedBool(const OracleRequest& request, size_t index) {
  bool acc = false;
  for (size_t k = 0; k < request.src.size(); ++k) {
    const bool x = LoadElement(request.src[k], index, 1) != 0;
    acc = k == 0 ? x : CombinedBool(request.combine, acc, x);
  }
  return acc ? 1 : 0;
}

// The real part of the product if `index` is even, else the imaginary part.
template <class Part>
Part ComplexProduct(const OracleRequest& request, size_t index) {
  Part re = 0, im = 0;
  for (size_t k = 0; k < request.src.size(); ++k) {
    Part x[2];
    std::memcpy(x, static_cast<const char*>(request.src[k]) + index / 2 * sizeof(x), sizeof(x));
    const Part next_re = re * x[0] - im * x[1];
    const Part next_im = re * x[1] + im * x[0];
    re = k == 0 ? x[0] : next_re;
    im = k == 0 ? x[1] : next_im;
  }
  return index % 2 == 0 ? re : im;
}

uint64_t ExpectedComplex(const OracleRequest& request, size_t index) {
  if (request.combine == Combine::kSum) {
    OracleRequest parts = request;
    parts.type = request.type == DataType::kComplex64 ? DataType::kFloat32 : DataType::kFloat64;
    return Expected(parts, index);
  }
  if (request.type == DataType::kComplex64) {
    const float part = ComplexProduct<float>(request, index);
    return std::isnan(part) ? 0x7fc00000u : std::bit_cast<uint32_t>(part);
  }
  const double part = ComplexProduct<double>(request, index);
  return std::isnan(part) ? 0x7ff8000000000000u : std::bit_cast<uint64_t>(part);
}

float FloatElement(DataType type, const void* src, size_t index) {
  return static_cast<float>(Decode(type, static_cast<uint32_t>(LoadElement(src, index, ElementSize(type)))));
}

uint32_t ExpectedFloat(const OracleRequest& request, size_t index) {
  float acc = 0;
  for (size_t k = 0; k < request.src.size(); ++k) {
    float x = FloatElement(request.type, request.src[k], index);
    if (!request.pre.empty()) x = x * request.pre[k].f32;
    if (request.round_factored) x = static_cast<float>(Decode(request.type, Encode(request.type, x)));
    acc = k == 0 ? x : Combined(request.combine, acc, x);
  }
  if (!request.post.empty()) acc = acc * request.post[0].f32;
  return Encode(request.type, acc);
}

uint64_t ExpectedDouble(const OracleRequest& request, size_t index) {
  double acc = 0;
  for (size_t k = 0; k < request.src.size(); ++k) {
    double x = std::bit_cast<double>(LoadElement(request.src[k], index, 8));
    if (!request.pre.empty()) x = x * request.pre[k].f64;
    acc = k == 0 ? x : Combined(request.combine, acc, x);
  }
  if (!request.post.empty()) acc = acc * request.post[0].f64;
  return std::isnan(acc) ? 0x7ff8000000000000u : std::bit_cast<uint64_t>(acc);
}

// Sign- or zero-extends the low bits of an element.
int64_t SignExtended(uint64_t bits, int width) { return static_cast<int64_t>(bits << (64 - width)) >> (64 - width); }

uint64_t ExpectedInteger(const OracleRequest& request, size_t index) {
  const bool is_signed = request.type == DataType::kInt8 || request.type == DataType::kInt16 ||
                         request.type == DataType::kInt32 || request.type == DataType::kInt64;
  const size_t size = ElementSize(request.type);
  const int width = static_cast<int>(8 * size);
  const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  uint64_t acc = 0;
  for (size_t k = 0; k < request.src.size(); ++k) {
    uint64_t x = LoadElement(request.src[k], index, size);
    if (!request.pre.empty()) x = (x * request.pre[k].u64) & mask;
    if (k == 0) {
      acc = x;
    } else if (is_signed && (request.combine == Combine::kMax || request.combine == Combine::kMin)) {
      acc = static_cast<uint64_t>(Combined(request.combine, SignExtended(acc, width), SignExtended(x, width)));
    } else {
      acc = CombinedBits(request.combine, acc, x);
    }
    acc &= mask;
  }
  if (request.post_divisor != 0) {
    if (is_signed && SignExtended(acc, width) < 0) {
      acc = -((-static_cast<uint64_t>(SignExtended(acc, width))) / request.post_divisor);
    } else {
      acc = acc / request.post_divisor;
    }
  }
  return acc & mask;
}

}  // namespace

double Decode(DataType type, uint32_t code) {
  const Layout& layout = LayoutOf(type);
  const int all_ones = (1 << layout.exponent_bits) - 1;
  const int bias = all_ones / 2;
  const int exponent = static_cast<int>(code >> layout.mantissa_bits) & all_ones;
  const uint32_t mantissa = code & ((uint32_t{1} << layout.mantissa_bits) - 1);
  const bool negative = (code >> (layout.exponent_bits + layout.mantissa_bits)) & 1;
  double magnitude;
  if (layout.has_infinity && exponent == all_ones) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (!layout.has_infinity && exponent == all_ones && mantissa == 7) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - bias - layout.mantissa_bits);
  } else {
    magnitude = std::ldexp(mantissa + (uint32_t{1} << layout.mantissa_bits), exponent - bias - layout.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

uint32_t Encode(DataType type, float value) {
  const Layout& layout = LayoutOf(type);
  if (std::isnan(value)) return layout.nan;
  if (type == DataType::kFloat32) return std::bit_cast<uint32_t>(value);
  const uint32_t sign = std::signbit(value) ? uint32_t{1} << (layout.exponent_bits + layout.mantissa_bits) : 0;
  const std::vector<double>& table = Magnitudes(type);
  const double magnitude = std::fabs(value);
  const auto above = std::lower_bound(table.begin(), table.end(), magnitude);
  if (above == table.end()) return sign | static_cast<uint32_t>(table.size() - 1);
  const uint32_t code = static_cast<uint32_t>(above - table.begin());
  if (code == 0) return sign;
  const double down = magnitude - table[code - 1];
  const double up = table[code] - magnitude;
  const bool take_lower = down < up || (down == up && code % 2 == 1);
  return sign | (take_lower ? code - 1 : code);
}

uint64_t Expected(const OracleRequest& request, size_t index) {
  if (request.src.size() == 1 && request.pre.empty() && request.post_divisor <= 1 && request.post.empty()) {
    return LoadElement(request.src[0], index, ElementSize(ScalarType(request.type)));
  }
  if (request.type == DataType::kBool) return ExpectedBool(request, index);
  if (IsComplex(request.type)) return ExpectedComplex(request, index);
  if (request.type == DataType::kFloat64) return ExpectedDouble(request, index);
  if (IsFloat(request.type)) return ExpectedFloat(request, index);
  return ExpectedInteger(request, index);
}

const std::vector<Pair>& AllPairs() {
  static const std::vector<Pair> pairs = [] {
    std::vector<Pair> all;
    for (int t = 0; t < kNumArithmeticTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      const int num = IsComplex(type) ? 2 : IsFloat(type) ? 4 : kNumCombines;
      for (int c = 0; c < num; ++c) all.push_back({type, static_cast<Combine>(c)});
    }
    return all;
  }();
  return pairs;
}

std::string PairName(const Pair& pair) {
  std::string name = std::string(DataTypeName(pair.type)) + "_" + CombineName(pair.combine);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

int Rounds(int all) {
  const char* full = std::getenv("AXCCL_TEST_FULL");
  return full != nullptr && full[0] == '1' ? all : (all + 1) / 2;
}

Generator& Random() {
  static Generator random = [] {
    const char* given = std::getenv("AXCCL_TEST_SEED");
    const uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device()();
    std::printf("AXCCL_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    return Generator(seed);
  }();
  return random;
}

// The code of an ordinary value in [-8, 8), for a format of two bytes or less: one of 2^16, the number of codes of the
// largest format, because the search for each takes most of the tests' time.
uint32_t OrdinaryCode(DataType type, uint16_t choice) {
  static std::vector<uint16_t> tables[kNumDataTypes];
  static const bool filled = [] {
    for (DataType t : {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
      for (int i = 0; i < 1 << 16; ++i)
        tables[static_cast<int>(t)].push_back(
            static_cast<uint16_t>(Encode(t, static_cast<float>((i * 0x1p-16 - 0.5) * 16))));
    }
    return true;
  }();
  (void)filled;
  return tables[static_cast<int>(type)][choice];
}

uint64_t RandomElement(DataType type, Generator& random) {
  const uint64_t bits = random();
  const uint64_t kind = random() % 8;
  const double ordinary = (static_cast<double>(bits >> 11) * 0x1p-53 - 0.5) * 16;
  if (type == DataType::kBool) return kind < 4 ? 0 : kind < 7 ? 1 : bits;
  if (!IsFloat(type)) {
    // Zeros are important for logical operations.
    if (bits % 8 == 0) return 0;
    // Extremes, small numbers and any bits.
    if (kind == 0) return uint64_t{1} << (8 * ElementSize(type) - 1);
    if (kind == 1) return (uint64_t{1} << (8 * ElementSize(type) - 1)) - 1;
    return kind < 5 ? static_cast<uint64_t>(static_cast<int64_t>(ordinary)) : bits;
  }
  if (type == DataType::kFloat64) {
    if (kind == 0) return (bits & 1) << 63 | (bits & 2 ? 0x7ff0000000000000u : 0);
    return kind < 6 ? std::bit_cast<uint64_t>(ordinary) : bits;
  }
  if (kind == 0) {
    const uint32_t sign = Encode(type, -0.0f);
    return (bits & 1 ? sign : 0) | (bits & 2 ? Encode(type, std::numeric_limits<float>::infinity()) : 0);
  }
  if (kind >= 6) return bits;
  if (type == DataType::kFloat32) return std::bit_cast<uint32_t>(static_cast<float>(ordinary));
  return OrdinaryCode(type, static_cast<uint16_t>(bits >> 48));
}

uint64_t LoadElement(const void* from, size_t index, size_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, static_cast<const char*>(from) + index * size, size);
  return bits;
}

void StoreElement(void* to, size_t index, size_t size, uint64_t bits) {
  std::memcpy(static_cast<char*>(to) + index * size, &bits, size);
}

}  // namespace axccl::kernels
