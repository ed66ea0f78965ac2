// atom and red. Every operation is a loop around a compare-and-swap, lane by lane.
#include <algorithm>

#include "tools/softgpu/engine/float_apply.h"
#include "tools/softgpu/engine/memory_access.h"

namespace softgpu::engine {
namespace {

enum class AtomicOp : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kExchange, kCas, kInc, kDec };
constexpr std::string_view kOpNames[] = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"};

template <class T>
T CombineNumbers(AtomicOp op, T old, T b, T c) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case AtomicOp::kAdd:
        return Canonical(old + b);
      case AtomicOp::kMin:
        return MinMax(old, b, false, 0);
      case AtomicOp::kMax:
        return MinMax(old, b, true, 0);
      default:
        return b;
    }
  } else {
    switch (op) {
      case AtomicOp::kAdd:
        return static_cast<T>(static_cast<uint64_t>(old) + static_cast<uint64_t>(b));
      case AtomicOp::kMin:
        return std::min(old, b);
      case AtomicOp::kMax:
        return std::max(old, b);
      case AtomicOp::kAnd:
        return old & b;
      case AtomicOp::kOr:
        return old | b;
      case AtomicOp::kXor:
        return old ^ b;
      case AtomicOp::kExchange:
        return b;
      case AtomicOp::kCas:
        return old == b ? c : old;
      case AtomicOp::kInc:
        return old >= b ? T{0} : static_cast<T>(old + 1);
      case AtomicOp::kDec:
        return old == 0 || old > b ? b : static_cast<T>(old - 1);
    }
    return b;
  }
}

// The contents of memory as Raw, and their value.
template <class T>
struct Number {
  using Raw = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  static Raw Combine(AtomicOp op, Raw old, uint64_t b, uint64_t c) {
    return static_cast<Raw>(Bits(CombineNumbers<T>(op, As<T>(old), As<T>(b), As<T>(c))));
  }
};

template <bool half>
uint16_t CombineHalf(AtomicOp op, uint16_t old, uint16_t b) {
  const float x = half ? HalfToFloat(old) : BfloatToFloat(old), y = half ? HalfToFloat(b) : BfloatToFloat(b);
  const float result = CombineNumbers<float>(op, x, y, 0);
  return half ? FloatToHalf(result) : FloatToBfloat(result);
}
template <bool half>
struct Half {
  using Raw = uint16_t;
  static Raw Combine(AtomicOp op, Raw old, uint64_t b, uint64_t) {
    return CombineHalf<half>(op, old, static_cast<uint16_t>(b));
  }
};
template <bool half>
struct Pair {
  using Raw = uint32_t;
  static Raw Combine(AtomicOp op, Raw old, uint64_t b, uint64_t) {
    const uint32_t low = CombineHalf<half>(op, static_cast<uint16_t>(old), static_cast<uint16_t>(b));
    const uint32_t high = CombineHalf<half>(op, static_cast<uint16_t>(old >> 16), static_cast<uint16_t>(b >> 16));
    return high << 16 | low;
  }
};

int HostOrder(const Warp& w, Order order) {
  if (kThreadSanitizer && w.fenced) return __ATOMIC_ACQ_REL;
  switch (order) {
    case Order::kAcquire:
      return __ATOMIC_ACQUIRE;
    case Order::kRelease:
      return __ATOMIC_RELEASE;
    case Order::kAcqRel:
      return __ATOMIC_ACQ_REL;
    default:
      return __ATOMIC_RELAXED;
  }
}

// What the lanes did to memory, to distinguish polling from working.
struct Effect {
  bool changed = false;
  uint64_t addresses = 0, values = 0;

  void Add(const void* at, uint64_t old, bool change) {
    changed |= change;
    addresses = addresses * 31 + reinterpret_cast<uintptr_t>(at);
    values = values * 31 + old;
  }
  void Report(Warp& w, const Instr& in) const {
    if (changed) {
      w.progressed = true;
    } else {
      w.Poll(in, addresses, values);
    }
  }
};

// kind: the AtomicOp; v[0..3]: the old value, by element; v[4..7]: b; c.
template <class Kind, Window window>
void Run(Warp& w, const Instr& in, uint32_t lanes) {
  using Raw = typename Kind::Raw;
  const uint64_t *const a = w.In(in.a), *const c = w.In(in.c);
  const int order = HostOrder(w, in.order);
  const int failure = order == __ATOMIC_RELEASE || order == __ATOMIC_RELAXED ? __ATOMIC_RELAXED : __ATOMIC_ACQUIRE;
  Effect effect;
  ForLanes(lanes, [&](uint32_t i) {
    std::byte* const at =
        HostPointer<window>(w, in, i, a[i] + static_cast<uint64_t>(in.offset), sizeof(Raw) * in.count);
    if (at == nullptr) return;
    if (window == Window::kHost) NoteAccess(w, in, i, reinterpret_cast<uintptr_t>(at), sizeof(Raw) * in.count, true);
    for (uint32_t k = 0; k < in.count; ++k) {
      Raw* const word = reinterpret_cast<Raw*>(at) + k;
      const uint64_t b = w.In(in.v[4 + k])[i], swap = c[i];
      Raw old = __atomic_load_n(word, __ATOMIC_RELAXED);
      Raw fresh = Kind::Combine(static_cast<AtomicOp>(in.kind), old, b, swap);
      while (!__atomic_compare_exchange_n(word, &old, fresh, false, order, failure))
        fresh = Kind::Combine(static_cast<AtomicOp>(in.kind), old, b, swap);
      effect.Add(word, old, old != fresh);
      w.Out(in.v[k])[i] = old;
    }
    if (kThreadSanitizer && window == Window::kHost) w.recent_polls[w.recent_poll++ % 4] = at;
  });
  effect.Report(w, in);
}

