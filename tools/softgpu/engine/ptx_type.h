// The types of PTX operands, by the names in instructions and declarations.
#pragma once

#include <cstdint>
#include <string_view>

namespace softgpu::engine {

enum class Type : uint8_t {
  kNone,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kF16,
  kF16x2,
  kBf16,
  kBf16x2,
  kF32,
  kF64,
  kTf32,
  kE4m3x2,
  kE5m2x2,
  kPred,
};

// Returns kNone if `name` ("u32", without the dot) is no type.
Type TypeNamed(std::string_view name);
// In bytes; 0 for predicates.
uint32_t SizeOf(Type type);

inline bool IsSigned(Type type) { return type >= Type::kS8 && type <= Type::kS64; }
inline bool IsFloat(Type type) { return type >= Type::kF16 && type <= Type::kE5m2x2; }

}  // namespace softgpu::engine
