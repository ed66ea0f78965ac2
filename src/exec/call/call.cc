#include "src/exec/call/call.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "src/base/float_mode.h"

namespace axccl::exec {
namespace {

// Decodes a small float by its definition: sign, `exponent_bits` bits, `mantissa_bits` bits. e4m3 has no infinity.
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

// The name that the program used.
std::string CallName(plan::Kind kind, uint64_t packed) {
  static constexpr const char* kNames[plan::kNumKinds] = {
      "AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllToAll", "Gather", "Scatter", "Send", ""};
  const auto form = static_cast<Call::Form>(packed >> Call::kFormShift & 3);
  const bool second = (packed & Call::kSecondName) != 0;
  if (kind == plan::Kind::kBarrier) return "barrier";
  if (form == Call::Form::kPermute) return "axcclCollectivePermute";
  if (form == Call::Form::kRagged) return "axcclRaggedAllToAll";
  if (form == Call::Form::kRooted) return plan::Reduces(kind) ? "axcclReduceTo" : "axcclBroadcastFrom";
  const bool on_views = (packed & Call::kOnViews) != 0;
  const char* name = kNames[static_cast<int>(kind)];
  if (kind == plan::Kind::kSendRecv && second) name = "Recv";
  if (kind == plan::Kind::kBroadcast && second) name = "Bcast";
  if (kind == plan::Kind::kAllToAll && !on_views) name = "AlltoAll";
  return std::string(on_views ? "axccl" : "nccl") + name + ((packed & Call::kUneven) != 0 ? "V" : "");
}

}  // namespace

Factor LoadFactor(DataType type, const void* scalar) {
  Factor factor{};
  switch (type) {
    case DataType::kInt16:
      factor.i64 = Load<int16_t>(scalar);
      break;
    case DataType::kUint16:
      factor.u64 = Load<uint16_t>(scalar);
      break;
    case DataType::kInt8:
      factor.i64 = Load<int8_t>(scalar);
      break;
    case DataType::kUint8:
      factor.u64 = Load<uint8_t>(scalar);
      break;
    case DataType::kInt32:
      factor.i64 = Load<int32_t>(scalar);
      break;
    case DataType::kUint32:
      factor.u64 = Load<uint32_t>(scalar);
      break;
    case DataType::kInt64:
      factor.i64 = Load<int64_t>(scalar);
      break;
    case DataType::kUint64:
      factor.u64 = Load<uint64_t>(scalar);
      break;
    case DataType::kFloat16:
      factor.f32 = DecodeSmallFloat(Load<uint16_t>(scalar), 5, 10, true);
      break;
    case DataType::kBfloat16:
      factor.f32 = std::bit_cast<float>(uint32_t{Load<uint16_t>(scalar)} << 16);
      break;
    case DataType::kFloat8E4M3:
      factor.f32 = DecodeSmallFloat(Load<uint8_t>(scalar), 4, 3, false);
      break;
    case DataType::kFloat8E5M2:
      factor.f32 = DecodeSmallFloat(Load<uint8_t>(scalar), 5, 2, true);
      break;
    case DataType::kFloat32:
      factor.f32 = Load<float>(scalar);
      break;
    case DataType::kFloat64:
      factor.f64 = Load<double>(scalar);
      break;
    default:
      break;  // other types are not scaled
  }
  return factor;
}

namespace {

// Describes a call; `operands` says how much of what.
std::string Describe(uint64_t packed, const std::string& operands) {
  const auto kind = static_cast<unsigned>(packed & 0xff), type = static_cast<unsigned>(packed >> 8 & 0xff);
  const auto combine = static_cast<unsigned>(packed >> 16 & 0xff), scaling = static_cast<unsigned>(packed >> 24 & 3);
  if (kind >= plan::kNumKinds || type >= kNumDataTypes || combine > kNumCombines || scaling > 2)
    return "unreadable call";
  std::string text = CallName(static_cast<plan::Kind>(kind), packed) + " " + operands;
  if (plan::Reduces(static_cast<plan::Kind>(kind))) {
    text += std::string(" ") + (scaling == 1   ? "avg"
                                : scaling == 2 ? "premulsum"
                                               : CombineName(static_cast<Combine>(combine)));
    if (combine == static_cast<unsigned>(Combine::kCallback)) text += " " + std::to_string(packed >> 48);
    if ((packed & Call::kGroupOrder) != 0) text += " in group order";
  }
  if (plan::HasRoot(static_cast<plan::Kind>(kind))) text += " root " + std::to_string(packed >> 32 & 0xffff);
  return text;
}

}  // namespace

std::string DescribeCall(uint64_t packed, uint64_t count) {
  const auto type = static_cast<unsigned>(packed >> 8 & 0xff);
  if (type >= kNumDataTypes) return "unreadable call";
  return Describe(packed, "count " + std::to_string(count) + " " + DataTypeName(static_cast<DataType>(type)));
}

std::string DescribeCall(uint64_t packed, uint64_t operands, const BlockForm& first, DataType type, double scale,
                         const Slices& slices) {
  const bool is_sliced = slices.slices != 0 && slices.dim >= 0 && slices.dim < first.shape.dims;
  const std::string blocks = "of blocks " + Text(is_sliced ? first.WithFirstAt(slices.dim) : first, type);
  std::string text =
      Describe(packed, operands == 1 ? blocks : "of " + std::to_string(operands) + " operands, first " + blocks);
  if (slices.slices != 0) text = "a pipeline of " + text + Text(slices);
  if (scale == 0) return text;
  char number[32];
  std::snprintf(number, sizeof(number), "%.9g", scale);
  return text + " scaled by " + number;
}

std::string DescribeCall(const Call& call) {
  if (call.views == nullptr) return DescribeCall(call.Named(), call.count);
  const std::vector<ViewOperand>& operands = call.views->operands;
  return DescribeCall(call.Named(), operands.size(), operands[0].form, operands[0].type, call.views->scale,
                      call.views->slices);
}

Factor FactorOf(DataType type, double value, double divisor) {
  const DefaultFloatMode mode;
  HoldHere(&value);
  HoldHere(&divisor);
  Factor factor{};
  if (ScalarType(type) == DataType::kFloat64) {
    factor.f64 = value / divisor;
  } else if (IsFloat(ScalarType(type))) {
    factor.f32 = static_cast<float>(value / divisor);
  } else {
    factor.i64 = static_cast<int64_t>(value / divisor);
  }
  HoldHere(&factor);
  return factor;
}

}  // namespace axccl::exec
