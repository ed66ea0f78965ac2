#include "perf/common/shared_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "perf/common/fail.h"

namespace axccl::perf {

char* MapShared(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  int fd = memfd_create("axccl-perf", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    Fail(kExitFailed, "memfd of %zu bytes: %s", bytes, std::strerror(errno));
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) Fail(kExitFailed, "mmap of %zu bytes: %s", bytes, std::strerror(errno));
  close(fd);
  (void)madvise(base, bytes, MADV_HUGEPAGE);  // as ncclMemAlloc does; refused where the kernel has none
  return static_cast<char*>(base);
}

}  // namespace axccl::perf
