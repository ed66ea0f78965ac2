// The file of a heap: of what it is made where the first choice is not to be had.
//
// - A memfd of sealed size. Nothing needs to be mounted, and what is not touched takes no memory.
// - Where memfd_create is forbidden (a system call filter): a file without a name in /dev/shm. Such a folder may be
// small
//   (64 MiB in a container by default), and who touches a page that it has no room for is killed by SIGBUS; so memory
//   is reserved as it is allocated (Commit), and takes room from then on.
// - Else memory without a file, which only the threads of this process reach. Enough where all ranks live in it; other
//   processes are told why they cannot attach (transport::ProcessAddress).
//
// Out of descriptors is an error, not a reason to take the next. Pure functions but for the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

class HeapFile {
 public:
  // At least `least` bytes, at most `wanted`: what `ulimit -f` allows.
  static Result<HeapFile> Create(size_t least, size_t wanted);

  int fd() const { return fd_.get(); }  // -1: private
  size_t bytes() const { return bytes_; }
  transport::HeapKind kind() const { return kind_; }
  int memfd_error() const { return memfd_error_; }
  int tmpfs_error() const { return tmpfs_error_; }

  // Before [offset, offset + bytes) is touched. kSystemError where there is no room, which is said.
  Status Commit(uint64_t offset, uint64_t bytes) const;

 private:
  HeapFile() = default;
  service::Fd fd_;
  size_t bytes_ = 0;
  transport::HeapKind kind_ = transport::HeapKind::kMemfd;
  int memfd_error_ = 0, tmpfs_error_ = 0;
};

// Whether a file that a peer calls its heap, of that kind, keeps its size: one that shrinks ends whoever touches it by
// SIGBUS. Null, or in words what it is not.
const char* WhyUnsafe(int fd, transport::HeapKind kind);

}  // namespace axccl::shm
