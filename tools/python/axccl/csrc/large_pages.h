// Large pages for results on the CPU. XLA gets memory afresh from the system for each large result; with pages of 4
// KiB, to have it mapped takes longer than to reduce 32 MiB. Thread-safe.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace axccl::python {

// Asks for large pages where a result is going to be written. The system may refuse.
inline void AdviseLargePages(void* result, size_t bytes) {
  constexpr uintptr_t kLargePage = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(result);
  // Those that are the result's alone.
  const uintptr_t first = (begin + kLargePage - 1) / kLargePage * kLargePage;
  const uintptr_t last = (begin + bytes) / kLargePage * kLargePage;
  if (first < last) (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace axccl::python
