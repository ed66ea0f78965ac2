// Integer arithmetic.
#include "tools/softgpu/engine/ops_integer.h"

#include <limits>
#include <type_traits>

namespace softgpu::engine {
namespace {

template <class T>
T High(T a, T b) {
  using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> (8 * sizeof(T)));
}

// Wraps like the hardware; division by zero gives all ones.
template <IntegerOp op, class T>
T Apply(T a, T b, T c) {
  using U = std::make_unsigned_t<T>;
  const auto product = [&] { return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); };
  constexpr bool is_signed = std::is_signed_v<T>;
  switch (op) {
    case IntegerOp::kAdd:
      return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    case IntegerOp::kSub:
      return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
    case IntegerOp::kMulLow:
      return product();
    case IntegerOp::kMulHigh:
      return High(a, b);
    case IntegerOp::kDiv:
      if (b == 0) return static_cast<T>(~U{0});
      if (is_signed && b == static_cast<T>(-1)) return static_cast<T>(U{0} - static_cast<U>(a));
      return static_cast<T>(a / b);
    case IntegerOp::kRem:
      if (b == 0) return a;
      if (is_signed && b == static_cast<T>(-1)) return 0;
      return static_cast<T>(a % b);
    case IntegerOp::kMin:
      return a < b ? a : b;
    case IntegerOp::kMax:
      return a < b ? b : a;
    case IntegerOp::kAbs:
      return a < 0 ? static_cast<T>(U{0} - static_cast<U>(a)) : a;
    case IntegerOp::kNeg:
      return static_cast<T>(U{0} - static_cast<U>(a));
    case IntegerOp::kMadLow:
      return static_cast<T>(static_cast<U>(product()) + static_cast<U>(c));
    case IntegerOp::kMadHigh:
      return static_cast<T>(static_cast<U>(High(a, b)) + static_cast<U>(c));
  }
  return 0;
}

template <IntegerOp op, class T>
void Run(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  ForLanes(lanes, [&](uint32_t i) { d[i] = Bits(Apply<op, T>(As<T>(a[i]), As<T>(b[i]), As<T>(c[i]))); });
}

template <IntegerOp op>
Handler HandlerOf(Type type) {
  switch (type) {
    case Type::kU8:
      return Run<op, uint8_t>;
    case Type::kS8:
      return Run<op, int8_t>;
    case Type::kU16:
    case Type::kB16:
      return Run<op, uint16_t>;
    case Type::kS16:
      return Run<op, int16_t>;
    case Type::kU32:
    case Type::kB32:
      return Run<op, uint32_t>;
    case Type::kS32:
      return Run<op, int32_t>;
    case Type::kU64:
    case Type::kB64:
      return Run<op, uint64_t>;
    case Type::kS64:
      return Run<op, int64_t>;
    default:
      return nullptr;
  }
}

Handler HandlerOf(IntegerOp op, Type type) {
  switch (op) {
    case IntegerOp::kAdd:
      return HandlerOf<IntegerOp::kAdd>(type);
    case IntegerOp::kSub:
      return HandlerOf<IntegerOp::kSub>(type);
    case IntegerOp::kMulLow:
      return HandlerOf<IntegerOp::kMulLow>(type);
    case IntegerOp::kMulHigh:
      return HandlerOf<IntegerOp::kMulHigh>(type);
    case IntegerOp::kDiv:
      return HandlerOf<IntegerOp::kDiv>(type);
    case IntegerOp::kRem:
      return HandlerOf<IntegerOp::kRem>(type);
    case IntegerOp::kMin:
      return HandlerOf<IntegerOp::kMin>(type);
    case IntegerOp::kMax:
      return HandlerOf<IntegerOp::kMax>(type);
    case IntegerOp::kAbs:
      return HandlerOf<IntegerOp::kAbs>(type);
    case IntegerOp::kNeg:
      return HandlerOf<IntegerOp::kNeg>(type);
    case IntegerOp::kMadLow:
      return HandlerOf<IntegerOp::kMadLow>(type);
    case IntegerOp::kMadHigh:
      return HandlerOf<IntegerOp::kMadHigh>(type);
  }
  return nullptr;
}

// mul.wide and mad.wide: the result has twice the width.
template <class T, class Wide>
void RunWide(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  ForLanes(lanes, [&](uint32_t i) {
    const Wide product = static_cast<Wide>(static_cast<Wide>(As<T>(a[i])) * static_cast<Wide>(As<T>(b[i])));
    d[i] = Bits(static_cast<Wide>(static_cast<uint64_t>(product) + static_cast<uint64_t>(As<Wide>(c[i]))));
  });
}

