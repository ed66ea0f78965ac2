// Element types and reductions, numbered as NCCL numbers them, and their sizes. No state; usable everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axccl {

enum class DataType : uint8_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4M3 = 10,
  kFloat8E5M2 = 11,
};
inline constexpr int kNumDataTypes = 12;

// The element-wise combination of two values. Average and pre-multiplied sum are kSum with scaling, see Scaling.
enum class Combine : uint8_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };
inline constexpr int kNumCombines = 4;

constexpr size_t ElementSize(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

constexpr bool IsFloat(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat64 || type == DataType::kFloat16 ||
         type == DataType::kBfloat16 || type == DataType::kFloat8E4M3 || type == DataType::kFloat8E5M2;
}

constexpr const char* DataTypeName(DataType type) {
  constexpr const char* kNames[kNumDataTypes] = {"int8",  "uint8",   "int32",  "uint32",   "int64",  "uint64",
                                                 "half",  "float",   "double", "bfloat16", "f8e4m3", "f8e5m2"};
  return kNames[static_cast<int>(type)];
}

// A factor in the type the arithmetic is done in: f32 for every float of 32 bits or less, f64 for double, i64 for
// signed and u64 for unsigned integers (products wrap to the element's width).
union Factor {
  float f32;
  double f64;
  int64_t i64;
  uint64_t u64;
};

}  // namespace axccl
