#include "perf/common/types.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace axccl::perf {
namespace {

const char* const kTypeNames[kNumDataTypes] = {"int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
                                               "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
const NumberFormat kFormats[kNumDataTypes] = {
    {false, true, 8, 0, 0},   {false, false, 8, 0, 0},  {false, true, 32, 0, 0}, {false, false, 32, 0, 0},
    {false, true, 64, 0, 0},  {false, false, 64, 0, 0}, {true, true, 16, 5, 10}, {true, true, 32, 8, 23},
    {true, true, 64, 11, 52}, {true, true, 16, 8, 7},   {true, true, 8, 4, 3},   {true, true, 8, 5, 2}};
const char* const kOpNames[kNumOps] = {"sum", "prod", "max", "min", "avg", "mulsum"};

int Find(const char* const* names, int count, const char* name) {
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(names[i], name) == 0) return i;
  }
  return -1;
}

int Bias(const NumberFormat& f) { return (1 << (f.exponent_bits - 1)) - 1; }

}  // namespace

const char* DataTypeName(int type) { return kTypeNames[type]; }

std::string DataTypeNames() {
  std::string all;
  for (const char* name : kTypeNames) all += (all.empty() ? "" : "/") + std::string(name);
  return all;
}

int FindDataType(const char* name) { return Find(kTypeNames, kNumDataTypes, name); }

size_t ElementBytes(int type) { return static_cast<size_t>(kFormats[type].bits) / 8; }

const char* OpName(int op) { return kOpNames[op]; }

int FindOp(const char* name) { return Find(kOpNames, kNumOps, name); }

const NumberFormat& FormatOf(int type) { return kFormats[type]; }

uint64_t EncodeFloat(int type, double value) {
  const NumberFormat& f = kFormats[type];
  uint64_t sign = std::signbit(value) ? uint64_t{1} << (f.bits - 1) : 0;
  double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  int exponent = std::max(std::ilogb(magnitude), 1 - Bias(f));
  uint64_t scaled = static_cast<uint64_t>(std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent)));
  // A subnormal keeps its leading bit inside the mantissa, so adding the two parts is right for both kinds,
  // and rounding up to the next power of two carries into the exponent.
  uint64_t biased = static_cast<uint64_t>(exponent + Bias(f) - 1) << f.mantissa_bits;
  return sign | (biased + scaled);
}

double DecodeFloat(int type, uint64_t bits) {
  const NumberFormat& f = kFormats[type];
  uint64_t mantissa = bits & ((uint64_t{1} << f.mantissa_bits) - 1);
  int exponent = static_cast<int>((bits >> f.mantissa_bits) & ((uint64_t{1} << f.exponent_bits) - 1));
  double sign = (bits >> (f.bits - 1)) & 1 ? -1.0 : 1.0;
  int top = (1 << f.exponent_bits) - 1;
  if (type == ncclFloat8e4m3) {
    // No infinities; only all ones is NaN.
    if (exponent == top && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == top) {
    if (mantissa != 0) return std::numeric_limits<double>::quiet_NaN();
    return sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<double>(mantissa), 1 - Bias(f) - f.mantissa_bits);
  double significand = static_cast<double>(mantissa | (uint64_t{1} << f.mantissa_bits));
  return sign * std::ldexp(significand, exponent - Bias(f) - f.mantissa_bits);
}

double UlpAt(int type, double value) {
  const NumberFormat& f = kFormats[type];
  int exponent = value == 0 ? 1 - Bias(f) : std::max(std::ilogb(value), 1 - Bias(f));
  return std::ldexp(1.0, exponent - f.mantissa_bits);
}

}  // namespace axccl::perf
