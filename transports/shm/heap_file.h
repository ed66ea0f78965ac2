// The file of a heap, and its replacements on restricted systems.
//
// - A memfd of sealed size. Nothing needs to be mounted, and untouched pages take no memory.
// - Where memfd_create is forbidden (a system call filter): an unnamed file in /dev/shm. Such a folder may be small (64
//   MiB in a container by default), and SIGBUS kills a process that touches a page for which there is no room. So
//   memory is reserved as it is allocated (Commit), and takes room from then on.
// - Otherwise memory without a file, which only the threads of this process can access. That is enough where all ranks
//   live in it; other processes get an error that says why they cannot attach (transport::ProcessAddress).
//
// Running out of descriptors is an error, not a reason to try the next kind. Pure functions except for the file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/service_fd.h"
#include "src/base/status.h"
#include "transports/transport.h"

namespace axccl::shm {

class HeapFile {
 public:
  // Creates a file of at least `least` and at most `wanted` bytes, as `ulimit -f` allows.
  static Result<HeapFile> Create(size_t least, size_t wanted);

  int fd() const { return fd_.get(); }  // -1: private. For what changes or sends the file: after Check
  // An error that says so if the program has closed the descriptor. It may be that of a file of the program by now.
  Status Check() const { return fd_.Check("shared heap"); }
  uint64_t id() const { return fd_.file(); }  // see service::FileId
  size_t bytes() const { return bytes_; }
  transport::HeapKind kind() const { return kind_; }
  int memfd_error() const { return memfd_error_; }
  int tmpfs_error() const { return tmpfs_error_; }

  // Must precede touching [offset, offset + bytes). kSystemError, with a text that says so, if there is no room.
  Status Commit(uint64_t offset, uint64_t bytes) const;
  // Returns zeroed pages of [offset, offset + bytes) to the system; false if that is not possible by the descriptor.
  bool PunchHole(uint64_t offset, uint64_t bytes) const;
  // Returns the first stretch of [begin, end) that may have been touched; empty, at `end`, if there is none. All of it
  // where the file cannot tell.
  struct Stretch {
    uint64_t begin, end;
  };
  Stretch Touched(uint64_t begin, uint64_t end) const;

 private:
  HeapFile() = default;
  service::Fd fd_;
  size_t bytes_ = 0;
  transport::HeapKind kind_ = transport::HeapKind::kMemfd;
  int memfd_error_ = 0, tmpfs_error_ = 0;
};

// Whether a file that a peer offers as its heap, of that kind, keeps its size: a file that shrinks kills a process that
// touches it by SIGBUS. Returns null, or a phrase that says what is wrong with it.
const char* WhyUnsafe(int fd, transport::HeapKind kind);

}  // namespace axccl::shm
