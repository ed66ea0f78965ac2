// cvt. Built with -frounding-math.
#include <algorithm>
#include <limits>

#include "tools/softgpu/engine/decoder.h"
#include "tools/softgpu/engine/float_apply.h"
#include "tools/softgpu/engine/ops_float.h"
#include "tools/softgpu/engine/small_float.h"

namespace softgpu::engine {
namespace {

struct F16 {};
struct Bf16 {};
struct Tf32 {};

// Every source is exact in double, except 64-bit integers.
template <class S>
double Read(uint64_t value, bool flush) {
  if constexpr (std::is_same_v<S, F16>) return HalfToFloat(static_cast<uint16_t>(value));
  if constexpr (std::is_same_v<S, Bf16>) return BfloatToFloat(static_cast<uint16_t>(value));
  if constexpr (std::is_same_v<S, float>) return flush ? FlushToZero(As<float>(value)) : As<float>(value);
  if constexpr (std::is_same_v<S, double>) return As<double>(value);
  return 0;
}

double RoundToInteger(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return std::nearbyint(value);
    case Rounding::kDown:
      return std::floor(value);
    case Rounding::kUp:
      return std::ceil(value);
    default:
      return std::trunc(value);
  }
}

// Writes a double as D. flag: relu; kind: satfinite.
template <class D>
uint64_t Write(double value, const Instr& in) {
  const Rounding rounding = static_cast<Rounding>(in.kind2);
  const bool nearest = rounding == Rounding::kNearest, finite = in.kind != 0;
  if (in.saturate) value = value > 1 ? 1 : value > 0 ? value : 0;
  if (in.flag && value <= 0) value = 0;
  if constexpr (std::is_same_v<D, double>) return Bits(value);
  if constexpr (std::is_same_v<D, float>) {
    const float result = nearest ? Canonical(static_cast<float>(value)) : As<float>(RoundTo(kSingle, value, rounding));
    return Bits(in.flush ? FlushToZero(result) : result);
  }
  if constexpr (std::is_same_v<D, Tf32>) return uint64_t{RoundTo(kTf32, value, rounding, finite)} << 13;
  const float narrow = static_cast<float>(value);
  const bool quick = nearest && !finite && narrow == value;
  if constexpr (std::is_same_v<D, F16>) return quick ? FloatToHalf(narrow) : RoundTo(kHalf, value, rounding, finite);
  if constexpr (std::is_same_v<D, Bf16>)
    return quick ? FloatToBfloat(narrow) : RoundTo(kBfloat, value, rounding, finite);
  return 0;
}

template <class S, class D>
void RunFloatToFloat(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t* const a = w.In(in.a);
  const bool integral = in.offset != 0;
  ForLanes(lanes, [&](uint32_t i) {
    double value = Read<S>(a[i], in.flush);
    if (integral) value = RoundToInteger(value, static_cast<Rounding>(in.offset - 1));
    d[i] = Write<D>(value, in);
  });
}

template <class D>
uint64_t Extend(D value) {
  return std::is_signed_v<D> ? static_cast<uint64_t>(static_cast<int64_t>(value)) : static_cast<uint64_t>(value);
}

template <class S, class D>
void RunIntegerToInteger(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t* const a = w.In(in.a);
  if (!in.saturate) {
    ForLanes(lanes, [&](uint32_t i) { d[i] = Extend(static_cast<D>(As<S>(a[i]))); });
    return;
  }
  ForLanes(lanes, [&](uint32_t i) {
    const __int128 value = As<S>(a[i]), low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
    d[i] = Extend(static_cast<D>(std::clamp(value, low, high)));
  });
}

// Bits below the 53 that double holds are folded into the lowest one, so that the second rounding is correct.
template <class S>
double ToOdd(S value) {
  if constexpr (sizeof(S) < 8) return static_cast<double>(value);
  const bool negative = value < 0;
  const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  if (magnitude < 1ull << 53) return static_cast<double>(value);
  const uint64_t sticky = (magnitude >> 11) | ((magnitude & 0x7ff) != 0 ? 1 : 0);
  const double result = static_cast<double>(sticky) * 2048.0;
  return negative ? -result : result;
}

template <class S, class D>
void RunIntegerToFloat(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t* const a = w.In(in.a);
  if constexpr (std::is_same_v<D, double>) {
    const ScopedRounding rounding(static_cast<Rounding>(in.kind2));
    ForLanes(lanes, [&](uint32_t i) {
      volatile S value = As<S>(a[i]);
      volatile double result = static_cast<double>(value);
      d[i] = Write<double>(result, in);
    });
    return;
  }
  ForLanes(lanes, [&](uint32_t i) { d[i] = Write<D>(ToOdd(As<S>(a[i])), in); });
}

template <class S, class D>
void RunFloatToInteger(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t* const a = w.In(in.a);
  const Rounding rounding = static_cast<Rounding>(in.offset - 1);
  constexpr double low = static_cast<double>(std::numeric_limits<D>::min());
  const double high = std::ldexp(1.0, std::numeric_limits<D>::digits);  // the first value beyond
  constexpr bool nan_is_zero = !std::is_same_v<S, double> && sizeof(D) < 8;
  ForLanes(lanes, [&](uint32_t i) {
    const double value = RoundToInteger(Read<S>(a[i], in.flush), rounding);
    D result;
    if (value != value) {
      result = nan_is_zero ? D{0} : static_cast<D>(uint64_t{1} << (8 * sizeof(D) - 1));
    } else if (value >= high) {
      result = std::numeric_limits<D>::max();
    } else {
      result = value <= low ? std::numeric_limits<D>::min() : static_cast<D>(value);
    }
    d[i] = Extend(result);
  });
}

template <class S, class D>
constexpr Handler Choose() {
  constexpr bool from = std::is_integral_v<S>, to = std::is_integral_v<D>;
  if constexpr (from && to) return RunIntegerToInteger<S, D>;
  if constexpr (from && !to) return RunIntegerToFloat<S, D>;
  if constexpr (!from && to) return RunFloatToInteger<S, D>;
  if constexpr (!from && !to) return RunFloatToFloat<S, D>;
}

template <class S>
Handler HandlerTo(Type to) {
  switch (to) {
    case Type::kU8:
    case Type::kB8:
      return Choose<S, uint8_t>();
    case Type::kS8:
      return Choose<S, int8_t>();
    case Type::kU16:
    case Type::kB16:
      return Choose<S, uint16_t>();
    case Type::kS16:
      return Choose<S, int16_t>();
    case Type::kU32:
    case Type::kB32:
      return Choose<S, uint32_t>();
    case Type::kS32:
      return Choose<S, int32_t>();
    case Type::kU64:
    case Type::kB64:
      return Choose<S, uint64_t>();
    case Type::kS64:
      return Choose<S, int64_t>();
    case Type::kF16:
      return Choose<S, F16>();
    case Type::kBf16:
      return Choose<S, Bf16>();
    case Type::kF32:
      return Choose<S, float>();
    case Type::kF64:
      return Choose<S, double>();
    case Type::kTf32:
      return Choose<S, Tf32>();
    default:
      return nullptr;
  }
}

Handler HandlerOf(Type to, Type from) {
  switch (from) {
    case Type::kU8:
    case Type::kB8:
      return HandlerTo<uint8_t>(to);
    case Type::kS8:
      return HandlerTo<int8_t>(to);
    case Type::kU16:
    case Type::kB16:
      return HandlerTo<uint16_t>(to);
    case Type::kS16:
      return HandlerTo<int16_t>(to);
    case Type::kU32:
    case Type::kB32:
      return HandlerTo<uint32_t>(to);
    case Type::kS32:
      return HandlerTo<int32_t>(to);
    case Type::kU64:
    case Type::kB64:
      return HandlerTo<uint64_t>(to);
    case Type::kS64:
      return HandlerTo<int64_t>(to);
    case Type::kF16:
      return HandlerTo<F16>(to);
    case Type::kBf16:
      return HandlerTo<Bf16>(to);
    case Type::kF32:
      return HandlerTo<float>(to);
    case Type::kF64:
      return HandlerTo<double>(to);
    default:
      return nullptr;
  }
}

const FloatFormat* PackedFormat(Type type) {
  switch (type) {
    case Type::kF16x2:
      return &kHalf;
    case Type::kBf16x2:
      return &kBfloat;
    case Type::kE4m3x2:
      return &kE4m3;
    case Type::kE5m2x2:
      return &kE5m2;
    default:
      return nullptr;
  }
}

const FloatFormat& FormatAt(int64_t index) {
  static constexpr const FloatFormat* formats[] = {&kHalf, &kBfloat, &kE4m3, &kE5m2};
  return *formats[index];
}

int64_t FormatIndex(Type type) {
  switch (type) {
    case Type::kF16x2:
      return 0;
    case Type::kBf16x2:
      return 1;
    case Type::kE4m3x2:
      return 2;
    default:
      return 3;
  }
}

// To a pair: from two floats (the first becomes the upper half), or from another pair (bytes: its format + 1).
// offset: the format.
void RunPair(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b);
  const FloatFormat& to = FormatAt(in.offset);
  const int half = to.exponent_bits + to.mantissa_bits + 1;
  const auto one = [&](double value) {
    if (in.flag && value <= 0) value = 0;
    return uint64_t{RoundTo(to, value, static_cast<Rounding>(in.kind2), in.kind != 0)};
  };
  ForLanes(lanes, [&](uint32_t i) {
    double upper = As<float>(a[i]), lower = As<float>(b[i]);
    if (in.bytes != 0) {
      const FloatFormat& from = FormatAt(in.bytes - 1);
      const int width = from.exponent_bits + from.mantissa_bits + 1;
      const uint32_t mask = (1u << width) - 1;
      upper = ValueOf(from, static_cast<uint32_t>(a[i] >> width) & mask);
      lower = ValueOf(from, static_cast<uint32_t>(a[i]) & mask);
    }
    d[i] = one(upper) << half | one(lower);
  });
}

