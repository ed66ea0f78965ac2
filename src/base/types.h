// Element types and reductions, and their sizes. The first twelve types and four reductions have NCCL's numbers. No
// state; usable everywhere.
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
  kInt16 = 12,
  kUint16 = 13,
  kBool = 14,        // one byte; any value but 0 is true, results are 0 and 1
  kComplex64 = 15,   // real and imaginary part, both float
  kComplex128 = 16,  // real and imaginary part, both double
  // Opaque elements of 1 to kMaxOpaqueBytes bytes follow, see OpaqueType. They can be moved but not combined.
  kOpaque1 = 17,
};
inline constexpr int kNumArithmeticTypes = 17;  // the types before the opaque ones
inline constexpr int kMaxOpaqueBytes = 16;
inline constexpr int kNumDataTypes = kNumArithmeticTypes + kMaxOpaqueBytes;

// The element-wise combination of two values. Average and pre-multiplied sum are kSum with scaling, see Scaling.
enum class Combine : uint8_t {
  kSum = 0,
  kProd = 1,
  kMax = 2,
  kMin = 3,
  kAnd = 4,  // bitwise, as the next two
  kOr = 5,
  kXor = 6,
  kLogicalAnd = 7,  // any value but 0 is true, results are 0 and 1
  kLogicalOr = 8,
  kCallback = 9,  // the application's own function; no mover implements it
};
inline constexpr int kNumCombines = 9;  // without kCallback

enum class Scaling : uint8_t {
  kNone,
  kAverage,      // by 1/n: floats before the sum, integers after it
  kPreMultiply,  // each rank's input by that rank's scalar
  kResult,       // tasks of GPUs alone: the result, of floats, by a Factor
};

// Returns the opaque type of `bytes`, which must be in [1, kMaxOpaqueBytes].
constexpr DataType OpaqueType(int bytes) {
  return static_cast<DataType>(static_cast<int>(DataType::kOpaque1) + bytes - 1);
}

constexpr bool IsOpaque(DataType type) { return static_cast<int>(type) >= kNumArithmeticTypes; }

// Each type takes three bits. A table would be copied at every call, and device code could not read it.
inline constexpr uint64_t kLogOfSizes = [] {
  constexpr int kLogs[kNumArithmeticTypes] = {0, 0, 2, 2, 3, 3, 1, 2, 3, 1, 0, 0, 1, 1, 0, 3, 4};
  uint64_t packed = 0;
  for (int i = 0; i < kNumArithmeticTypes; ++i) packed |= uint64_t(kLogs[i]) << 3 * i;
  return packed;
}();

constexpr size_t ElementSize(DataType type) {
  const auto index = static_cast<size_t>(type);
  return index < kNumArithmeticTypes ? size_t{1} << (kLogOfSizes >> 3 * index & 7) : index - kNumArithmeticTypes + 1;
}

constexpr bool IsFloat(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat64 || type == DataType::kFloat16 ||
         type == DataType::kBfloat16 || type == DataType::kFloat8E4M3 || type == DataType::kFloat8E5M2;
}

constexpr bool IsComplex(DataType type) { return type == DataType::kComplex64 || type == DataType::kComplex128; }

// Returns the type of an element's parts: that of the real and imaginary part of a complex number, else the type
// itself.
constexpr DataType ScalarType(DataType type) {
  if (!IsComplex(type)) return type;
  return type == DataType::kComplex64 ? DataType::kFloat32 : DataType::kFloat64;
}

// Whether the movers can combine elements of `type` with `combine`.
constexpr bool Combines(DataType type, Combine combine) {
  if (IsOpaque(type) || combine == Combine::kCallback) return false;
  if (IsComplex(type)) return combine <= Combine::kProd;
  return !IsFloat(type) || combine <= Combine::kMin;
}

constexpr const char* DataTypeName(DataType type) {
  constexpr const char* kNames[kNumDataTypes] = {
      "int8",     "uint8",    "int32",    "uint32",   "int64",    "uint64",  "half",      "float",      "double",
      "bfloat16", "f8e4m3",   "f8e5m2",   "int16",    "uint16",   "bool",    "complex64", "complex128", "bits(1)",
      "bits(2)",  "bits(3)",  "bits(4)",  "bits(5)",  "bits(6)",  "bits(7)", "bits(8)",   "bits(9)",    "bits(10)",
      "bits(11)", "bits(12)", "bits(13)", "bits(14)", "bits(15)", "bits(16)"};
  return kNames[static_cast<int>(type)];
}

constexpr const char* CombineName(Combine combine) {
  constexpr const char* kNames[kNumCombines + 1] = {"sum", "prod", "max",         "min",        "and",
                                                    "or",  "xor",  "logical and", "logical or", "callback"};
  return kNames[static_cast<int>(combine)];
}

// A factor in the type in which the arithmetic is done: f32 for floats of 32 bits or less and the parts of complex64,
// f64 for double and the parts of complex128, i64 for signed and u64 for unsigned integers (products wrap to the width
// of the element).
union Factor {
  float f32;
  double f64;
  int64_t i64;
  uint64_t u64;
};

}  // namespace axccl
