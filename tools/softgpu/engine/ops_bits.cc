// Logic, shifts and bit fields.
#include <algorithm>

#include "tools/softgpu/engine/decoder.h"

namespace softgpu::engine {
namespace {

// Instructions of up to three sources that are a function of one lane's values. Results of narrow types are masked.
using Function3 = uint64_t (*)(uint64_t, uint64_t, uint64_t);

template <Function3 f, uint64_t mask>
void Run(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  ForLanes(lanes, [&](uint32_t i) { d[i] = f(a[i], b[i], c[i]) & mask; });
}

template <Function3 f>
Handler ByWidth(Type type) {
  switch (SizeOf(type)) {
    case 1:
      return Run<f, 0xff>;
    case 2:
      return Run<f, 0xffff>;
    case 4:
      return Run<f, 0xffffffff>;
    default:
      return Run<f, ~0ull>;
  }
}

bool Emit(Decoder& decoder, Handler run, Type type, size_t sources) {
  const ColumnId a = decoder.Source(1, type);
  const ColumnId b = sources > 1 ? decoder.Source(2, type) : a;
  const ColumnId c = sources > 2 ? decoder.Source(3, type) : a;
  Instr& in = decoder.Emit(run);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = decoder.Target(0);
  return true;
}

uint64_t And(uint64_t a, uint64_t b, uint64_t) { return a & b; }
uint64_t Or(uint64_t a, uint64_t b, uint64_t) { return a | b; }
uint64_t Xor(uint64_t a, uint64_t b, uint64_t) { return a ^ b; }
uint64_t Not(uint64_t a, uint64_t, uint64_t) { return ~a; }

enum class Logic : uint8_t { kAnd, kOr, kXor, kNot };

void RunPredicate(Warp& w, const Instr& in, uint32_t lanes) {
  const uint32_t a = w.Predicate(in.pa), b = w.Predicate(in.pb);
  uint32_t bits = 0;
  switch (static_cast<Logic>(in.kind)) {
    case Logic::kAnd:
      bits = a & b;
      break;
    case Logic::kOr:
      bits = a | b;
      break;
    case Logic::kXor:
      bits = a ^ b;
      break;
    case Logic::kNot:
      bits = ~a;
      break;
  }
  w.SetPredicate(in.pd, lanes, bits);
}

template <Function3 f, Logic logic>
bool DecodeLogic(Decoder& decoder) {
  const Type type = decoder.TakeType();
  if (type != Type::kPred) return Emit(decoder, ByWidth<f>(type), type, logic == Logic::kNot ? 1 : 2);
  Instr& in = decoder.Emit(RunPredicate);
  in.kind = static_cast<uint8_t>(logic);
  in.pa = decoder.SourcePredicate(1);
  if (logic != Logic::kNot) in.pb = decoder.SourcePredicate(2);
  in.pd = decoder.TargetPredicateOf(decoder.operand(0));
  return true;
}

template <uint64_t mask>
uint64_t IsZero(uint64_t a, uint64_t, uint64_t) {
  return (a & mask) == 0;
}

bool DecodeCnot(Decoder& decoder) {
  const Type type = decoder.TakeType();
  const Handler run = SizeOf(type) == 2   ? Run<IsZero<0xffff>, 0xffff>
                      : SizeOf(type) == 4 ? Run<IsZero<0xffffffff>, 0xffffffff>
                                          : Run<IsZero<~0ull>, ~0ull>;
  return Emit(decoder, run, type, 1);
}

// lop3: one of 256 functions of three bits; d|p also gives whether the result is not zero, combined with q.
void RunLop3(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  uint32_t selected[8];
  for (uint32_t k = 0; k < 8; ++k) selected[k] = (in.offset >> k & 1) != 0 ? ~0u : 0;
  uint32_t nonzero = 0;
  ForLanes(lanes, [&](uint32_t i) {
    const uint32_t x = static_cast<uint32_t>(a[i]), y = static_cast<uint32_t>(b[i]), z = static_cast<uint32_t>(c[i]);
    const uint32_t low =
        (selected[0] & ~y & ~z) | (selected[1] & ~y & z) | (selected[2] & y & ~z) | (selected[3] & y & z);
    const uint32_t high =
        (selected[4] & ~y & ~z) | (selected[5] & ~y & z) | (selected[6] & y & ~z) | (selected[7] & y & z);
    const uint32_t value = (~x & low) | (x & high);
    d[i] = value;
    nonzero |= static_cast<uint32_t>(value != 0) << i;
  });
  if (in.pd == kSinkPredicate) return;
  const uint32_t q = w.Predicate(in.pb);
  w.SetPredicate(in.pd, lanes, in.flag ? nonzero & q : nonzero | q);
}

bool DecodeLop3(Decoder& decoder) {
  const bool with_and = decoder.Take("and"), with_or = decoder.Take("or");
  const Type type = decoder.TakeType();
  if (type != Type::kB32 || decoder.operand(4).kind != OperandIr::kImmediate) return false;
  const ColumnId a = decoder.Source(1, type), b = decoder.Source(2, type), c = decoder.Source(3, type);
  Instr& in = decoder.Emit(RunLop3);
  in.a = a;
  in.b = b;
  in.c = c;
  in.offset = static_cast<int64_t>(decoder.operand(4).bits & 0xff);
  in.d = decoder.Target(0);
  if (!with_and && !with_or) return true;
  if (decoder.operand(0).second == nullptr) return false;
  in.pd = decoder.TargetPredicateOf(*decoder.operand(0).second);
  in.pb = decoder.SourcePredicate(5);
  in.flag = with_and;
  return true;
}

template <class T>
uint64_t ShiftLeft(uint64_t a, uint64_t b, uint64_t) {
  const uint32_t by = static_cast<uint32_t>(b);
  return by >= 8 * sizeof(T) ? 0 : static_cast<uint64_t>(As<T>(a)) << by;
}
template <class T>
uint64_t ShiftRight(uint64_t a, uint64_t b, uint64_t) {
  const uint32_t by = std::min<uint32_t>(static_cast<uint32_t>(b), 8 * sizeof(T));
  if (by == 8 * sizeof(T)) return As<T>(a) < 0 ? ~0ull : 0;
  return static_cast<uint64_t>(static_cast<int64_t>(As<T>(a) >> by));
}

bool DecodeShl(Decoder& decoder) {
  const Type type = decoder.TakeType();
  switch (SizeOf(type)) {
    case 2:
      return Emit(decoder, Run<ShiftLeft<uint16_t>, 0xffff>, type, 2);
    case 4:
      return Emit(decoder, Run<ShiftLeft<uint32_t>, 0xffffffff>, type, 2);
    case 8:
      return Emit(decoder, Run<ShiftLeft<uint64_t>, ~0ull>, type, 2);
    default:
      return false;
  }
}

bool DecodeShr(Decoder& decoder) {
  const Type type = decoder.TakeType();
  const bool is_signed = IsSigned(type);
  switch (SizeOf(type)) {
    case 2:
      return Emit(decoder, is_signed ? Run<ShiftRight<int16_t>, 0xffff> : Run<ShiftRight<uint16_t>, 0xffff>, type, 2);
    case 4:
      return Emit(decoder, is_signed ? Run<ShiftRight<int32_t>, 0xffffffff> : Run<ShiftRight<uint32_t>, 0xffffffff>,
                  type, 2);
    case 8:
      return Emit(decoder, is_signed ? Run<ShiftRight<int64_t>, ~0ull> : Run<ShiftRight<uint64_t>, ~0ull>, type, 2);
    default:
      return false;
  }
}

// shf: a 64-bit value b:a is shifted.
template <bool left, bool clamp>
uint64_t Funnel(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t value = b << 32 | (a & 0xffffffff);
  const uint32_t by = clamp ? std::min<uint32_t>(static_cast<uint32_t>(c), 32) : static_cast<uint32_t>(c) & 31;
  return left ? value >> (32 - by) : value >> by;
}

bool DecodeShf(Decoder& decoder) {
  const bool left = decoder.Take("l");
  if (!left && !decoder.Take("r")) return false;
  const bool clamp = decoder.Take("clamp");
  if (!clamp && !decoder.Take("wrap")) return false;
  const Handler run = left ? (clamp ? Run<Funnel<true, true>, 0xffffffff> : Run<Funnel<true, false>, 0xffffffff>)
                           : (clamp ? Run<Funnel<false, true>, 0xffffffff> : Run<Funnel<false, false>, 0xffffffff>);
  return Emit(decoder, run, decoder.TakeType(), 3);
}

template <class T>
uint64_t CountOnes(uint64_t a, uint64_t, uint64_t) {
  return static_cast<uint64_t>(std::popcount(As<T>(a)));
}
template <class T>
uint64_t CountLeading(uint64_t a, uint64_t, uint64_t) {
  return static_cast<uint64_t>(std::countl_zero(As<T>(a)));
}
template <class T>
uint64_t Reverse(uint64_t a, uint64_t, uint64_t) {
  uint64_t result = 0;
  for (uint32_t i = 0; i < 8 * sizeof(T); ++i) result |= (a >> i & 1) << (8 * sizeof(T) - 1 - i);
  return result;
}

template <Function3 narrow, Function3 wide>
bool DecodeUnary(Decoder& decoder) {
  const Type type = decoder.TakeType();
  return Emit(decoder, SizeOf(type) == 8 ? Run<wide, ~0ull> : Run<narrow, 0xffffffff>, type, 1);
}

// The highest bit that differs from the sign; all ones if there is none.
template <class T, bool shift_amount>
uint64_t FindBit(uint64_t a, uint64_t, uint64_t) {
  using U = std::make_unsigned_t<T>;
  const T value = As<T>(a);
  const U bits = static_cast<U>(value < 0 ? ~value : value);
  if (bits == 0) return 0xffffffff;
  const uint32_t leading = static_cast<uint32_t>(std::countl_zero(bits));
  return shift_amount ? leading : 8 * sizeof(T) - 1 - leading;
}

template <bool shift_amount>
Handler FindBitHandler(Type type) {
  switch (type) {
    case Type::kU32:
      return Run<FindBit<uint32_t, shift_amount>, 0xffffffff>;
    case Type::kS32:
      return Run<FindBit<int32_t, shift_amount>, 0xffffffff>;
    case Type::kU64:
      return Run<FindBit<uint64_t, shift_amount>, 0xffffffff>;
    default:
      return Run<FindBit<int64_t, shift_amount>, 0xffffffff>;
  }
}

bool DecodeBfind(Decoder& decoder) {
  const bool amount = decoder.Take("shiftamt");
  const Type type = decoder.TakeType();
  return Emit(decoder, amount ? FindBitHandler<true>(type) : FindBitHandler<false>(type), type, 1);
}

template <class T>
uint64_t Extract(uint64_t a, uint64_t b, uint64_t c) {
  constexpr uint32_t width = 8 * sizeof(T);
  const uint32_t position = b & 0xff, length = c & 0xff;
  const int64_t value = static_cast<int64_t>(As<T>(a));  // sign- or zero-extended
  const bool is_signed = static_cast<T>(-1) < 0;
  const uint64_t sign_at = std::min(position + length - 1, width - 1);
  const bool sign = is_signed && length != 0 && (static_cast<uint64_t>(value) >> sign_at & 1) != 0;
  uint64_t result = position >= width ? 0 : static_cast<uint64_t>(As<T>(a)) >> position;
  if (position + length < width || position >= width) {
    const uint64_t mask = length >= 64 ? ~0ull : (1ull << length) - 1;
    result = (result & mask) | (sign ? ~mask : 0);
    if (position >= width) result = sign ? ~0ull : 0;
  } else if (sign && position > 0) {
    result |= ~0ull << (width - position);
  }
  return result;
}

bool DecodeBfe(Decoder& decoder) {
  const Type type = decoder.TakeType();
  switch (type) {
    case Type::kU32:
      return Emit(decoder, Run<Extract<uint32_t>, 0xffffffff>, type, 3);
    case Type::kS32:
      return Emit(decoder, Run<Extract<int32_t>, 0xffffffff>, type, 3);
    case Type::kU64:
      return Emit(decoder, Run<Extract<uint64_t>, ~0ull>, type, 3);
    case Type::kS64:
      return Emit(decoder, Run<Extract<int64_t>, ~0ull>, type, 3);
    default:
      return false;
  }
}

template <class T>
void RunInsert(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c), *const e = w.In(in.e);
  ForLanes(lanes, [&](uint32_t i) {
    const uint32_t position = c[i] & 0xff, length = e[i] & 0xff;
    const uint64_t ones = length >= 64 ? ~0ull : (1ull << length) - 1;
    const uint64_t mask = position >= 64 ? 0 : ones << position;
    const uint64_t field = position >= 64 ? 0 : a[i] << position;
    d[i] = Bits(static_cast<T>((b[i] & ~mask) | (field & mask)));
  });
}

bool DecodeBfi(Decoder& decoder) {
  const Type type = decoder.TakeType();
  const ColumnId a = decoder.Source(1, type), b = decoder.Source(2, type);
  const ColumnId c = decoder.Source(3, Type::kB32), e = decoder.Source(4, Type::kB32);
  Instr& in = decoder.Emit(SizeOf(type) == 8 ? RunInsert<uint64_t> : RunInsert<uint32_t>);
  in.a = a;
  in.b = b;
  in.c = c;
  in.e = e;
  in.d = decoder.Target(0);
  return true;
}

// prmt: four of the eight bytes of b:a, chosen by nibbles of c; the top bit of a nibble selects the sign instead.
uint64_t Permute(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t bytes = b << 32 | (a & 0xffffffff);
  uint64_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t selector = c >> (4 * i) & 0xf;
    uint64_t byte = bytes >> (8 * (selector & 7)) & 0xff;
    if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// The selectors that the modes of prmt mean, by the low two bits of c.
constexpr std::string_view kPermuteModes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
constexpr uint16_t kPermuteSelectors[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
                                              {0x0000, 0x1111, 0x2222, 0x3333}, {0x3210, 0x3211, 0x3222, 0x3333},
                                              {0x0000, 0x1110, 0x2210, 0x3210}, {0x1010, 0x3232, 0x1010, 0x3232}};

template <int mode>
uint64_t PermuteMode(uint64_t a, uint64_t b, uint64_t c) {
  return Permute(a, b, kPermuteSelectors[mode][c & 3]);
}

bool DecodePrmt(Decoder& decoder) {
  constexpr Handler handlers[] = {Run<PermuteMode<0>, ~0ull>, Run<PermuteMode<1>, ~0ull>, Run<PermuteMode<2>, ~0ull>,
                                  Run<PermuteMode<3>, ~0ull>, Run<PermuteMode<4>, ~0ull>, Run<PermuteMode<5>, ~0ull>};
  const Type type = decoder.TakeType();
  const int mode = decoder.TakeOneOf(kPermuteModes, -1);
  return Emit(decoder, mode < 0 ? Run<Permute, 0xffffffff> : handlers[mode], type, 3);
}

// fns: the position of the c-th set bit of a, counted from bit b upwards (c > 0) or downwards.
uint64_t FindNthSet(uint64_t a, uint64_t b, uint64_t c) {
  const int32_t wanted = static_cast<int32_t>(static_cast<uint32_t>(c));
  const int64_t base = static_cast<uint32_t>(b);
  if (wanted == 0) return (a >> (base & 31) & 1) != 0 && base < 32 ? static_cast<uint64_t>(base) : 0xffffffff;
  int32_t left = wanted < 0 ? -wanted : wanted;
  for (int64_t at = base; at >= 0 && at < 32; at += wanted < 0 ? -1 : 1) {
    if ((a >> at & 1) != 0 && --left == 0) return static_cast<uint64_t>(at);
  }
  return 0xffffffff;
}

bool DecodeFns(Decoder& decoder) { return Emit(decoder, Run<FindNthSet, 0xffffffff>, decoder.TakeType(), 3); }

// bmsk: `b` ones from bit `a` on.
template <bool clamp>
uint64_t Mask(uint64_t a, uint64_t b, uint64_t) {
  const uint64_t from = clamp ? static_cast<uint32_t>(a) : a & 31;
  const uint64_t count = clamp ? std::min<uint64_t>(static_cast<uint32_t>(b), 32) : b & 31;
  return from >= 32 ? 0 : ((1ull << count) - 1) << from;
}

bool DecodeBmsk(Decoder& decoder) {
  const bool clamp = decoder.Take("clamp");
  if (!clamp && !decoder.Take("wrap")) return false;
  return Emit(decoder, clamp ? Run<Mask<true>, 0xffffffff> : Run<Mask<false>, 0xffffffff>, decoder.TakeType(), 2);
}

// szext: the low `b` bits of a, sign- or zero-extended.
template <bool is_signed, bool clamp>
uint64_t Extend(uint64_t a, uint64_t b, uint64_t) {
  const uint32_t count = clamp ? std::min<uint32_t>(static_cast<uint32_t>(b), 32) : b & 31;
  if (count == 0) return 0;
  if (count == 32) return a;
  const uint64_t low = a & ((1ull << count) - 1);
  return is_signed && (low >> (count - 1) & 1) != 0 ? low | ~0ull << count : low;
}

bool DecodeSzext(Decoder& decoder) {
  const bool clamp = decoder.Take("clamp");
  if (!clamp && !decoder.Take("wrap")) return false;
  const Type type = decoder.TakeType();
  const Handler run = IsSigned(type)
                          ? (clamp ? Run<Extend<true, true>, 0xffffffff> : Run<Extend<true, false>, 0xffffffff>)
                          : (clamp ? Run<Extend<false, true>, 0xffffffff> : Run<Extend<false, false>, 0xffffffff>);
  return Emit(decoder, run, type, 2);
}

constexpr OpcodeRow kRows[] = {
    {"and", DecodeLogic<And, Logic::kAnd>},
    {"or", DecodeLogic<Or, Logic::kOr>},
    {"xor", DecodeLogic<Xor, Logic::kXor>},
    {"not", DecodeLogic<Not, Logic::kNot>},
    {"cnot", DecodeCnot},
    {"lop3", DecodeLop3},
    {"shl", DecodeShl},
    {"shr", DecodeShr},
    {"shf", DecodeShf},
    {"popc", DecodeUnary<CountOnes<uint32_t>, CountOnes<uint64_t>>},
    {"clz", DecodeUnary<CountLeading<uint32_t>, CountLeading<uint64_t>>},
    {"brev", DecodeUnary<Reverse<uint32_t>, Reverse<uint64_t>>},
    {"bfind", DecodeBfind},
    {"bfe", DecodeBfe},
    {"bfi", DecodeBfi},
    {"prmt", DecodePrmt},
    {"fns", DecodeFns},
    {"bmsk", DecodeBmsk},
    {"szext", DecodeSzext},
};

}  // namespace

std::span<const OpcodeRow> BitOpcodes() { return kRows; }

}  // namespace softgpu::engine
