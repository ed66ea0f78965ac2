#include "transports/shm/mapping.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace axccl::shm {
namespace {

std::string LimitText(decltype(RLIMIT_AS) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "not limited";
  return std::to_string(limit.rlim_cur >> 20) + " MiB";
}

// The error for a mapping of `bytes`.
Status Refused(int error, size_t bytes) {
  // The kernel returns EAGAIN only when memory that must be locked is refused.
  if (error == EAGAIN)
    return SystemError(
        error,
        "mapping a shared heap: %zu MiB may not be locked, limit (ulimit -l) %s, and this process has called "
        "mlockall(MCL_FUTURE); raise the limit, or lower AXCCL_HEAP_BYTES",
        bytes >> 20, LimitText(RLIMIT_MEMLOCK).c_str());
  return SystemError(error,
                     "mapping a shared heap: %zu MiB of address space needed, limit (ulimit -v) %s; raise it, or lower "
                     "AXCCL_HEAP_BYTES",
                     bytes >> 20, LimitText(RLIMIT_AS).c_str());
}

// Reserves address space at a boundary of 2 MiB.
Result<std::byte*> Reserve(size_t bytes) {
  const size_t reserve = bytes + kHugeBytes;
  void* const raw = mmap(nullptr, reserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return Refused(errno, bytes);
  std::byte* const start = static_cast<std::byte*>(raw);
  const uintptr_t address = reinterpret_cast<uintptr_t>(raw);
  std::byte* const base = start + ((address + kHugeBytes - 1) / kHugeBytes * kHugeBytes - address);
  if (base != start) munmap(start, static_cast<size_t>(base - start));
  const size_t tail = reserve - static_cast<size_t>(base - start) - bytes;
  if (tail != 0) munmap(base + bytes, tail);
  return base;
}

// Gives access to what was mapped without it. The first `read_only` bytes must not be written.
Result<std::byte*> GiveAccess(std::byte* base, size_t bytes, size_t read_only) {
  (void)madvise(base, bytes, MADV_DONTDUMP);
  const bool given = (read_only == 0 || mprotect(base, read_only, PROT_READ) == 0) &&
                     mprotect(base + read_only, bytes - read_only, PROT_READ | PROT_WRITE) == 0;
  if (given) return base;
  const Status status = Refused(errno, bytes);
  munmap(base, bytes);
  return status;
}

}  // namespace

Result<std::byte*> MapHeap(int fd, size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(std::byte* const base, Reserve(bytes));
  const int flags = MAP_SHARED | MAP_NORESERVE | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0);
  if (mmap(base, bytes, PROT_NONE, flags, fd, 0) == MAP_FAILED) {
    const int error = errno;
    munmap(base, bytes);
    return Refused(error, bytes);
  }
  return GiveAccess(base, bytes, 0);
}

void UnmapHeap(std::byte* base, size_t bytes) { munmap(base, bytes); }

// With an old size of 0, mremap makes another mapping of the same file, of the requested length: see mremap(2). Uses
// the system call, because UCX (1.13) replaces the C library's function with one that ignores the fifth argument.
void* MapAgain(std::byte* start, size_t bytes, std::byte* at) {
  const int flags = at == nullptr ? MREMAP_MAYMOVE : MREMAP_MAYMOVE | MREMAP_FIXED;
  return reinterpret_cast<void*>(syscall(SYS_mremap, start, 0, bytes, flags, at));
}

void* MapPrivate(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Only calls that are allowed in a forked child.
void PutInPlace(std::byte* start, size_t bytes, std::byte* copy) {
  constexpr std::string_view kText =
      "axccl: a forked process has no memory for a copy of its parent's large memory, which it must not touch\n";
  // The system call, because UCX (1.13) replaces the function with one that ignores the fifth argument.
  if (copy != nullptr && syscall(SYS_mremap, copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, start) != -1) return;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  if (mprotect(start, bytes, PROT_NONE) != 0) _exit(127);
}

Status CheckPages(size_t page) {
  if (page <= kPageBytes) return Status();
  return MakeStatus(Code::kSystemError,
                    "mapping a shared heap: pages of this kernel have %zu bytes, and processes share memory in pages "
                    "of %zu; use a kernel with such pages, ranks that are threads of one process, or an NCCL_HOSTID "
                    "for each process, so that they use the network",
                    page, kPageBytes);
}

Windows::~Windows() {
  if (seed_ != nullptr) munmap(seed_, kPageBytes);
  for (int i = 0; i < count_; ++i) munmap(windows_[i].base, windows_[i].bytes);
}

Status Windows::Open(int fd) {
  AXCCL_RETURN_IF_ERROR(CheckPages(static_cast<size_t>(sysconf(_SC_PAGESIZE))));
  void* const seed = mmap(nullptr, kPageBytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (seed == MAP_FAILED) return Refused(errno, kPageBytes);
  seed_ = static_cast<std::byte*>(seed);
  return Status();
}

Result<std::byte*> Windows::Map(size_t bytes) {
  if (count_ == kMost) return MakeStatus(Code::kInternalError, "mapping a shared heap: more than %d windows", kMost);
  AXCCL_ASSIGN_OR_RETURN(std::byte * base, Reserve(bytes));
  if (MapAgain(seed_, bytes, base) == MAP_FAILED) {
    const int error = errno;
    munmap(base, bytes);
    return Refused(error, bytes);
  }
  AXCCL_ASSIGN_OR_RETURN(base, GiveAccess(base, bytes, kPageBytes));
  windows_[count_++] = {base, bytes};
  return base;
}

}  // namespace axccl::shm