bool DecodeWide(Decoder& decoder, Type type, bool mad) {
  Handler run = nullptr;
  switch (type) {
    case Type::kU16:
      run = RunWide<uint16_t, uint32_t>;
      break;
    case Type::kS16:
      run = RunWide<int16_t, int32_t>;
      break;
    case Type::kU32:
      run = RunWide<uint32_t, uint64_t>;
      break;
    case Type::kS32:
      run = RunWide<int32_t, int64_t>;
      break;
    default:
      return false;
  }
  const ColumnId a = decoder.Source(1, type), b = decoder.Source(2, type);
  const ColumnId c = mad ? decoder.Source(3, type) : decoder.columns().Constant(0);
  Instr& in = decoder.Emit(run);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = decoder.Target(0);
  return true;
}

// Saturating 32-bit add, sub and mad.hi.
template <IntegerOp op>
void RunSaturating(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  ForLanes(lanes, [&](uint32_t i) {
    const int64_t x = As<int32_t>(a[i]), y = As<int32_t>(b[i]), z = As<int32_t>(c[i]);
    int64_t value = 0;
    if (op == IntegerOp::kAdd) value = x + y;
    if (op == IntegerOp::kSub) value = x - y;
    if (op == IntegerOp::kMadHigh) value = ((x * y) >> 32) + z;
    const int64_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
    d[i] = Bits(static_cast<int32_t>(value < low ? low : value > high ? high : value));
  });
}

// add.cc and its relatives. The carry is a predicate of its own; flag: reads it; kind2: writes it.
template <IntegerOp op, class T>
void RunCarry(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  uint32_t carries = 0;
  const uint32_t before = w.Predicate(in.pa);
  ForLanes(lanes, [&](uint32_t i) {
    const unsigned __int128 carry = before >> i & 1;
    unsigned __int128 x = As<T>(a[i]), y = As<T>(b[i]);
    if (op == IntegerOp::kMadLow || op == IntegerOp::kMadHigh) {
      x = op == IntegerOp::kMadLow ? static_cast<T>(x * y) : static_cast<T>((x * y) >> (8 * sizeof(T)));
      y = As<T>(c[i]);
    }
    const unsigned __int128 value = op == IntegerOp::kSub ? x - y - carry : x + y + carry;
    d[i] = Bits(static_cast<T>(value));
    if ((value >> (8 * sizeof(T)) & 1) != 0) carries |= 1u << i;
  });
  w.SetPredicate(in.pd, lanes, carries);
}

template <IntegerOp op>
Handler CarryHandler(Type type) {
  return SizeOf(type) == 8 ? RunCarry<op, uint64_t> : RunCarry<op, uint32_t>;
}

// The high half of a signed product differs from that of an unsigned one.
bool EmitSignedHighProduct(Decoder& decoder, Type type, ColumnId a, ColumnId b, ColumnId product) {
  Instr& in = decoder.Emit(HandlerOf<IntegerOp::kMulHigh>(type));
  in.a = a;
  in.b = b;
  in.c = a;
  in.d = product;
  return true;
}

bool DecodeCarry(Decoder& decoder, IntegerOp op, Type type, bool takes, bool leaves) {
  if (SizeOf(type) < 4) return false;
  const bool mad = op == IntegerOp::kMadLow || op == IntegerOp::kMadHigh;
  ColumnId a = decoder.Source(1, type), b = decoder.Source(2, type);
  const ColumnId c = mad ? decoder.Source(3, type) : a;
  if (op == IntegerOp::kMadHigh && IsSigned(type)) {
    const ColumnId product = decoder.columns().New();
    EmitSignedHighProduct(decoder, type, a, b, product);
    a = product;
    b = c;
    op = IntegerOp::kAdd;
  }
  Handler run = nullptr;
  switch (op) {
    case IntegerOp::kAdd:
      run = CarryHandler<IntegerOp::kAdd>(type);
      break;
    case IntegerOp::kSub:
      run = CarryHandler<IntegerOp::kSub>(type);
      break;
    case IntegerOp::kMadLow:
      run = CarryHandler<IntegerOp::kMadLow>(type);
      break;
    case IntegerOp::kMadHigh:
      run = CarryHandler<IntegerOp::kMadHigh>(type);
      break;
    default:
      return false;
  }
  Instr& in = decoder.Emit(run);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = decoder.Target(0);
  in.pa = takes ? kCarryPredicate * 2 : kTrue + 1;
  in.pd = leaves ? kCarryPredicate : kSinkPredicate;
  return true;
}

