// set, setp, selp, slct.
#include <bit>
#include <cmath>

#include "tools/softgpu/engine/decoder.h"
#include "tools/softgpu/engine/small_float.h"

namespace softgpu::engine {
namespace {

enum class Compare : uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLo,
  kLs,
  kHi,
  kHs,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan
};
constexpr std::string_view kCompareNames[] = {"eq", "ne",  "lt",  "le",  "gt",  "ge",  "lo",  "ls",  "hi",
                                              "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
constexpr std::string_view kCombineNames[] = {"and", "or", "xor"};

// Reads lanes as T itself, or as a 16-bit float at bit `shift` of the value.
template <class T>
struct Plain {
  using Value = T;
  static T Read(uint64_t value, bool flush) {
    const T read = As<T>(value);
    if constexpr (std::is_same_v<T, float>) {
      if (flush && std::fabs(read) < 0x1p-126f) return 0;
    }
    return read;
  }
};
template <bool half, int shift>
struct Narrow {
  using Value = float;
  static float Read(uint64_t value, bool) {
    const uint16_t bits = static_cast<uint16_t>(value >> shift);
    return half ? HalfToFloat(bits) : BfloatToFloat(bits);
  }
};

template <class Reader, class F>
uint32_t Test(const Warp& w, const Instr& in, uint32_t lanes, F&& f) {
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b);
  uint32_t bits = 0;
  ForLanes(lanes, [&](uint32_t i) {
    bits |= static_cast<uint32_t>(f(Reader::Read(a[i], in.flush), Reader::Read(b[i], in.flush))) << i;
  });
  return bits;
}

// With a NaN, ordered comparisons of floats are false; only kNe needs special treatment.
template <class Reader>
uint32_t Evaluate(const Warp& w, const Instr& in, uint32_t lanes) {
  using T = typename Reader::Value;
  switch (static_cast<Compare>(in.kind)) {
    case Compare::kEq:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return a == b; });
    case Compare::kNe:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return a < b || a > b; });
    case Compare::kLt:
    case Compare::kLo:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return a < b; });
    case Compare::kLe:
    case Compare::kLs:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return a <= b; });
    case Compare::kGt:
    case Compare::kHi:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return a > b; });
    case Compare::kGe:
    case Compare::kHs:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return a >= b; });
    case Compare::kEqu:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return !(a < b || a > b); });
    case Compare::kNeu:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return a != b; });
    case Compare::kLtu:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return !(a >= b); });
    case Compare::kLeu:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return !(a > b); });
    case Compare::kGtu:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return !(a <= b); });
    case Compare::kGeu:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return !(a < b); });
    case Compare::kNum:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return a == a && b == b; });
    case Compare::kNan:
      return Test<Reader>(w, in, lanes, [](T a, T b) { return a != a || b != b; });
  }
  return 0;
}

// kind2: 0 none, else 1 + the index in kCombineNames.
uint32_t Combine(const Instr& in, uint32_t result, uint32_t with) {
  switch (in.kind2) {
    case 1:
      return result & with;
    case 2:
      return result | with;
    case 3:
      return result ^ with;
    default:
      return result;
  }
}

template <class Reader>
void RunSetp(Warp& w, const Instr& in, uint32_t lanes) {
  const uint32_t result = Evaluate<Reader>(w, in, lanes), with = w.Predicate(in.pa);
  const uint32_t first = Combine(in, result, with), second = Combine(in, ~result, with);
  w.SetPredicate(in.pd, lanes, first);
  w.SetPredicate(in.pd2, lanes, second);
}

// Two comparisons: p of the low halves, q of the high ones.
template <bool half>
void RunSetpPair(Warp& w, const Instr& in, uint32_t lanes) {
  const uint32_t with = w.Predicate(in.pa);
  const uint32_t low = Combine(in, Evaluate<Narrow<half, 0>>(w, in, lanes), with);
  const uint32_t high = Combine(in, Evaluate<Narrow<half, 16>>(w, in, lanes), with);
  w.SetPredicate(in.pd, lanes, low);
  w.SetPredicate(in.pd2, lanes, high);
}

// offset: the value of true.
template <class Reader>
void RunSet(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint32_t result = Combine(in, Evaluate<Reader>(w, in, lanes), w.Predicate(in.pa));
  ForLanes(lanes, [&](uint32_t i) { d[i] = (result >> i & 1) != 0 ? static_cast<uint64_t>(in.offset) : 0; });
}

template <bool half>
void RunSetPair(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint32_t with = w.Predicate(in.pa);
  const uint32_t low = Combine(in, Evaluate<Narrow<half, 0>>(w, in, lanes), with);
  const uint32_t high = Combine(in, Evaluate<Narrow<half, 16>>(w, in, lanes), with);
  ForLanes(lanes, [&](uint32_t i) {
    d[i] = ((low >> i & 1) != 0 ? static_cast<uint64_t>(in.offset) & 0xffff : 0) |
           ((high >> i & 1) != 0 ? static_cast<uint64_t>(in.offset) & 0xffff0000 : 0);
  });
}

struct Handlers {
  Handler setp, set;
};
template <class Reader>
constexpr Handlers kBoth = {RunSetp<Reader>, RunSet<Reader>};

