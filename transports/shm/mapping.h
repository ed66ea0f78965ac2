// Maps a heap's file, the own or a peer's, without reserving memory, at a 2 MiB boundary.
//
// The boundary makes offsets of a heap equally aligned in every process, so that vectorised and huge-page paths agree.
//
// Pages must take memory only when they are touched, whatever the process has requested. mlockall(MCL_FUTURE) fills and
// locks whatever is mapped with access, so heaps are mapped without access and get it afterwards. A core dump would
// fill the pages, so heaps are excluded from core dumps. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

using transport::kPageBytes;
inline constexpr size_t kHugeBytes = size_t{2} << 20;

// Maps all of the own heap. fd -1: memory of this process alone. kSystemError (with the limit in force) when the
// address space is refused. Unmap with UnmapHeap.
Result<std::byte*> MapHeap(int fd, size_t bytes);
void UnmapHeap(std::byte* base, size_t bytes);

// Maps the pages of the shared mapping at `start` once more, `bytes` of them, at `at` or, if that is null, anywhere.
// Needs no descriptor. MAP_FAILED, with errno, if that is refused. Unmap with munmap.
void* MapAgain(std::byte* start, size_t bytes, std::byte* at);

// Maps memory of this process alone; null, with errno, if that is refused. Unmap with munmap.
void* MapPrivate(size_t bytes);
// For a forked child: puts the copy in place of memory that its parent has, too. If there is none, the memory becomes
// inaccessible, with a line to standard error: the child must not write into its parent's memory.
void PutInPlace(std::byte* start, size_t bytes, std::byte* copy);

// An error if processes cannot share heaps where the kernel's pages have that size: parts of a heap have different
// access.
Status CheckPages(size_t page);

// The mappings that a process has of a peer's heap; see transport::PeerProcess. Later mappings need no descriptor.
class Windows {
 public:
  Windows() = default;
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  Status Open(int fd);
  // Maps the first `bytes` of the heap; the first page is read-only. The mapping lives as long as this object.
  Result<std::byte*> Map(size_t bytes);

 private:
  static constexpr int kMost = 64;  // each window is twice as long as the one before
  std::byte* seed_ = nullptr;       // the first page of the file, mapped without access; windows are made from it
  struct {
    std::byte* base;
    size_t bytes;
  } windows_[kMost];
  int count_ = 0;
};

}  // namespace axccl::shm