bool DecodeCarryOpcode(Decoder& decoder) {
  const std::string_view opcode = decoder.statement().opcode;
  const bool leaves = decoder.Take("cc");
  const Type type = decoder.TakeType();
  if (opcode == "addc") return DecodeCarry(decoder, IntegerOp::kAdd, type, true, leaves);
  if (opcode == "subc") return DecodeCarry(decoder, IntegerOp::kSub, type, true, leaves);
  const bool high = decoder.Take("hi");
  if (!high && !decoder.Take("lo")) return false;
  return DecodeCarry(decoder, high ? IntegerOp::kMadHigh : IntegerOp::kMadLow, type, true, leaves);
}

// mul24 and mad24: products of the low 24 bits; .hi takes bits 16 to 47.
template <bool is_signed>
void Run24(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  const auto low24 = [](uint64_t value) {
    const int32_t shifted = static_cast<int32_t>(static_cast<uint32_t>(value) << 8);
    return is_signed ? int64_t{shifted >> 8} : static_cast<int64_t>(value & 0xffffff);
  };
  ForLanes(lanes, [&](uint32_t i) {
    const int64_t product = low24(a[i]) * low24(b[i]);
    d[i] = static_cast<uint32_t>(static_cast<uint64_t>(in.flag ? product >> 16 : product) + c[i]);
  });
}

bool Decode24(Decoder& decoder) {
  const bool mad = decoder.statement().opcode == "mad24";
  const bool high = decoder.Take("hi");
  if (!high && !decoder.Take("lo")) return false;
  const Type type = decoder.TakeType();
  const ColumnId c = mad ? decoder.Source(3, type) : decoder.columns().Constant(0);
  const ColumnId a = decoder.Source(1, type), b = decoder.Source(2, type);
  Instr& in = decoder.Emit(IsSigned(type) ? Run24<true> : Run24<false>);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = decoder.Target(0);
  in.flag = high;
  return true;
}

// sad: c + |a - b|
template <class T>
void RunSad(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  ForLanes(lanes, [&](uint32_t i) {
    const T x = As<T>(a[i]), y = As<T>(b[i]);
    const uint64_t distance = x < y ? static_cast<uint64_t>(y) - static_cast<uint64_t>(x)
                                    : static_cast<uint64_t>(x) - static_cast<uint64_t>(y);
    d[i] = Bits(static_cast<T>(distance + c[i]));
  });
}

bool DecodeSad(Decoder& decoder) {
  const Type type = decoder.TakeType();
  Handler run = nullptr;
  switch (type) {
    case Type::kU16:
      run = RunSad<uint16_t>;
      break;
    case Type::kS16:
      run = RunSad<int16_t>;
      break;
    case Type::kU32:
      run = RunSad<uint32_t>;
      break;
    case Type::kS32:
      run = RunSad<int32_t>;
      break;
    case Type::kU64:
      run = RunSad<uint64_t>;
      break;
    case Type::kS64:
      run = RunSad<int64_t>;
      break;
    default:
      return false;
  }
  const ColumnId a = decoder.Source(1, type), b = decoder.Source(2, type), c = decoder.Source(3, type);
  Instr& in = decoder.Emit(run);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = decoder.Target(0);
  return true;
}

// dp4a, dp2a: sums of products of bytes; kind bit 0: a is signed, bit 1: b is; kind2: dp2a's half of b, else 4.
void RunDot(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  const bool four = in.kind2 == 4;
  const auto part = [](uint64_t value, uint32_t index, uint32_t bits, bool is_signed) {
    const uint32_t field = static_cast<uint32_t>(value >> (index * bits)) << (32 - bits);
    return is_signed ? int64_t{static_cast<int32_t>(field) >> (32 - bits)} : int64_t{field >> (32 - bits)};
  };
  ForLanes(lanes, [&](uint32_t i) {
    uint64_t sum = c[i];
    for (uint32_t k = 0; k < (four ? 4u : 2u); ++k) {
      const int64_t x = part(a[i], k, four ? 8 : 16, (in.kind & 1) != 0);
      const int64_t y = part(b[i], four ? k : k + 2u * in.kind2, 8, (in.kind & 2) != 0);
      sum += static_cast<uint64_t>(x * y);
    }
    d[i] = static_cast<uint32_t>(sum);
  });
}