bool DecodePair(Decoder& decoder, Type to, Type from, Rounding rounding, bool finite, bool relu) {
  const bool from_pair = PackedFormat(from) != nullptr;
  if (!from_pair && from != Type::kF32) return false;
  const ColumnId a = decoder.Source(1, from), b = from_pair ? a : decoder.Source(2, from);
  Instr& in = decoder.Emit(RunPair);
  in.a = a;
  in.b = b;
  in.d = decoder.Target(0);
  in.offset = FormatIndex(to);
  in.bytes = from_pair ? static_cast<uint8_t>(FormatIndex(from) + 1) : uint8_t{0};
  in.kind = finite;
  in.kind2 = static_cast<uint8_t>(rounding);
  in.flag = relu;
  return true;
}

// cvt.pack: two s32 saturated to a narrow type; with a third operand, moved up above its low half.
template <class D>
void RunPack(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  constexpr uint32_t width = 8 * sizeof(D);
  const auto saturate = [](uint64_t value) {
    const int64_t wide = As<int32_t>(value);
    return Bits(
        static_cast<D>(std::clamp<int64_t>(wide, std::numeric_limits<D>::min(), std::numeric_limits<D>::max())));
  };
  ForLanes(lanes, [&](uint32_t i) {
    const uint64_t packed = saturate(a[i]) << width | saturate(b[i]);
    d[i] = static_cast<uint32_t>(width == 16 ? packed : c[i] << 16 | packed);
  });
}

