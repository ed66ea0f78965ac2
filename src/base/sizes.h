// Sizes that determine memory layouts; they are the same in every process that shares the memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axccl {

inline constexpr size_t kPage = 4096;  // the smallest page of any machine; shared memory begins and ends at a multiple
inline constexpr size_t kCacheLine = 64;  // data that several threads or processes write lies in lines of its own

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace axccl
