// Addresses that stand for one in the memory of each of several devices, as kernels/cuda/primitives.h has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/cuda/switch_fold.h"

namespace axccl::fibers {

// The addresses from kTeam on, which are no memory.
inline constexpr uint64_t kTeam = uint64_t{1} << 45;
// The memory behind them, of each device. Set before a run.
inline std::vector<uint8_t*>& Team() {
  static auto* const team = new std::vector<uint8_t*>;
  return *team;
}
inline uint64_t OffsetInTeam(const uint8_t* p) { return reinterpret_cast<uint64_t>(p) - kTeam; }

template <class T, class F>
void FoldEach(uint32_t* to, const uint32_t* from, F fold) {
  for (size_t at = 0; at < 16; at += sizeof(T)) {
    T a, b;
    std::memcpy(&a, reinterpret_cast<uint8_t*>(to) + at, sizeof(T));
    std::memcpy(&b, reinterpret_cast<const uint8_t*>(from) + at, sizeof(T));
    a = fold(a, b);
    std::memcpy(reinterpret_cast<uint8_t*>(to) + at, &a, sizeof(T));
  }
}

inline float OfBfloat16(uint16_t code) {
  const uint32_t bits = uint32_t{code} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Folds 16 bytes into others. Sums of bfloat16 must be exact.
inline void FoldPiece(kernels::cuda::SwitchFold fold, uint32_t* to, const uint32_t* from) {
  using kernels::cuda::SwitchFold;
  const auto add = [](auto a, auto b) { return static_cast<decltype(a)>(a + b); };
  const auto most = [](auto a, auto b) { return a > b ? a : b; };
  switch (fold) {
    case SwitchFold::kSumFloat32:
      return FoldEach<float>(to, from, add);
    case SwitchFold::kSumFloat64:
      return FoldEach<double>(to, from, add);
    case SwitchFold::kSumBfloat16:
      return FoldEach<uint16_t>(to, from, [](uint16_t a, uint16_t b) {
        const float sum = OfBfloat16(a) + OfBfloat16(b);
        uint32_t bits;
        std::memcpy(&bits, &sum, sizeof(bits));
        return static_cast<uint16_t>(bits >> 16);
      });
    case SwitchFold::kSum32:
      return FoldEach<uint32_t>(to, from, add);
    case SwitchFold::kSum64:
      return FoldEach<uint64_t>(to, from, add);
    case SwitchFold::kMaxInt32:
      return FoldEach<int32_t>(to, from, most);
    case SwitchFold::kMaxUint64:
      return FoldEach<uint64_t>(to, from, most);
    default:
      std::abort();  // no test has it
  }
}

}  // namespace axccl::fibers
