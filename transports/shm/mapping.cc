#include "transports/shm/mapping.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdint>
#include <string>

namespace axccl::shm {
namespace {

std::string AddressSpaceLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "not limited";
  return std::to_string(limit.rlim_cur >> 20) + " MiB";
}

}  // namespace

Result<std::byte*> MapHeap(int fd, size_t bytes) {
  // Reserve with room to choose a boundary, then put the file over the aligned part and give the edges back.
  const size_t reserve = bytes + kHugeBytes;
  void* const raw = mmap(nullptr, reserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return SystemError(errno, "mapping a shared heap: %zu MiB of address space needed, limit (ulimit -v) %s",
                       bytes >> 20, AddressSpaceLimit().c_str());
  }
  std::byte* const start = static_cast<std::byte*>(raw);
  const uintptr_t address = reinterpret_cast<uintptr_t>(raw);
  std::byte* const base = start + ((address + kHugeBytes - 1) / kHugeBytes * kHugeBytes - address);
  if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(raw, reserve);
    return SystemError(error, "mapping a shared heap: mmap of %zu MiB, limit (ulimit -v) %s", bytes >> 20,
                       AddressSpaceLimit().c_str());
  }
  if (base != start) munmap(start, static_cast<size_t>(base - start));
  const size_t tail = reserve - static_cast<size_t>(base - start) - bytes;
  if (tail != 0) munmap(base + bytes, tail);
  return base;
}

void UnmapHeap(std::byte* base, size_t bytes) { munmap(base, bytes); }

}  // namespace axccl::shm
