#include "tests/exec/memory.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace axccl::exec {
namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::perror(what);
  std::abort();
}

}  // namespace

TwiceMapped::TwiceMapped(size_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
  const int fd = memfd_create("axccl-test", MFD_CLOEXEC);
  Require(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes_)) == 0, "memfd_create");
  for (std::byte** view : {&own_, &peer_}) {
    void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    Require(at != MAP_FAILED, "mmap");
    *view = static_cast<std::byte*>(at);
  }
  close(fd);
}

TwiceMapped::~TwiceMapped() {
  munmap(own_, bytes_);
  munmap(peer_, bytes_);
}

bool TwiceMapped::Contains(const void* p, size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(p);
  return begin >= own_ && begin < own_ + bytes_ && bytes <= static_cast<size_t>(own_ + bytes_ - begin);
}

void TwiceMapped::SetAccessible(bool accessible) {
  Require(mprotect(own_, bytes_, accessible ? PROT_READ | PROT_WRITE : PROT_NONE) == 0, "mprotect");
}

FakePeer::FakePeer(std::byte* heap, size_t heap_bytes, uint32_t pid, bool is_self) {
  heap_ = heap;
  heap_bytes_ = heap_bytes;
  SetWindow(heap, heap_bytes);
  pid_ = pid;
  is_self_ = is_self;
}

FakeProcess::FakeProcess(uint32_t pid, size_t heap_bytes, size_t private_bytes)
    : pid_(pid),
      heap_(heap_bytes),
      private_(private_bytes),
      self_(heap_.own(), heap_.bytes(), pid, true),
      peer_(heap_.peer(), heap_.bytes(), pid, false) {}

void FakeProcess::Die() {
  __atomic_fetch_or(reinterpret_cast<uint32_t*>(&self_.page()->liveness), FUTEX_OWNER_DIED, __ATOMIC_SEQ_CST);
}

std::byte* FakeProcess::Take(const TwiceMapped& memory, size_t* used, size_t bytes, size_t alignment) {
  const size_t at = (*used + alignment - 1) / alignment * alignment;
  Require(at + bytes <= memory.bytes(), "the pretended process has too little memory");
  *used = at + bytes;
  return memory.own() + at;
}

std::byte* FakeProcess::AllocateHeap(size_t bytes, size_t alignment) {
  return Take(heap_, &heap_used_, bytes, alignment);
}
std::byte* FakeProcess::AllocatePrivate(size_t bytes, size_t alignment) {
  return Take(private_, &private_used_, bytes, alignment);
}

}  // namespace axccl::exec
