// f16, bf16 and pairs of them.
#include "tools/softgpu/engine/ops_float.h"

namespace softgpu::engine {
namespace {

template <bool half>
float ToFloat(uint16_t bits) {
  return half ? HalfToFloat(bits) : BfloatToFloat(bits);
}

// Rounds a value that float holds exactly or, if it is normal, with enough extra bits that the second rounding does no
// harm.
template <bool half>
uint16_t FromFloat(float value) {
  return half ? FloatToHalf(value) : FloatToBfloat(value);
}

template <bool half>
uint16_t Multiply(float a, float b) {
  const float product = a * b;
  if (half || std::fabs(product) >= 0x1p-126f || product != product) return FromFloat<half>(product);
  return static_cast<uint16_t>(RoundTo(kBfloat, static_cast<double>(a) * b, Rounding::kNearest));
}

template <bool half>
uint16_t Compute(FloatOp op, uint16_t a_bits, uint16_t b_bits, uint16_t c_bits, uint8_t variant) {
  const float a = ToFloat<half>(a_bits), b = ToFloat<half>(b_bits), c = ToFloat<half>(c_bits);
  switch (op) {
    case FloatOp::kNeg:
      return a_bits ^ 0x8000;
    case FloatOp::kAbs:
      return a_bits & 0x7fff;
    case FloatOp::kAdd:
      return FromFloat<half>(a + b);
    case FloatOp::kSub:
      return FromFloat<half>(a - b);
    case FloatOp::kMul:
      return Multiply<half>(a, b);
    case FloatOp::kFma:
      return static_cast<uint16_t>(RoundTo(half ? kHalf : kBfloat, FusedToOdd(a, b, c), Rounding::kNearest));
    default:
      return FromFloat<half>(Apply<float>(op, a, b, c, variant));
  }
}

// kind: the FloatOp; kind2: variant of min and max; flag: relu.
template <bool half, bool pair>
void Run(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  const uint64_t *const a = w.In(in.a), *const b = w.In(in.b), *const c = w.In(in.c);
  const auto one = [&](uint64_t x, uint64_t y, uint64_t z) {
    const auto flushed = [&](uint64_t value) {
      const bool subnormal = (value & (half ? 0x7c00 : 0x7f80)) == 0;
      return static_cast<uint16_t>(in.flush && subnormal ? value & 0x8000 : value);
    };
    uint16_t result =
        flushed(Compute<half>(static_cast<FloatOp>(in.kind), flushed(x), flushed(y), flushed(z), in.kind2));
    const bool nan = (result & 0x7fff) > (half ? 0x7c00 : 0x7f80);
    if (in.flag && !nan && (result & 0x8000) != 0) result = 0;
    if (in.saturate) {
      const uint16_t top = half ? 0x3c00 : 0x3f80;
      if (nan || (result & 0x8000) != 0) {
        result = 0;
      } else if (result > top) {
        result = top;
      }
    }
    return uint64_t{result};
  };
  ForLanes(lanes, [&](uint32_t i) {
    uint64_t value = one(a[i], b[i], c[i]);
    if (pair) value |= one(a[i] >> 16, b[i] >> 16, c[i] >> 16) << 16;
    d[i] = value;
  });
}

}  // namespace

bool DecodeHalf(Decoder& decoder, FloatOp op, Type type, size_t sources) {
  Handler run = nullptr;
  switch (type) {
    case Type::kF16:
      run = Run<true, false>;
      break;
    case Type::kF16x2:
      run = Run<true, true>;
      break;
    case Type::kBf16:
      run = Run<false, false>;
      break;
    case Type::kBf16x2:
      run = Run<false, true>;
      break;
    default:
      return false;
  }
  decoder.Take("rn");
  if (op >= FloatOp::kDiv) decoder.Take("approx");
  uint8_t variant = 0;
  if (op == FloatOp::kMin || op == FloatOp::kMax) {
    if (decoder.Take("NaN")) variant |= kPropagateNan;
    if (decoder.Take("xorsign")) variant |= kXorSign;
    if (variant >= kXorSign) decoder.Take("abs");
  }
  const bool flush = decoder.Take("ftz"), saturate = decoder.Take("sat"), relu = decoder.Take("relu");
  const ColumnId a = decoder.Source(1, type);
  const ColumnId b = sources > 1 ? decoder.Source(2, type) : a;
  const ColumnId c = sources > 2 ? decoder.Source(3, type) : a;
  Instr& in = decoder.Emit(run);
  in.a = a;
  in.b = b;
  in.c = c;
  in.d = decoder.Target(0);
  in.kind = static_cast<uint8_t>(op);
  in.kind2 = variant;
  in.flush = flush;
  in.saturate = saturate;
  in.flag = relu;
  return true;
}

}  // namespace softgpu::engine
