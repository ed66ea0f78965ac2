#include "tests/harness/element.h"

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

namespace axccl::harness {
namespace {

// A binary floating-point format with a sign bit on top.
struct Format {
  int mantissa_bits;
  int exponent_bits;
  bool has_infinity;  // the top exponent is reserved for infinity and NaN
  bool saturates;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int min_exponent() const { return 1 - bias(); }
  uint64_t sign_bit() const { return uint64_t{1} << (mantissa_bits + exponent_bits); }
  uint64_t magnitude_mask() const { return sign_bit() - 1; }
  // e4m3fn keeps one pattern of the top exponent, all ones, for NaN.
  uint64_t largest() const {
    if (!has_infinity) return magnitude_mask() - 1;
    return (((uint64_t{1} << exponent_bits) - 1) << mantissa_bits) - 1;
  }
};

Format FormatOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
      return {10, 5, true, false};
    case ncclBfloat16:
      return {7, 8, true, false};
    case ncclFloat32:
      return {23, 8, true, false};
    case ncclFloat8e4m3:
      return {3, 4, false, true};
    case ncclFloat8e5m2:
      return {2, 5, true, true};
    default:
      return {52, 11, true, false};
  }
}

}  // namespace

const char* TypeName(ncclDataType_t type) {
  constexpr const char* kNames[] = {"int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
                                    "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
  constexpr const char* kMore[] = {"int16", "uint16", "bool", "complex64", "complex128"};
  if (IsOpaqueType(type)) return "bits";
  return type < ncclNumTypes ? kNames[static_cast<int>(type)] : kMore[type - axcclInt16];
}

size_t TypeBytes(ncclDataType_t type) {
  constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  constexpr size_t kMore[] = {2, 2, 1, 8, 16};
  if (IsOpaqueType(type)) return static_cast<size_t>(type) - 128;
  return type < ncclNumTypes ? kBytes[static_cast<int>(type)] : kMore[type - axcclInt16];
}

bool IsComplexType(ncclDataType_t type) { return type == axcclComplex64 || type == axcclComplex128; }

bool IsOpaqueType(ncclDataType_t type) { return type > axcclBits(0) && type <= axcclBits(16); }

bool IsFloatType(ncclDataType_t type) { return type >= ncclFloat16 && type <= ncclFloat8e5m2; }

bool IsSignedInteger(ncclDataType_t type) {
  return type == ncclInt8 || type == axcclInt16 || type == ncclInt32 || type == ncclInt64;
}

int Precision(ncclDataType_t type) { return FormatOf(type).mantissa_bits + 1; }

double UlpAt(ncclDataType_t type, double value) {
  const Format format = FormatOf(type);
  int exponent = value == 0 ? format.min_exponent() : std::ilogb(value);
  if (exponent < format.min_exponent()) exponent = format.min_exponent();
  return std::ldexp(1.0, exponent - format.mantissa_bits);
}

uint64_t EncodeFloat(ncclDataType_t type, double value) {
  // Large buffers of the native types would take too long bit by bit; the compiler's conversions are as good an oracle.
  if (type == ncclFloat64) return std::bit_cast<uint64_t>(value);
  if (type == ncclFloat32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  return EncodeFormat(type, value);
}

uint64_t EncodeFormat(ncclDataType_t type, double value) {
  const Format format = FormatOf(type);
  const uint64_t sign = std::signbit(value) ? format.sign_bit() : 0;
  const uint64_t infinity = format.largest() + 1;  // with e4m3fn: the NaN pattern
  if (std::isnan(value)) return sign | format.magnitude_mask();
  if (std::isinf(value)) return sign | (format.has_infinity ? infinity : format.largest());
  // nearbyint rounds to nearest even in the default rounding mode.
  const double magnitude = std::fabs(value);
  const double ulp = UlpAt(type, magnitude);
  const double units = std::nearbyint(magnitude / ulp);
  if (units == 0) return sign;
  // In units of its ulp a normal number lies in [2^m, 2^(m+1)]; adding the exponent field arithmetically carries over.
  const int exponent = std::ilogb(ulp) + format.mantissa_bits;
  const uint64_t field = static_cast<uint64_t>(exponent - format.min_exponent());
  const uint64_t bits = (field << format.mantissa_bits) + static_cast<uint64_t>(units);
  if (bits > format.largest()) return sign | (format.saturates ? format.largest() : infinity);
  return sign | bits;
}

double DecodeFloat(ncclDataType_t type, uint64_t bits) {
  const Format format = FormatOf(type);
  const uint64_t magnitude = bits & format.magnitude_mask();
  const double sign = (bits & format.sign_bit()) != 0 ? -1.0 : 1.0;
  if (magnitude > format.largest()) {
    const bool infinite = format.has_infinity && magnitude == format.largest() + 1;
    return sign * (infinite ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN());
  }
  const uint64_t field = magnitude >> format.mantissa_bits;
  const uint64_t mantissa = magnitude & ((uint64_t{1} << format.mantissa_bits) - 1);
  const int exponent = field == 0 ? format.min_exponent() : static_cast<int>(field) - format.bias();
  const uint64_t units = mantissa + (field == 0 ? 0 : uint64_t{1} << format.mantissa_bits);
  return sign * std::ldexp(static_cast<double>(units), exponent - format.mantissa_bits);
}

// Copies of a constant size are single instructions.
uint64_t LoadElement(const void* array, ncclDataType_t type, size_t index) {
  const size_t bytes = TypeBytes(type);
  const char* from = static_cast<const char*>(array) + index * bytes;
  uint64_t bits = 0;
  switch (bytes) {
    case 1:
      std::memcpy(&bits, from, 1);
      break;
    case 2:
      std::memcpy(&bits, from, 2);
      break;
    case 4:
      std::memcpy(&bits, from, 4);
      break;
    default:
      std::memcpy(&bits, from, 8);
  }
  return bits;
}

void StoreElement(void* array, ncclDataType_t type, size_t index, uint64_t bits) {
  const size_t bytes = TypeBytes(type);
  char* to = static_cast<char*>(array) + index * bytes;
  switch (bytes) {
    case 1:
      std::memcpy(to, &bits, 1);
      break;
    case 2:
      std::memcpy(to, &bits, 2);
      break;
    case 4:
      std::memcpy(to, &bits, 4);
      break;
    default:
      std::memcpy(to, &bits, 8);
  }
}

std::string ElementText(ncclDataType_t type, uint64_t bits) {
  char text[96];
  if (IsFloatType(type)) {
    std::snprintf(text, sizeof text, "%.17g (0x%llx)", DecodeFloat(type, bits), static_cast<unsigned long long>(bits));
  } else {
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(bits));
  }
  return text;
}

}  // namespace axccl::harness
