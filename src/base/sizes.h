// Sizes by which memory is laid out, the same in every process that shares it.
#pragma once

#include <cstddef>

namespace axccl {

inline constexpr size_t kPage = 4096;     // the smallest page of any machine: what is shared begins and ends with one
inline constexpr size_t kCacheLine = 64;  // what several threads or processes write lies in lines of its own

}  // namespace axccl
