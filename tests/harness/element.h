// The element types of the API, converted by the tests' own code, because the oracle must share nothing with the
// library. Pure functions.
//
// Floats are converted through double, rounded once to nearest even. fp8 is OCP e4m3fn (no infinity, one NaN per sign)
// and e5m2; finite values beyond the largest saturate to it, as in CUDA's SATFINITE conversions. f16, bf16 and f32
// overflow to infinity.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "axccl/axccl.h"
#include "nccl.h"

namespace axccl::harness {

// The types that are a number of at most 8 bytes.
inline constexpr std::array<ncclDataType_t, 14> kAllTypes = {
    ncclInt8,    ncclUint8,   ncclInt32,   ncclUint32,   ncclInt64,      ncclUint64,     axcclInt16,
    ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2, axcclUint16};

const char* TypeName(ncclDataType_t type);
size_t TypeBytes(ncclDataType_t type);
bool IsComplexType(ncclDataType_t type);
bool IsOpaqueType(ncclDataType_t type);
bool IsFloatType(ncclDataType_t type);
bool IsSignedInteger(ncclDataType_t type);

// Bits of precision of a float type (24 for f32): integers up to 2^precision are exact.
int Precision(ncclDataType_t type);

// The element of a float type nearest to `value`, as the low bits of the result.
uint64_t EncodeFloat(ncclDataType_t type, double value);
// The same, computed from the format's definition, for every float type.
uint64_t EncodeFormat(ncclDataType_t type, double value);
// The value of a float element.
double DecodeFloat(ncclDataType_t type, uint64_t bits);
// The distance between neighbours of `type` around `value` (a finite value in the type's range).
double UlpAt(ncclDataType_t type, double value);

// Element `index` of an array, as the low bits of the result, and back.
uint64_t LoadElement(const void* array, ncclDataType_t type, size_t index);
void StoreElement(void* array, ncclDataType_t type, size_t index, uint64_t bits);

// "3.5 (0x4060...)", for messages.
std::string ElementText(ncclDataType_t type, uint64_t bits);

}  // namespace axccl::harness
