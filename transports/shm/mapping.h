// Maps a heap's memfd, its own or a peer's, shared, without reserving memory, at a 2 MiB boundary.
//
// The boundary makes offsets of a heap equally aligned in every process, so that vectorised and huge-page paths agree.
// Pure functions, thread-safe.
#pragma once

#include <cstddef>

#include "src/base/status.h"

namespace axccl::shm {

inline constexpr size_t kPageBytes = 4096;  // granule of the heap
inline constexpr size_t kHugeBytes = size_t{2} << 20;

// kSystemError (with the limit in force) when the address space is refused. Unmap with UnmapHeap.
Result<std::byte*> MapHeap(int fd, size_t bytes);
void UnmapHeap(std::byte* base, size_t bytes);

}  // namespace axccl::shm
