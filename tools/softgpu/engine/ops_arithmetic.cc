// Opcodes that integers and floats share; the type distinguishes them. And opcodes of floats only.
#include "tools/softgpu/engine/ops_float.h"
#include "tools/softgpu/engine/ops_integer.h"

namespace softgpu::engine {
namespace {

bool DecodeEitherFloat(Decoder& decoder, FloatOp op, Type type, size_t sources) {
  const bool wide = type == Type::kF32 || type == Type::kF64;
  return wide ? DecodeFloat(decoder, op, type, sources) : DecodeHalf(decoder, op, type, sources);
}

template <IntegerOp integer, FloatOp real, size_t sources>
bool DecodeBoth(Decoder& decoder) {
  if (decoder.Take("s16x2")) return DecodeIntegerPair(decoder, integer, true);
  if (decoder.Take("u16x2")) return DecodeIntegerPair(decoder, integer, false);
  const Type type = decoder.TakeType();
  const size_t given = decoder.operands() - 1;
  if (IsFloat(type)) return DecodeEitherFloat(decoder, real, type, sources == 2 && given == 3 ? 3 : sources);
  return DecodeInteger(decoder, integer, type);
}

template <FloatOp op, size_t sources>
bool DecodeReal(Decoder& decoder) {
  return DecodeEitherFloat(decoder, op, decoder.TakeType(), sources);
}

enum class Property : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };
constexpr std::string_view kPropertyNames[] = {"finite", "infinite", "number", "notanumber", "normal", "subnormal"};

template <class T>
void RunTestp(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const a = w.In(in.a);
  uint32_t bits = 0;
  ForLanes(lanes, [&](uint32_t i) {
    const int kind = std::fpclassify(As<T>(a[i]));
    bool result = false;
    switch (static_cast<Property>(in.kind)) {
      case Property::kFinite:
        result = kind != FP_NAN && kind != FP_INFINITE;
        break;
      case Property::kInfinite:
        result = kind == FP_INFINITE;
        break;
      case Property::kNumber:
        result = kind != FP_NAN;
        break;
      case Property::kNotANumber:
        result = kind == FP_NAN;
        break;
      case Property::kNormal:
        result = kind == FP_NORMAL;
        break;
      case Property::kSubnormal:
        result = kind == FP_SUBNORMAL;
        break;
    }
    bits |= static_cast<uint32_t>(result) << i;
  });
  w.SetPredicate(in.pd, lanes, bits);
}

bool DecodeTestp(Decoder& decoder) {
  const int property = decoder.TakeOneOf(kPropertyNames, -1);
  const Type type = decoder.TakeType();
  if (property < 0) return false;
  const ColumnId a = decoder.Source(1, type);
  Instr& in = decoder.Emit(type == Type::kF64 ? RunTestp<double> : RunTestp<float>);
  in.a = a;
  in.kind = static_cast<uint8_t>(property);
  in.pd = decoder.TargetPredicateOf(decoder.operand(0));
  return true;
}

constexpr OpcodeRow kRows[] = {
    {"add", DecodeBoth<IntegerOp::kAdd, FloatOp::kAdd, 2>},
    {"sub", DecodeBoth<IntegerOp::kSub, FloatOp::kSub, 2>},
    {"mul", DecodeBoth<IntegerOp::kMulLow, FloatOp::kMul, 2>},
    {"mad", DecodeBoth<IntegerOp::kMadLow, FloatOp::kFma, 3>},
    {"div", DecodeBoth<IntegerOp::kDiv, FloatOp::kDiv, 2>},
    {"min", DecodeBoth<IntegerOp::kMin, FloatOp::kMin, 2>},
    {"max", DecodeBoth<IntegerOp::kMax, FloatOp::kMax, 2>},
    {"abs", DecodeBoth<IntegerOp::kAbs, FloatOp::kAbs, 1>},
    {"neg", DecodeBoth<IntegerOp::kNeg, FloatOp::kNeg, 1>},
    {"fma", DecodeReal<FloatOp::kFma, 3>},
    {"copysign", DecodeReal<FloatOp::kCopysign, 2>},
    {"testp", DecodeTestp},
};

constexpr OpcodeRow kMathRows[] = {
    {"rcp", DecodeReal<FloatOp::kRcp, 1>},     {"sqrt", DecodeReal<FloatOp::kSqrt, 1>},
    {"rsqrt", DecodeReal<FloatOp::kRsqrt, 1>}, {"sin", DecodeReal<FloatOp::kSin, 1>},
    {"cos", DecodeReal<FloatOp::kCos, 1>},     {"lg2", DecodeReal<FloatOp::kLg2, 1>},
    {"ex2", DecodeReal<FloatOp::kEx2, 1>},     {"tanh", DecodeReal<FloatOp::kTanh, 1>},
};

}  // namespace

std::span<const OpcodeRow> ArithmeticOpcodes() { return kRows; }
std::span<const OpcodeRow> MathOpcodes() { return kMathRows; }

}  // namespace softgpu::engine
