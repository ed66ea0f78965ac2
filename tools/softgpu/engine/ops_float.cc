// f32 and f64 arithmetic. Built with -frounding-math.
#include "tools/softgpu/engine/ops_float.h"

namespace softgpu::engine {
namespace {

// The common case: round to nearest, without flushing and clamping.
template <class T, FloatOp op>
void RunPlain(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  ForLanes(lanes, [&](uint32_t i) { d[i] = Bits(Apply<T>(op, As<T>(a[i]), As<T>(b[i]), As<T>(c[i]), in.kind)); });
}

template <class T>
T Opaque(uint64_t bits) {
  volatile T value = As<T>(bits);
  return value;
}

template <class T, FloatOp op>
void RunGeneral(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  const ScopedRounding rounding(static_cast<Rounding>(in.kind2));
  ForLanes(lanes, [&](uint32_t i) {
    T x = Opaque<T>(a[i]), y = Opaque<T>(b[i]), z = Opaque<T>(c[i]);
    if constexpr (sizeof(T) == 4) {
      if (in.flush) x = FlushToZero(x), y = FlushToZero(y), z = FlushToZero(z);
    }
    volatile T kept = Apply<T>(op, x, y, z, in.kind);
    T result = kept;
    if constexpr (sizeof(T) == 4) {
      if (in.flush) result = FlushToZero(result);
    }
    if (in.saturate) result = result > 1 ? T{1} : result > 0 ? result : T{0};
    d[i] = Bits(result);
  });
}

struct Handlers {
  Handler plain, general;
};
template <class T, FloatOp op>
constexpr Handlers kBoth = {RunPlain<T, op>, RunGeneral<T, op>};

template <class T>
Handlers HandlersOf(FloatOp op) {
  switch (op) {
    case FloatOp::kAdd:
      return kBoth<T, FloatOp::kAdd>;
    case FloatOp::kSub:
      return kBoth<T, FloatOp::kSub>;
    case FloatOp::kMul:
      return kBoth<T, FloatOp::kMul>;
    case FloatOp::kFma:
      return kBoth<T, FloatOp::kFma>;
    case FloatOp::kDiv:
      return kBoth<T, FloatOp::kDiv>;
    case FloatOp::kMin:
      return kBoth<T, FloatOp::kMin>;
    case FloatOp::kMax:
      return kBoth<T, FloatOp::kMax>;
    case FloatOp::kAbs:
      return kBoth<T, FloatOp::kAbs>;
    case FloatOp::kNeg:
      return kBoth<T, FloatOp::kNeg>;
    case FloatOp::kCopysign:
      return kBoth<T, FloatOp::kCopysign>;
    case FloatOp::kRcp:
      return kBoth<T, FloatOp::kRcp>;
    case FloatOp::kSqrt:
      return kBoth<T, FloatOp::kSqrt>;
    case FloatOp::kRsqrt:
      return kBoth<T, FloatOp::kRsqrt>;
    case FloatOp::kSin:
      return kBoth<T, FloatOp::kSin>;
    case FloatOp::kCos:
      return kBoth<T, FloatOp::kCos>;
    case FloatOp::kLg2:
      return kBoth<T, FloatOp::kLg2>;
    case FloatOp::kEx2:
      return kBoth<T, FloatOp::kEx2>;
    case FloatOp::kTanh:
      return kBoth<T, FloatOp::kTanh>;
  }
  return {nullptr, nullptr};
}

uint8_t TakeMinMaxVariant(Decoder& decoder) {
  uint8_t variant = 0;
  if (decoder.Take("NaN")) variant |= kPropagateNan;
  if (decoder.Take("xorsign")) variant |= kXorSign;
  if (variant >= kXorSign) decoder.Take("abs");
  return variant;
}

}  // namespace

Rounding TakeRounding(Decoder& decoder, Rounding otherwise) {
  constexpr std::string_view names[] = {"rn", "rz", "rm", "rp", "rna"};
  constexpr Rounding roundings[] = {Rounding::kNearest, Rounding::kZero, Rounding::kDown, Rounding::kUp,
                                    Rounding::kAway};
  const int found = decoder.TakeOneOf(names, -1);
  return found < 0 ? otherwise : roundings[found];
}

bool DecodeFloat(Decoder& decoder, FloatOp op, Type type, size_t sources) {
  if (type != Type::kF32 && type != Type::kF64) return false;
  const Rounding rounding = TakeRounding(decoder, Rounding::kNearest);
  if (op >= FloatOp::kDiv) {
    decoder.Take("approx");
    decoder.Take("full");
  }
  const bool flush = decoder.Take("ftz"), saturate = decoder.Take("sat");
  const uint8_t variant = op == FloatOp::kMin || op == FloatOp::kMax ? TakeMinMaxVariant(decoder) : uint8_t{0};
  const Handlers handlers = type == Type::kF32 ? HandlersOf<float>(op) : HandlersOf<double>(op);
  const ColumnId a = decoder.Source(1, type);
  const ColumnId b = sources > 1 ? decoder.Source(2, type) : a;
  const ColumnId c = sources > 2 ? decoder.Source(3, type) : a;
  const bool plain = rounding == Rounding::kNearest && !flush && !saturate;
  // min and max of three values are two operations on two.
  const bool chained = sources > 2 && (op == FloatOp::kMin || op == FloatOp::kMax);
  ColumnId left = a, right = b;
  for (int step = 0; step < (chained ? 2 : 1); ++step) {
    Instr& in = decoder.Emit(plain ? handlers.plain : handlers.general);
    in.a = left;
    in.b = right;
    in.c = c;
    in.d = chained && step == 0 ? decoder.columns().New() : decoder.Target(0);
    in.kind = variant;
    in.kind2 = static_cast<uint8_t>(rounding);
    in.flush = flush;
    in.saturate = saturate;
    left = in.d;
    right = c;
  }
  return true;
}

}  // namespace softgpu::engine