// exch and cas of 128 bits; values are pairs of columns.
template <Window window>
void Run128(Warp& w, const Instr& in, uint32_t lanes) {
  using Wide = unsigned __int128;
  const uint64_t* const a = w.In(in.a);
  const auto read = [&](ColumnId column, uint32_t i) {
    return static_cast<Wide>(w.In(column)[i + kWarpLanes]) << 64 | w.In(column)[i];
  };
  Effect effect;
  ForLanes(lanes, [&](uint32_t i) {
    std::byte* const at = HostPointer<window>(w, in, i, a[i] + static_cast<uint64_t>(in.offset), 16);
    if (at == nullptr) return;
    if (window == Window::kHost) NoteAccess(w, in, i, reinterpret_cast<uintptr_t>(at), 16, true);
    Wide* const word = reinterpret_cast<Wide*>(at);
    const bool cas = static_cast<AtomicOp>(in.kind) == AtomicOp::kCas;
    const Wide b = read(in.v[4], i), fresh = cas ? read(in.c, i) : b;
    Wide old = cas ? b : 0, seen = __sync_val_compare_and_swap(word, old, fresh);
    while (!cas && seen != old) {
      old = seen;
      seen = __sync_val_compare_and_swap(word, old, fresh);
    }
    effect.Add(word, static_cast<uint64_t>(seen) ^ static_cast<uint64_t>(seen >> 64), seen == old && seen != fresh);
    uint64_t* const d = w.Out(in.v[0]);
    d[i] = static_cast<uint64_t>(seen);
    if (in.v[0] != kSinkColumn) d[i + kWarpLanes] = static_cast<uint64_t>(seen >> 64);
  });
  effect.Report(w, in);
}

template <class Kind>
Handler ByWindow(Window window) {
  return window == Window::kShared ? Run<Kind, Window::kShared> : Run<Kind, Window::kHost>;
}

Handler HandlerOf(AtomicOp op, Type type, Window window) {
  const bool floats = op == AtomicOp::kAdd || op == AtomicOp::kMin || op == AtomicOp::kMax;
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return ByWindow<Number<uint16_t>>(window);
    case Type::kB32:
    case Type::kU32:
      return ByWindow<Number<uint32_t>>(window);
    case Type::kS32:
      return ByWindow<Number<int32_t>>(window);
    case Type::kB64:
    case Type::kU64:
      return ByWindow<Number<uint64_t>>(window);
    case Type::kS64:
      return ByWindow<Number<int64_t>>(window);
    case Type::kB128:
      if (op != AtomicOp::kExchange && op != AtomicOp::kCas) return nullptr;
      return window == Window::kShared ? Run128<Window::kShared> : Run128<Window::kHost>;
    default:
      break;
  }
  if (!floats) return nullptr;
  switch (type) {
    case Type::kF32:
      return ByWindow<Number<float>>(window);
    case Type::kF64:
      return ByWindow<Number<double>>(window);
    case Type::kF16:
      return ByWindow<Half<true>>(window);
    case Type::kBf16:
      return ByWindow<Half<false>>(window);
    case Type::kF16x2:
      return ByWindow<Pair<true>>(window);
    case Type::kBf16x2:
      return ByWindow<Pair<false>>(window);
    default:
      return nullptr;
  }
}

bool TakeVector(Decoder& decoder, const OperandIr& operand, uint32_t count, Type type, bool target, ColumnId* columns) {
  const auto column = [&](const OperandIr& part) {
    return target ? decoder.TargetOf(part) : decoder.SourceOf(part, type);
  };
  if (operand.kind != OperandIr::kVector) {
    columns[0] = column(operand);
    return count == 1;
  }
  if (operand.parts.size() != count || count > 4) return false;
  for (uint32_t k = 0; k < count; ++k) columns[k] = column(operand.parts[k]);
  return true;
}

bool DecodeAtomic(Decoder& decoder) {
  const bool returns = decoder.statement().opcode == "atom";
  MemoryModifiers modifiers = TakeMemoryModifiers(decoder, Order::kRelaxed);
  decoder.Take("noftz");
  const int op = decoder.TakeOneOf(kOpNames, -1);
  const Type type = decoder.TakeType();
  if (op < 0) return false;
  Instr operands;
  const size_t at = returns ? 1 : 0;
  decoder.Address(decoder.operand(at), &modifiers.space, &operands);
  const Handler run = HandlerOf(static_cast<AtomicOp>(op), type, WindowOf(modifiers.space));
  if (run == nullptr) return false;
  std::fill(std::begin(operands.v), std::end(operands.v), kSinkColumn);
  if (returns && !TakeVector(decoder, decoder.operand(0), modifiers.vector, type, true, operands.v)) return false;
  if (!TakeVector(decoder, decoder.operand(at + 1), modifiers.vector, type, false, operands.v + 4)) return false;
  const bool cas = static_cast<AtomicOp>(op) == AtomicOp::kCas;
  const ColumnId c = cas ? decoder.Source(at + 2, type) : kSinkColumn;
  Instr& in = decoder.Emit(run);
  in.a = operands.a;
  in.offset = operands.offset;
  in.c = c;
  std::copy(std::begin(operands.v), std::end(operands.v), std::begin(in.v));
  in.count = static_cast<uint8_t>(modifiers.vector);
  in.order = modifiers.order;
  in.space = modifiers.space;
  in.kind = static_cast<uint8_t>(op);
  return true;
}

constexpr OpcodeRow kRows[] = {{"atom", DecodeAtomic}, {"red", DecodeAtomic}};

}  // namespace

std::span<const OpcodeRow> AtomicOpcodes() { return kRows; }

}  // namespace softgpu::engine
