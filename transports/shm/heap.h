// The heap of this process: memory every local peer process can address (see transports/transport.h).
//
// A sparse memfd of fixed, sealed size (default: physical memory, at most 1 TiB; AXCCL_HEAP_BYTES), created at first use.
// Pages cost memory only once touched; freed pages are returned to the system. Thread-safe. After fork the child must not
// use it (every call fails with kInvalidUsage).
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

class Heap {
 public:
  // The process's heap, created at the first call. kSystemError with need and limit when it cannot be had.
  static Result<Heap*> Get();

  // Zeroed memory; alignment a power of two <= 2 MiB. Allocations of 2 MiB and more are aligned to 2 MiB.
  Result<void*> Allocate(size_t bytes, size_t alignment);
  // `p` from Allocate. kInvalidArgument when it is not, or was freed already.
  Status Free(void* p);

  // Whether [p, p + bytes) lies inside live allocations of this heap, and its offset from the base.
  bool Contains(const void* p, size_t bytes, uint64_t* offset) const;

  std::byte* base() const;
  size_t bytes() const;
  uint64_t allocated_bytes() const;  // sum of live allocations
  int fd() const;
  transport::ProcessPage* page() const;
};

}  // namespace axccl::shm