Handlers HandlersOf(Type type, bool is_unsigned) {
  switch (type) {
    case Type::kU16:
    case Type::kB16:
      return kBoth<Plain<uint16_t>>;
    case Type::kU32:
    case Type::kB32:
      return kBoth<Plain<uint32_t>>;
    case Type::kU64:
    case Type::kB64:
      return kBoth<Plain<uint64_t>>;
    case Type::kS16:
      return is_unsigned ? kBoth<Plain<uint16_t>> : kBoth<Plain<int16_t>>;
    case Type::kS32:
      return is_unsigned ? kBoth<Plain<uint32_t>> : kBoth<Plain<int32_t>>;
    case Type::kS64:
      return is_unsigned ? kBoth<Plain<uint64_t>> : kBoth<Plain<int64_t>>;
    case Type::kF32:
      return kBoth<Plain<float>>;
    case Type::kF64:
      return kBoth<Plain<double>>;
    case Type::kF16:
      return kBoth<Narrow<true, 0>>;
    case Type::kBf16:
      return kBoth<Narrow<false, 0>>;
    case Type::kF16x2:
      return {RunSetpPair<true>, RunSetPair<true>};
    case Type::kBf16x2:
      return {RunSetpPair<false>, RunSetPair<false>};
    default:
      return {nullptr, nullptr};
  }
}

struct Modifiers {
  int compare, combine;
  bool flush;
};

bool TakeModifiers(Decoder& decoder, Modifiers* modifiers) {
  modifiers->compare = decoder.TakeOneOf(kCompareNames, -1);
  modifiers->combine = decoder.TakeOneOf(kCombineNames, -1);
  modifiers->flush = decoder.Take("ftz");
  return modifiers->compare >= 0;
}

bool EmitCompare(Decoder& decoder, Handler run, Type type, const Modifiers& modifiers) {
  const ColumnId a = decoder.Source(1, type), b = decoder.Source(2, type);
  Instr& in = decoder.Emit(run);
  in.a = a;
  in.b = b;
  in.kind = static_cast<uint8_t>(modifiers.compare);
  in.kind2 = static_cast<uint8_t>(modifiers.combine + 1);
  in.flush = modifiers.flush;
  if (modifiers.combine >= 0) in.pa = decoder.SourcePredicate(3);
  return true;
}

bool IsUnsignedCompare(int compare) {
  return compare >= static_cast<int>(Compare::kLo) && compare <= static_cast<int>(Compare::kHs);
}

bool DecodeSetp(Decoder& decoder) {
  Modifiers modifiers;
  if (!TakeModifiers(decoder, &modifiers)) return false;
  const Type type = decoder.TakeType();
  const Handler run = HandlersOf(type, IsUnsignedCompare(modifiers.compare)).setp;
  if (run == nullptr || !EmitCompare(decoder, run, type, modifiers)) return false;
  Instr& in = decoder.procedure().code.back();
  in.pd = decoder.TargetPredicateOf(decoder.operand(0));
  if (decoder.operand(0).second != nullptr) in.pd2 = decoder.TargetPredicateOf(*decoder.operand(0).second);
  return true;
}

int64_t TrueOf(Type type) {
  switch (type) {
    case Type::kF32:
      return 0x3f800000;
    case Type::kF16:
      return 0x3c00;
    case Type::kBf16:
      return 0x3f80;
    case Type::kF16x2:
      return 0x3c003c00;
    case Type::kBf16x2:
      return 0x3f803f80;
    default:
      return SizeOf(type) == 2 ? 0xffff : 0xffffffff;
  }
}

bool DecodeSet(Decoder& decoder) {
  Modifiers modifiers;
  if (!TakeModifiers(decoder, &modifiers)) return false;
  const Type to = decoder.TakeType(), type = decoder.TakeType();
  const Handler run = HandlersOf(type, IsUnsignedCompare(modifiers.compare)).set;
  if (run == nullptr || !EmitCompare(decoder, run, type, modifiers)) return false;
  Instr& in = decoder.procedure().code.back();
  in.offset = TrueOf(to);
  in.d = decoder.Target(0);
  return true;
}

template <class T>
void RunSelect(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b);
  const uint32_t chosen = w.Predicate(in.pa);
  ForLanes(lanes, [&](uint32_t i) { d[i] = static_cast<T>((chosen >> i & 1) != 0 ? a[i] : b[i]); });
}

bool DecodeSelp(Decoder& decoder) {
  const Type type = decoder.TakeType();
  const uint32_t bytes = SizeOf(type);
  const ColumnId a = decoder.Source(1, type), b = decoder.Source(2, type);
  Instr& in = decoder.Emit(bytes == 8 ? RunSelect<uint64_t> : bytes == 4 ? RunSelect<uint32_t> : RunSelect<uint16_t>);
  in.a = a;
  in.b = b;
  in.pa = decoder.SourcePredicate(3);
  in.d = decoder.Target(0);
  return true;
}

// slct: a where c >= 0. kind: c is a float.
void RunSlct(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  ForLanes(lanes, [&](uint32_t i) {
    const float value = Plain<float>::Read(c[i], in.flush);
    d[i] = (in.flag ? value >= 0 : As<int32_t>(c[i]) >= 0) ? a[i] : b[i];
  });
}

bool DecodeSlct(Decoder& decoder) {
  const bool flush = decoder.Take("ftz");
  const Type type = decoder.TakeType(), by = decoder.TakeType();
  const ColumnId a = decoder.Source(1, type), b = decoder.Source(2, type), c = decoder.Source(3, by);
  Instr& in = decoder.Emit(RunSlct);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = decoder.Target(0);
  in.flush = flush;
  in.flag = by == Type::kF32;
  return true;
}

constexpr OpcodeRow kRows[] = {{"setp", DecodeSetp}, {"set", DecodeSet}, {"selp", DecodeSelp}, {"slct", DecodeSlct}};

}  // namespace

std::span<const OpcodeRow> CompareOpcodes() { return kRows; }

}  // namespace softgpu::engine
