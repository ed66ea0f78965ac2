// Names, sizes and number formats of the element types and reductions, by our own arithmetic.
//
// Nothing here calls the library under test. Stateless, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "nccl.h"

namespace axccl::perf {

inline constexpr int kNumDataTypes = 12;

// nccl-tests' names: int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2.
const char* DataTypeName(int type);
// All of them, separated by '/'.
std::string DataTypeNames();
// The ncclDataType_t called `name`, or -1.
int FindDataType(const char* name);
// Bytes of one element.
size_t ElementBytes(int type);

// Reductions in nccl-tests' order. kMulSum stands for ncclRedOpCreatePreMulSum.
enum Op { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kMulSum = 5, kNumOps = 6 };
const char* OpName(int op);
// The Op called `name`, or -1.
int FindOp(const char* name);
// The PreMulSum scalar of a rank: 1 on even, 2 on odd ranks.
inline int MulSumScalar(int rank) { return rank % 2 == 0 ? 1 : 2; }

// How a type holds numbers.
struct NumberFormat {
  bool is_float;
  bool is_signed;
  int bits;           // of one element
  int exponent_bits;  // floats only
  int mantissa_bits;  // stored ones; floats only
};
const NumberFormat& FormatOf(int type);

// The bits of the number of float type `type` nearest to `value` (ties to even), which must be within its range.
uint64_t EncodeFloat(int type, double value);
// The value of the bits; NaN and infinities included.
double DecodeFloat(int type, uint64_t bits);
// Distance between neighbouring numbers of the type at |value|.
double UlpAt(int type, double value);

}  // namespace axccl::perf
