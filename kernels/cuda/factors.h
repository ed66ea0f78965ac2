// Scaling on the device, as in exec::Operation: the factors and divisors of a task's inputs and results.
#pragma once

#include <cstdint>

#include "kernels/cuda/formats.h"
#include "kernels/cuda/launch.h"

namespace axccl::kernels::cuda {

// As ElementSize, whose table a device would copy to its stack.
AXCCL_DEVICE uint32_t ElementBytes(DataType type) {
  constexpr uint64_t kShifts = 0x3011'0013'2133'2200;  // 4 bits for each arithmetic type except the last
  const auto index = static_cast<uint32_t>(type);
  if (index + 1 < kNumArithmeticTypes) return 1u << (kShifts >> (4 * index) & 15);
  return index + 1 == kNumArithmeticTypes ? 16 : index - kNumArithmeticTypes + 1;
}

// A factor that changes nothing.
AXCCL_DEVICE Factor One(DataType type) {
  Factor one{};
  if (ScalarType(type) == DataType::kFloat64) {
    one.f64 = 1;
  } else if (IsFloat(ScalarType(type))) {
    one.f32 = 1;
  } else {
    one.i64 = 1;
  }
  return one;
}

// 1 / `ranks`, for floats.
AXCCL_DEVICE Factor Mean(DataType type, uint32_t ranks) {
  Factor mean{};
  if (ScalarType(type) == DataType::kFloat64) {
    mean.f64 = 1.0 / ranks;
  } else {
    mean.f32 = static_cast<float>(1.0 / ranks);
  }
  return mean;
}

// Converts an element of `type` (in the low bytes of `bits`) to the type in which the arithmetic is done.
AXCCL_DEVICE Factor FactorOf(DataType type, uint64_t bits) {
  Factor factor{};
  const auto code = static_cast<uint32_t>(bits);
  switch (type) {
    case DataType::kInt8:
      factor.i64 = static_cast<int8_t>(bits);
      break;
    case DataType::kInt16:
      factor.i64 = static_cast<int16_t>(bits);
      break;
    case DataType::kInt32:
      factor.i64 = static_cast<int32_t>(bits);
      break;
    case DataType::kUint8:
      factor.u64 = static_cast<uint8_t>(bits);
      break;
    case DataType::kUint16:
      factor.u64 = static_cast<uint16_t>(bits);
      break;
    case DataType::kUint32:
      factor.u64 = code;
      break;
    case DataType::kFloat16:
      factor.f32 = Binary16::ToFloat(code & 0xffffu);
      break;
    case DataType::kBfloat16:
      factor.f32 = Brain16::ToFloat(code & 0xffffu);
      break;
    case DataType::kFloat8E4M3:
      factor.f32 = Float8<true>::ToFloat(code & 0xffu);
      break;
    case DataType::kFloat8E5M2:
      factor.f32 = Float8<false>::ToFloat(code & 0xffu);
      break;
    case DataType::kFloat32:
      factor.f32 = Binary32::ToFloat(code);
      break;
    default:
      factor.u64 = bits;
      break;  // 64 bits; other types are not scaled
  }
  return factor;
}

// Loads an element at any address that its type allows.
AXCCL_DEVICE uint64_t LoadElement(const void* p, uint32_t bytes) {
  const auto* const from = static_cast<const uint8_t*>(p);
  uint64_t bits = 0;
  for (uint32_t b = 0; b < bytes; ++b) bits |= uint64_t{LoadWord<uint8_t>(from + b)} << (8 * b);
  return bits;
}

// What inputs are multiplied by: `pointer` and `scalar` are those of the task.
AXCCL_DEVICE Factor GivenFactor(DataType type, const void* pointer, uint64_t scalar, uint32_t element) {
  return FactorOf(type, pointer != nullptr ? LoadElement(pointer, element) : scalar);
}

// The factor of the task's own input.
AXCCL_DEVICE Factor OwnFactor(const Task& task, uint32_t element) {
  if (task.scaling != Scaling::kPreMultiply) return One(task.type);
  return GivenFactor(task.type, task.scalar_pointer, task.scalar, element);
}

}  // namespace axccl::kernels::cuda
