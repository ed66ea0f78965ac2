// Floating-point instructions, compared with host arithmetic, and narrow formats with a search through all their
// values.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <functional>
#include <random>

#include "tools/softgpu/tests/engine/launch.h"
#include "tools/softgpu/tests/engine/opcode.h"

namespace softgpu::engine::test {
namespace {

using u64 = uint64_t;

float F(u64 bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
double D(u64 bits) { return std::bit_cast<double>(bits); }
u64 B(float value) { return std::isnan(value) ? 0x7fffffff : std::bit_cast<uint32_t>(value); }
u64 B(double value) { return std::bit_cast<u64>(value); }

// All numbers of a narrow format, by bits.
class Format {
 public:
  Format(int exponent_bits, int mantissa_bits, bool has_infinity, u64 nan) : infinity_(has_infinity), nan_(nan) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    width_ = exponent_bits + mantissa_bits + 1;
    const int top = (1 << exponent_bits) - (has_infinity ? 1 : 0);
    for (int exponent = 0; exponent < top; ++exponent) {
      for (int mantissa = 0; mantissa < 1 << mantissa_bits; ++mantissa) {
        const double fraction = static_cast<double>(mantissa) / (1 << mantissa_bits);
        values_.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
      }
    }
    if (!has_infinity) values_.pop_back();  // all ones is the NaN
  }

  // mode: n nearest, z zero, m down, p up. Values beyond the largest are rounded as if the next one were infinity.
  u64 Round(double x, char mode, bool finite) const {
    if (std::isnan(x)) return nan_;
    const bool negative = std::signbit(x);
    const u64 sign = negative ? 1ull << (width_ - 1) : 0;
    const u64 largest = values_.size() - 1, beyond = finite ? largest : infinity_ ? largest + 1 : nan_;
    if (std::isinf(x)) return sign | (finite ? largest : beyond);
    const double magnitude = std::fabs(x);
    const bool outward = (mode == 'p' && !negative) || (mode == 'm' && negative);
    const u64 above = static_cast<u64>(std::lower_bound(values_.begin(), values_.end(), magnitude) - values_.begin());
    if (above < values_.size() && values_[above] == magnitude) return sign | above;
    const u64 below = above - 1;
    const double next = above < values_.size() ? values_[above] : 2 * values_[largest] - values_[largest - 1];
    const double middle = values_[below] + (next - values_[below]) / 2;
    bool up = outward;
    if (mode == 'n') up = magnitude > middle || (magnitude == middle && (below & 1) != 0);
    return sign | (!up ? below : above < values_.size() ? above : beyond);
  }
  double Value(u64 bits) const {
    const u64 magnitude = bits & ((1ull << (width_ - 1)) - 1);
    const double sign = bits >> (width_ - 1) & 1 ? -1 : 1;
    if (magnitude < values_.size()) return sign * values_[magnitude];
    return infinity_ && magnitude == values_.size() ? sign * HUGE_VAL : NAN;
  }

 private:
  std::vector<double> values_;
  int width_;
  bool infinity_;
  u64 nan_;
};

const Format& Half() {
  static const Format format(5, 10, true, 0x7fff);
  return format;
}
const Format& Bfloat() {
  static const Format format(8, 7, true, 0x7fff);
  return format;
}
const Format& E4m3() {
  static const Format format(4, 3, false, 0x7f);
  return format;
}
const Format& E5m2() {
  static const Format format(5, 2, true, 0x7f);
  return format;
}

// Edges and random values of f32, with more in the range of the narrow formats than elsewhere.
const std::vector<u64>& Singles() {
  static const std::vector<u64> values = [] {
    std::vector<u64> list;
    for (uint32_t bits : {0u,          0x80000000u, 1u,          0x007fffffu, 0x00800000u, 0x3f800000u, 0xbf800000u,
                          0x7f7fffffu, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x33000000u, 0x33000001u, 0x33800000u,
                          0x387fc000u, 0x477fefffu, 0x477ff000u, 0x43e00000u, 0x43e80000u, 0x4f000000u, 0x4f800000u,
                          0xcf000000u, 0x5f000000u, 0x3f000000u, 0x3fc00000u, 0x40200000u})
      list.push_back(bits);
    std::mt19937 random(static_cast<uint32_t>(Seed()));
    for (int i = 0; i < 60; ++i) {
      list.push_back(random());
      list.push_back((random() & 0x80ffffff) | (0x30u + random() % 0x20) << 24);
      list.push_back((random() & 0x807fe000) | (112u + random() % 32) << 23);  // ties of f16
    }
    return list;
  }();
  return values;
}

const std::vector<u64>& Doubles() {
  static const std::vector<u64> values = [] {
    std::vector<u64> list;
    for (u64 bits : Singles()) list.push_back(B(static_cast<double>(F(bits))));
    std::mt19937_64 random(Seed());
    for (int i = 0; i < 60; ++i) list.push_back(random());
    // Which payload NaNs keep is not tested here.
    std::erase_if(list, [](u64 bits) { return std::isnan(D(bits)); });
    return list;
  }();
  return values;
}

bool SameDouble(u64 a, u64 b) { return a == b || (std::isnan(D(a)) && std::isnan(D(b))); }

OpcodeCase Single(const std::string& text, Oracle oracle) {
  return {text, 32, 32, std::move(oracle), &Singles(), nullptr};
}
OpcodeCase Double(const std::string& text, Oracle oracle) {
  return {text, 64, 64, std::move(oracle), &Doubles(), SameDouble};
}

template <class F1>
u64 Rounded(int mode, F1&& f) {
  std::fesetround(mode);
  volatile auto result = f();
  std::fesetround(FE_TONEAREST);
  return B(static_cast<decltype(f())>(result));
}

TEST(Float, SingleArithmetic) {
  CheckOpcodes({
      Single("add.f32 %d, %a, %b;", [](u64 a, u64 b, u64) { return B(F(a) + F(b)); }),
      Single("sub.rn.f32 %d, %a, %b;", [](u64 a, u64 b, u64) { return B(F(a) - F(b)); }),
      Single("mul.f32 %d, %a, %b;", [](u64 a, u64 b, u64) { return B(F(a) * F(b)); }),
      Single("fma.rn.f32 %d, %a, %b, %c;", [](u64 a, u64 b, u64 c) { return B(std::fma(F(a), F(b), F(c))); }),
      Single("div.rn.f32 %d, %a, %b;", [](u64 a, u64 b, u64) { return B(F(a) / F(b)); }),
      Single("sqrt.rn.f32 %d, %a;", [](u64 a, u64, u64) { return B(std::sqrt(F(a))); }),
      Single("rcp.rn.f32 %d, %a;", [](u64 a, u64, u64) { return B(1 / F(a)); }),
      Single("add.sat.f32 %d, %a, %b;",
             [](u64 a, u64 b, u64) {
               const float x = F(a) + F(b);
               return B(x > 1 ? 1.0f : x > 0 ? x : 0.0f);
             }),
      Single("neg.f32 %d, %a;", [](u64 a, u64, u64) { return B(-F(a)); }),
      Single("abs.f32 %d, %a;", [](u64 a, u64, u64) { return B(std::fabs(F(a))); }),
      Single("copysign.f32 %d, %a, %b;", [](u64 a, u64 b, u64) { return (b & 0x7fffffff) | (a & 0x80000000); }),
      Single("min.f32 %d, %a, %b;",
             [](u64 a, u64 b, u64) {
               if (F(a) == 0 && F(b) == 0) return a | b;
               if (std::isnan(F(a))) return B(F(b));
               return std::isnan(F(b)) ? B(F(a)) : B(std::fmin(F(a), F(b)));
             }),
      Single("max.NaN.f32 %d, %a, %b;",
             [](u64 a, u64 b, u64) {
               if (std::isnan(F(a)) || std::isnan(F(b))) return u64{0x7fffffff};
               if (F(a) == 0 && F(b) == 0) return a & b;
               return B(std::fmax(F(a), F(b)));
             }),
  });
}

TEST(Float, DirectedRoundings) {
  struct Mode {
    const char* name;
    int mode;
  };
  for (const Mode mode : {Mode{"rz", FE_TOWARDZERO}, Mode{"rm", FE_DOWNWARD}, Mode{"rp", FE_UPWARD}}) {
    const std::string dot = std::string(".") + mode.name;
    CheckOpcodes({
        Single("add" + dot + ".f32 %d, %a, %b;",
               [=](u64 a, u64 b, u64) {
                 volatile float x = F(a), y = F(b);
                 return Rounded(mode.mode, [&] { return x + y; });
               }),
        Single("mul" + dot + ".f32 %d, %a, %b;",
               [=](u64 a, u64 b, u64) {
                 volatile float x = F(a), y = F(b);
                 return Rounded(mode.mode, [&] { return x * y; });
               }),
        Single("fma" + dot + ".f32 %d, %a, %b, %c;",
               [=](u64 a, u64 b, u64 c) {
                 volatile float x = F(a), y = F(b), z = F(c);
                 return Rounded(mode.mode, [&] { return std::fma(x, y, z); });
               }),
        Double("add" + dot + ".f64 %d, %a, %b;",
               [=](u64 a, u64 b, u64) {
                 volatile double x = D(a), y = D(b);
                 return Rounded(mode.mode, [&] { return x + y; });
               }),
        {"cvt" + dot + ".f32.f64 %d, %a;", 64, 32,
         [=](u64 a, u64, u64) {
           volatile double x = D(a);
           return Rounded(mode.mode, [&] { return static_cast<float>(x); });
         },
         &Doubles(), nullptr},
        {"cvt" + dot + ".f32.s64 %d, %a;", 64, 32,
         [=](u64 a, u64, u64) {
           volatile int64_t x = static_cast<int64_t>(a);
           return Rounded(mode.mode, [&] { return static_cast<float>(x); });
         },
         nullptr, nullptr},
        {"cvt" + dot + ".f64.u64 %d, %a;", 64, 64,
         [=](u64 a, u64, u64) {
           volatile u64 x = a;
           return Rounded(mode.mode, [&] { return static_cast<double>(x); });
         },
         nullptr, nullptr},
    });
  }
}

TEST(Float, DoubleArithmetic) {
  CheckOpcodes({
      Double("add.f64 %d, %a, %b;", [](u64 a, u64 b, u64) { return B(D(a) + D(b)); }),
      Double("mul.rn.f64 %d, %a, %b;", [](u64 a, u64 b, u64) { return B(D(a) * D(b)); }),
      Double("fma.rn.f64 %d, %a, %b, %c;", [](u64 a, u64 b, u64 c) { return B(std::fma(D(a), D(b), D(c))); }),
      Double("div.rn.f64 %d, %a, %b;", [](u64 a, u64 b, u64) { return B(D(a) / D(b)); }),
      Double("sqrt.rn.f64 %d, %a;", [](u64 a, u64, u64) { return B(std::sqrt(D(a))); }),
      Double("max.f64 %d, %a, %b;",
             [](u64 a, u64 b, u64) { return D(a) == 0 && D(b) == 0 ? a & b : B(std::fmax(D(a), D(b))); }),
  });
}

float Flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

TEST(Float, FlushesWhereAsked) {
  CheckOpcodes({
      Single("add.ftz.f32 %d, %a, %b;", [](u64 a, u64 b, u64) { return B(Flush(Flush(F(a)) + Flush(F(b)))); }),
      Single("mul.ftz.f32 %d, %a, %b;", [](u64 a, u64 b, u64) { return B(Flush(Flush(F(a)) * Flush(F(b)))); }),
  });
}

TEST(Float, Approximations) {
  const auto close = [](u64 got, u64 wanted) {
    return got == wanted || std::fabs(F(got) - F(wanted)) <= std::fabs(F(wanted)) * 1e-6f + 1e-30f;
  };
  const auto check = [&](const std::string& text, double (*f)(double)) {
    CheckOpcode({text + " %d, %a;", 32, 32, [=](u64 a, u64, u64) { return B(static_cast<float>(f(F(a)))); }, &Singles(),
                 close});
  };
  check("ex2.approx.f32", [](double x) { return std::exp2(x); });
  check("lg2.approx.f32", [](double x) { return std::log2(x); });
  check("sin.approx.f32", [](double x) { return std::sin(x); });
  check("tanh.approx.f32", [](double x) { return std::tanh(x); });
  check("rsqrt.approx.f32", [](double x) { return 1 / std::sqrt(x); });
  check("rcp.approx.f32", [](double x) { return 1 / x; });
}

TEST(Float, Comparisons) {
  struct Row {
    const char* name;
    bool (*f)(float, float);
  };
  const Row rows[] = {
      {"eq", [](float a, float b) { return a == b; }},
      {"ne", [](float a, float b) { return a < b || a > b; }},
      {"lt", [](float a, float b) { return a < b; }},
      {"ge", [](float a, float b) { return a >= b; }},
      {"equ", [](float a, float b) { return !(a < b || a > b); }},
      {"neu", [](float a, float b) { return a != b; }},
      {"ltu", [](float a, float b) { return !(a >= b); }},
      {"gtu", [](float a, float b) { return !(a <= b); }},
      {"num", [](float a, float b) { return !std::isnan(a) && !std::isnan(b); }},
      {"nan", [](float a, float b) { return std::isnan(a) || std::isnan(b); }},
  };
  for (const Row& row : rows) {
    CheckOpcode(Single("setp." + std::string(row.name) + ".f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;",
                       [=](u64 a, u64 b, u64) { return u64{row.f(F(a), F(b))}; }));
    CheckOpcode(Single("set." + std::string(row.name) + ".f32.f32 %d, %a, %b;",
                       [=](u64 a, u64 b, u64) { return row.f(F(a), F(b)) ? 0x3f800000ull : 0; }));
  }
}

TEST(Float, ToIntegers) {
  const auto clamped = [](double x, double low, double high) { return x < low ? low : x > high ? high : x; };
  CheckOpcodes({
      Single("cvt.rzi.s32.f32 %d, %a;",
             [=](u64 a, u64, u64) {
               return std::isnan(F(a)) ? 0
                                       : static_cast<u64>(static_cast<int64_t>(
                                             clamped(std::trunc(F(a)), -2147483648.0, 2147483647.0)));
             }),
      Single("cvt.rni.u32.f32 %d, %a;",
             [=](u64 a, u64, u64) {
               return std::isnan(F(a)) ? 0 : static_cast<u64>(clamped(std::nearbyint(F(a)), 0, 4294967295.0));
             }),
      Single("cvt.rmi.s32.f32 %d, %a;",
             [=](u64 a, u64, u64) {
               return std::isnan(F(a)) ? 0
                                       : static_cast<u64>(static_cast<int64_t>(
                                             clamped(std::floor(F(a)), -2147483648.0, 2147483647.0)));
             }),
      {"cvt.rzi.s64.f32 %d, %a;", 32, 64,
       [](u64 a, u64, u64) {
         const float x = F(a);
         if (std::isnan(x) || x < -0x1p63f) return 0x8000000000000000;
         return x >= 0x1p63f ? 0x7fffffffffffffff : static_cast<u64>(static_cast<int64_t>(x));
       },
       &Singles(), nullptr},
      Single("cvt.rpi.f32.f32 %d, %a;", [](u64 a, u64, u64) { return B(std::ceil(F(a))); }),
      Single("cvt.rn.f32.s32 %d, %a;", [](u64 a, u64, u64) { return B(static_cast<float>(static_cast<int32_t>(a))); }),
      {"cvt.rn.f32.u64 %d, %a;", 64, 32, [](u64 a, u64, u64) { return B(static_cast<float>(a)); }, nullptr, nullptr},
      {"cvt.f64.f32 %d, %a;", 32, 64, [](u64 a, u64, u64) { return B(static_cast<double>(F(a))); }, &Singles(),
       SameDouble},
  });
}

TEST(Float, ToNarrowFormats) {
  const auto pair = [](const Format& format, char mode, bool finite, int width) {
    return [&format, mode, finite, width](u64 a, u64 b, u64) {
      return format.Round(F(a), mode, finite) << width | format.Round(F(b), mode, finite);
    };
  };
  for (const char mode : {'n', 'z'}) {
    const std::string dot = std::string(".r") + mode;
    CheckOpcodes({
        {"cvt" + dot + ".f16.f32 %d, %a;", 32, 16, [=](u64 a, u64, u64) { return Half().Round(F(a), mode, false); },
         &Singles(), nullptr},
        {"cvt" + dot + ".bf16.f32 %d, %a;", 32, 16, [=](u64 a, u64, u64) { return Bfloat().Round(F(a), mode, false); },
         &Singles(), nullptr},
        Single("cvt" + dot + ".f16x2.f32 %d, %a, %b;", pair(Half(), mode, false, 16)),
        Single("cvt" + dot + ".bf16x2.f32 %d, %a, %b;", pair(Bfloat(), mode, false, 16)),
    });
  }
  CheckOpcodes({
      {"cvt.rp.f16.f32 %d, %a;", 32, 16, [](u64 a, u64, u64) { return Half().Round(F(a), 'p', false); }, &Singles(),
       nullptr},
      {"cvt.rm.f16.f64 %d, %a;", 64, 16, [](u64 a, u64, u64) { return Half().Round(D(a), 'm', false); }, &Doubles(),
       nullptr},
      {"cvt.rn.f16.f64 %d, %a;", 64, 16, [](u64 a, u64, u64) { return Half().Round(D(a), 'n', false); }, &Doubles(),
       nullptr},
      // Up to 52 bits, so that the oracle's double is exact.
      {"shr.s64 %a, %a, 12; cvt.rn.bf16.s64 %d, %a;", 64, 16,
       [](u64 a, u64, u64) { return Bfloat().Round(static_cast<double>(static_cast<int64_t>(a) >> 12), 'n', false); },
       nullptr, nullptr},
      {"cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", 32, 16, pair(E4m3(), 'n', true, 8), &Singles(), nullptr},
      {"cvt.rn.satfinite.e5m2x2.f32 %d, %a, %b;", 32, 16, pair(E5m2(), 'n', true, 8), &Singles(), nullptr},
  });
}

std::vector<u64> AllOf16() {
  std::vector<u64> values;
  std::mt19937 random(static_cast<uint32_t>(Seed()));
  for (u64 bits : {0u, 0x8000u, 1u, 0x3ffu, 0x400u, 0x3c00u, 0x7bffu, 0x7c00u, 0xfc00u, 0x7e00u, 0x7f80u, 0x7f7fu,
                   0x0080u, 0x007fu})
    values.push_back(bits);
  for (int i = 0; i < 150; ++i) values.push_back(random() & 0xffff);
  return values;
}
const std::vector<u64>& Sixteens() {
  static const std::vector<u64> values = AllOf16();
  return values;
}

void CheckHalf(const std::string& type, const Format& format) {
  const auto binary = [&](const std::string& op, double (*f)(double, double)) {
    CheckOpcode(
        {op + "." + type + " %d, %a, %b;", 16, 16,
         [&format, f](u64 a, u64 b, u64) { return format.Round(f(format.Value(a), format.Value(b)), 'n', false); },
         &Sixteens(), nullptr});
  };
  binary("add.rn", [](double a, double b) { return a + b; });
  binary("sub.rn", [](double a, double b) { return a - b; });
  binary("mul.rn", [](double a, double b) { return a * b; });
  CheckOpcode({"fma.rn." + type + " %d, %a, %b, %c;", 16, 16,
               [&format](u64 a, u64 b, u64 c) {
                 // The product is exact. What the sum loses matters if the sum is a tie, which has an even last bit.
                 const double product = format.Value(a) * format.Value(b), sum = product + format.Value(c);
                 const double larger = std::fabs(product) < std::fabs(format.Value(c)) ? format.Value(c) : product;
                 const double smaller = larger == product ? format.Value(c) : product;
                 const double lost = std::isfinite(sum) ? smaller - (sum - larger) : 0;
                 const double nudged =
                     lost == 0 || (B(sum) & 1) != 0 ? sum : std::nextafter(sum, lost > 0 ? HUGE_VAL : -HUGE_VAL);
                 return format.Round(nudged, 'n', false);
               },
               &Sixteens(), nullptr});
  CheckOpcode({"max." + type + " %d, %a, %b;", 16, 16,
               [&format](u64 a, u64 b, u64) {
                 const double x = format.Value(a), y = format.Value(b);
                 if (x == 0 && y == 0) return a & b;
                 return format.Round(std::fmax(x, y), 'n', false);
               },
               &Sixteens(), nullptr});
  CheckOpcode({"setp.lt." + type + " %p, %a, %b; selp.b16 %d, 1, 0, %p;", 16, 16,
               [&format](u64 a, u64 b, u64) { return u64{format.Value(a) < format.Value(b)}; }, &Sixteens(), nullptr});
  CheckOpcode({"cvt.f32." + type + " %d, %a;", 16, 32,
               [&format](u64 a, u64, u64) {
                 const float x = static_cast<float>(format.Value(a));
                 return B(x);
               },
               &Sixteens(), nullptr});
}

TEST(Float, HalfArithmetic) { CheckHalf("f16", Half()); }
TEST(Float, BfloatArithmetic) { CheckHalf("bf16", Bfloat()); }

TEST(Float, Pairs) {
  const auto both = [](auto f) {
    return [f](u64 a, u64 b, u64) { return f(a >> 16, b >> 16) << 16 | f(a & 0xffff, b & 0xffff); };
  };
  CheckOpcodes({
      Single("add.f16x2 %d, %a, %b;",
             both([](u64 a, u64 b) { return Half().Round(Half().Value(a) + Half().Value(b), 'n', false); })),
      Single("mul.bf16x2 %d, %a, %b;",
             both([](u64 a, u64 b) { return Bfloat().Round(Bfloat().Value(a) * Bfloat().Value(b), 'n', false); })),
      {"cvt.rn.f16x2.e4m3x2 %d, %a;", 16, 32,
       [](u64 a, u64, u64) {
         return Half().Round(E4m3().Value(a >> 8), 'n', false) << 16 | Half().Round(E4m3().Value(a & 0xff), 'n', false);
       },
       nullptr, nullptr},
      {"cvt.rn.f16x2.e5m2x2 %d, %a;", 16, 32,
       [](u64 a, u64, u64) {
         return Half().Round(E5m2().Value(a >> 8), 'n', false) << 16 | Half().Round(E5m2().Value(a & 0xff), 'n', false);
       },
       nullptr, nullptr},
  });
}

}  // namespace
}  // namespace softgpu::engine::test
