// What the switch between devices can fold (NVLink SHARP). Pure functions, for both sides.
#pragma once

#include <cstdint>

#include "src/base/types.h"

namespace axccl::kernels::cuda {

// How the switch folds what it loads of all devices, if PTX has an instruction for that. Of floats the sums alone: PTX
// leaves open what becomes of NaN and of zeros with a sign in a minimum or maximum, which have fixed bits here.
enum class SwitchFold : uint8_t {
  kNone,
  kSumFloat32,
  kSumFloat64,
  kSumFloat16,  // in float, rounded once, as is the next
  kSumBfloat16,
  kSum32,
  kSum64,
  kMinInt32,
  kMinUint32,
  kMinInt64,
  kMinUint64,
  kMaxInt32,
  kMaxUint32,
  kMaxInt64,
  kMaxUint64,
  kAnd,
  kOr,
  kXor,
};

constexpr SwitchFold SwitchSumOf(DataType type) {
  switch (ScalarType(type)) {
    case DataType::kFloat32:
      return SwitchFold::kSumFloat32;
    case DataType::kFloat64:
      return SwitchFold::kSumFloat64;
    case DataType::kFloat16:
      return SwitchFold::kSumFloat16;
    case DataType::kBfloat16:
      return SwitchFold::kSumBfloat16;
    case DataType::kInt32:
    case DataType::kUint32:
      return SwitchFold::kSum32;
    case DataType::kInt64:
    case DataType::kUint64:
      return SwitchFold::kSum64;
    default:
      return SwitchFold::kNone;
  }
}

constexpr SwitchFold SwitchFoldOf(DataType type, Combine combine) {
  const bool least = combine == Combine::kMin;
  if (combine == Combine::kSum) return SwitchSumOf(type);
  if (least || combine == Combine::kMax) {
    switch (type) {
      case DataType::kInt32:
        return least ? SwitchFold::kMinInt32 : SwitchFold::kMaxInt32;
      case DataType::kUint32:
        return least ? SwitchFold::kMinUint32 : SwitchFold::kMaxUint32;
      case DataType::kInt64:
        return least ? SwitchFold::kMinInt64 : SwitchFold::kMaxInt64;
      case DataType::kUint64:
        return least ? SwitchFold::kMinUint64 : SwitchFold::kMaxUint64;
      default:
        return SwitchFold::kNone;
    }
  }
  if (IsFloat(ScalarType(type)) || type >= DataType::kBool) return SwitchFold::kNone;
  if (combine == Combine::kAnd) return SwitchFold::kAnd;
  if (combine == Combine::kOr) return SwitchFold::kOr;
  return combine == Combine::kXor ? SwitchFold::kXor : SwitchFold::kNone;
}

}  // namespace axccl::kernels::cuda