bool DecodePack(Decoder& decoder) {
  decoder.Take("sat");
  const Type to = decoder.TakeType();
  while (decoder.TakeType() != Type::kNone) {
  }
  Handler run = nullptr;
  if (to == Type::kU16) run = RunPack<uint16_t>;
  if (to == Type::kS16) run = RunPack<int16_t>;
  if (to == Type::kU8) run = RunPack<uint8_t>;
  if (to == Type::kS8) run = RunPack<int8_t>;
  if (run == nullptr) return false;
  const ColumnId a = decoder.Source(1, Type::kS32), b = decoder.Source(2, Type::kS32);
  const ColumnId c = decoder.operands() > 3 ? decoder.Source(3, Type::kB32) : decoder.columns().Constant(0);
  Instr& in = decoder.Emit(run);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = decoder.Target(0);
  return true;
}

bool DecodeCvt(Decoder& decoder) {
  if (decoder.Take("pack")) return DecodePack(decoder);
  constexpr std::string_view integral_names[] = {"rni", "rzi", "rmi", "rpi"};
  const int integral = decoder.TakeOneOf(integral_names, -1);
  const Rounding rounding = TakeRounding(decoder, Rounding::kNearest);
  const bool flush = decoder.Take("ftz"), saturate = decoder.Take("sat"), relu = decoder.Take("relu");
  const bool finite = decoder.Take("satfinite");
  const Type to = decoder.TakeType(), from = decoder.TakeType();
  if (PackedFormat(to) != nullptr) return DecodePair(decoder, to, from, rounding, finite, relu);
  const Handler run = HandlerOf(to, from);
  if (run == nullptr) return false;
  const bool to_integer = IsFloat(from) && !IsFloat(to);
  const ColumnId a = decoder.Source(1, from);
  Instr& in = decoder.Emit(run);
  in.a = a;
  in.d = decoder.Target(0);
  in.kind = finite;
  in.kind2 = static_cast<uint8_t>(rounding);
  // 1 + the rounding to an integer; the names are in the order of Rounding. nvcc always names it for integers.
  in.offset = integral >= 0 ? integral + 1 : to_integer ? 1 + static_cast<int>(Rounding::kZero) : 0;
  in.flush = flush;
  in.saturate = saturate;
  in.flag = relu;
  return true;
}

constexpr OpcodeRow kRows[] = {{"cvt", DecodeCvt}};

}  // namespace

std::span<const OpcodeRow> ConvertOpcodes() { return kRows; }

}  // namespace softgpu::engine
