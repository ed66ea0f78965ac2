// Maps a heap's file, the own or a peer's, without reserving memory, at a 2 MiB boundary.
//
// The boundary makes offsets of a heap equally aligned in every process, so that vectorised and huge-page paths agree.
//
// Pages take memory when they are touched and not before, whatever the process has asked for: mlockall(MCL_FUTURE)
// fills and locks what is mapped with access, so that heaps are mapped without it and get it afterwards; and a core
// dump would fill them, so that heaps are not in core dumps. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

using transport::kPageBytes;
inline constexpr size_t kHugeBytes = size_t{2} << 20;

// All of the own heap. fd -1: memory of this process alone. kSystemError (with the limit in force) when the address
// space is refused. Unmap with UnmapHeap.
Result<std::byte*> MapHeap(int fd, size_t bytes);
void UnmapHeap(std::byte* base, size_t bytes);

// The mappings that a process has of a peer's heap; see transport::PeerProcess. No descriptor is kept for those to
// come.
class Windows {
 public:
  Windows() = default;
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  Status Open(int fd);
  // The first `bytes` of the heap, of which the first page can only be read. Lives as long as this.
  Result<std::byte*> Map(size_t bytes);

 private:
  static constexpr int kMost = 64;  // each is twice as long as the one before
  std::byte* seed_ = nullptr;       // the first page of the file, mapped without access: what windows are made from
  struct {
    std::byte* base;
    size_t bytes;
  } windows_[kMost];
  int count_ = 0;
};

}  // namespace axccl::shm
