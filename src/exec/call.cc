#include "src/exec/call.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace axccl::exec {
namespace {

// Small floats by their definition: sign, `exponent_bits` bits, `mantissa_bits` bits. e4m3 has no infinity.
float DecodeSmallFloat(uint32_t bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const float sign = (bits >> (exponent_bits + mantissa_bits)) & 1 ? -1.0f : 1.0f;
  if (exponent == (1 << exponent_bits) - 1) {
    if (has_infinity) return mantissa == 0 ? sign * INFINITY : NAN;
    if (mantissa == (1u << mantissa_bits) - 1) return NAN;
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  return sign * std::ldexp(static_cast<float>(mantissa | 1u << mantissa_bits), exponent - bias - mantissa_bits);
}

template <class T>
T Load(const void* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

const char* CallName(plan::Kind kind) {
  static constexpr const char* kNames[plan::kNumKinds] = {"AllReduce",  "Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                          "AlltoAll",   "Gather",    "Scatter", "Send/Recv", "barrier"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace

Factor LoadFactor(DataType type, const void* scalar) {
  Factor factor{};
  switch (type) {
    case DataType::kInt16: factor.i64 = Load<int16_t>(scalar); break;
    case DataType::kUint16: factor.u64 = Load<uint16_t>(scalar); break;
    case DataType::kInt8: factor.i64 = Load<int8_t>(scalar); break;
    case DataType::kUint8: factor.u64 = Load<uint8_t>(scalar); break;
    case DataType::kInt32: factor.i64 = Load<int32_t>(scalar); break;
    case DataType::kUint32: factor.u64 = Load<uint32_t>(scalar); break;
    case DataType::kInt64: factor.i64 = Load<int64_t>(scalar); break;
    case DataType::kUint64: factor.u64 = Load<uint64_t>(scalar); break;
    case DataType::kFloat16: factor.f32 = DecodeSmallFloat(Load<uint16_t>(scalar), 5, 10, true); break;
    case DataType::kBfloat16: factor.f32 = std::bit_cast<float>(uint32_t{Load<uint16_t>(scalar)} << 16); break;
    case DataType::kFloat8E4M3: factor.f32 = DecodeSmallFloat(Load<uint8_t>(scalar), 4, 3, false); break;
    case DataType::kFloat8E5M2: factor.f32 = DecodeSmallFloat(Load<uint8_t>(scalar), 5, 2, true); break;
    case DataType::kFloat32: factor.f32 = Load<float>(scalar); break;
    case DataType::kFloat64: factor.f64 = Load<double>(scalar); break;
    default: break;  // no other type is scaled
  }
  return factor;
}

bool BlockForm::Unpack(uint64_t packed) {
  shape.dims = static_cast<int8_t>(packed);
  split = static_cast<int8_t>(packed >> 8);
  concat = static_cast<int8_t>(packed >> 16);
  auto is_dim = [&](int dim) { return dim >= -1 && dim < shape.dims; };
  return packed >> 24 == 0 && shape.dims >= 0 && shape.dims <= plan::kMaxDims && is_dim(split) && is_dim(concat);
}

plan::Shape BlockForm::OperandShape(int dim, int blocks) const {
  plan::Shape operand = shape;
  // Too many elements to count are as good as any number that no memory has.
  if (dim >= 0 && __builtin_mul_overflow(shape.sizes[dim], int64_t{blocks}, &operand.sizes[dim]))
    operand.sizes[dim] = INT64_MAX;
  return operand;
}

uint32_t BlockForm::Hash() const {
  uint64_t h = Packed() ^ 0x9e3779b97f4a7c15ull;
  for (int d = 0; d < shape.dims; ++d) {
    h = (h ^ static_cast<uint64_t>(shape.sizes[d])) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  }
  return static_cast<uint32_t>(h * 0xc4ceb9fe1a85ec53ull >> 32) | 1;
}

namespace {

// A call in words; `amount` says how much of what.
std::string Describe(uint64_t packed, const std::string& amount) {
  const auto kind = static_cast<unsigned>(packed & 0xff), type = static_cast<unsigned>(packed >> 8 & 0xff);
  const auto combine = static_cast<unsigned>(packed >> 16 & 0xff), scaling = static_cast<unsigned>(packed >> 24 & 0x7f);
  if (kind >= plan::kNumKinds || type >= kNumDataTypes || combine > kNumCombines || scaling > 2) return "unreadable call";
  std::string text = CallName(static_cast<plan::Kind>(kind));
  text += " " + amount + " " + DataTypeName(static_cast<DataType>(type));
  if (plan::Reduces(static_cast<plan::Kind>(kind))) {
    text += std::string(" ") +
            (scaling == 1 ? "avg" : scaling == 2 ? "premulsum" : CombineName(static_cast<Combine>(combine)));
    if (combine == static_cast<unsigned>(Combine::kCallback)) text += " " + std::to_string(packed >> 48);
  }
  if (plan::HasRoot(static_cast<plan::Kind>(kind))) text += " root " + std::to_string(packed >> 32 & 0xffff);
  return text;
}

}  // namespace

std::string DescribeCall(uint64_t packed, uint64_t count) { return Describe(packed, "count " + std::to_string(count)); }

std::string DescribeCall(uint64_t packed, const BlockForm& form) {
  std::string text = Describe(packed, "of blocks " + plan::Text(form.shape));
  if (form.split >= 0) text += " split along dimension " + std::to_string(form.split);
  if (form.concat >= 0) text += " concatenated along dimension " + std::to_string(form.concat);
  return text;
}

}  // namespace axccl::exec