bool DecodeDot(Decoder& decoder) {
  const bool four = decoder.statement().opcode == "dp4a";
  uint8_t half = 4;
  if (!four) {
    half = decoder.Take("hi") ? 1 : 0;
    if (half == 0 && !decoder.Take("lo")) return false;
  }
  const Type of_a = decoder.TakeType(), of_b = decoder.TakeType();
  const ColumnId a = decoder.Source(1, of_a), b = decoder.Source(2, of_b), c = decoder.Source(3, of_a);
  Instr& in = decoder.Emit(RunDot);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = decoder.Target(0);
  in.kind = static_cast<uint8_t>((IsSigned(of_a) ? 1 : 0) | (IsSigned(of_b) ? 2 : 0));
  in.kind2 = half;
  return true;
}

bool DecodeRem(Decoder& decoder) { return DecodeInteger(decoder, IntegerOp::kRem, decoder.TakeType()); }

constexpr OpcodeRow kRows[] = {
    {"rem", DecodeRem},          {"addc", DecodeCarryOpcode}, {"subc", DecodeCarryOpcode},
    {"madc", DecodeCarryOpcode}, {"mul24", Decode24},         {"mad24", Decode24},
    {"sad", DecodeSad},          {"dp4a", DecodeDot},         {"dp2a", DecodeDot},
};

// flag: relu.
template <IntegerOp op, class T>
void RunPair(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b);
  const auto one = [&](uint64_t x, uint64_t y) {
    const T value = Apply<op, T>(As<T>(x), As<T>(y), 0);
    return in.flag && value < 0 ? 0 : Bits(value);
  };
  ForLanes(lanes, [&](uint32_t i) { d[i] = one(a[i] >> 16, b[i] >> 16) << 16 | one(a[i], b[i]); });
}

template <class T>
Handler PairHandler(IntegerOp op) {
  if (op == IntegerOp::kAdd) return RunPair<IntegerOp::kAdd, T>;
  if (op == IntegerOp::kMin) return RunPair<IntegerOp::kMin, T>;
  return op == IntegerOp::kMax ? RunPair<IntegerOp::kMax, T> : nullptr;
}

bool IsProduct(IntegerOp op) { return op == IntegerOp::kMulLow || op == IntegerOp::kMadLow; }

}  // namespace

std::span<const OpcodeRow> IntegerOpcodes() { return kRows; }

bool DecodeIntegerPair(Decoder& decoder, IntegerOp op, bool is_signed) {
  const Handler run = is_signed ? PairHandler<int16_t>(op) : PairHandler<uint16_t>(op);
  if (run == nullptr) return false;
  const bool relu = decoder.Take("relu");
  const ColumnId a = decoder.Source(1, Type::kB32), b = decoder.Source(2, Type::kB32);
  Instr& in = decoder.Emit(run);
  in.a = a;
  in.b = b;
  in.d = decoder.Target(0);
  in.flag = relu;
  return true;
}

bool DecodeInteger(Decoder& decoder, IntegerOp op, Type type) {
  const bool mad = op == IntegerOp::kMadLow;
  if (IsProduct(op)) {
    if (decoder.Take("wide")) return DecodeWide(decoder, type, mad);
    if (decoder.Take("hi")) {
      op = mad ? IntegerOp::kMadHigh : IntegerOp::kMulHigh;
    } else if (!decoder.Take("lo")) {
      return false;
    }
  }
  if (decoder.Take("cc")) return DecodeCarry(decoder, op, type, false, true);
  Handler run = HandlerOf(op, type);
  if (decoder.Take("sat")) {
    if (type != Type::kS32) return false;
    run = op == IntegerOp::kAdd   ? RunSaturating<IntegerOp::kAdd>
          : op == IntegerOp::kSub ? RunSaturating<IntegerOp::kSub>
                                  : RunSaturating<IntegerOp::kMadHigh>;
  }
  if (run == nullptr) return false;
  const bool unary = op == IntegerOp::kAbs || op == IntegerOp::kNeg;
  const bool relu = decoder.Take("relu");
  const ColumnId a = decoder.Source(1, type);
  const ColumnId b = unary ? a : decoder.Source(2, type);
  const ColumnId c = mad ? decoder.Source(3, type) : a;
  Instr& in = decoder.Emit(run);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = decoder.Target(0);
  if (!relu) return true;
  if (type != Type::kS32) return false;
  const ColumnId result = decoder.Target(0), zero = decoder.columns().Constant(0);
  Instr& clamp = decoder.Emit(Run<IntegerOp::kMax, int32_t>);
  clamp.a = clamp.c = clamp.d = result;
  clamp.b = zero;
  return true;
}

}  // namespace softgpu::engine
