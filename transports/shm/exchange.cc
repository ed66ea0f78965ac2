#include "transports/shm/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "src/base/service_fd.h"
#include "transports/shm/mapping.h"

namespace axccl::shm {
namespace {

uint64_t Address(const std::byte* p) { return reinterpret_cast<uintptr_t>(p); }

Result<service::Fd> OpenUserfaultfd() {
  long fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == EPERM) fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
  if (fd < 0) return SystemError(errno, "userfaultfd");
  service::Fd opened(static_cast<int>(fd));
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
  if (ioctl(opened.get(), UFFDIO_API, &api) != 0)
    return SystemError(errno, "userfaultfd cannot protect shared memory, as Linux 5.19 and later can");
  return opened;
}

// The sanitizers must not look: other threads may be writing, up to the moment of the protection, and the pages have
// more than the buffer. They would look into functions that are called here, so these have none.
#define AXCCL_NO_SANITIZER [[gnu::no_sanitize("address"), gnu::no_sanitize("thread"), gnu::noinline]]

// Only pages that are there can be protected.
AXCCL_NO_SANITIZER void Touch(std::byte* at, size_t bytes) {
  for (size_t page = 0; page < bytes; page += kPageBytes)
    __atomic_fetch_or(reinterpret_cast<uint8_t*>(at + page), 0, __ATOMIC_RELAXED);
}

AXCCL_NO_SANITIZER void Copy(const std::byte* from, std::byte* to, size_t bytes) {
  const auto* const source = reinterpret_cast<const uint64_t*>(from);
  auto* const target = reinterpret_cast<uint64_t*>(to);
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) target[i] = __atomic_load_n(source + i, __ATOMIC_RELAXED);
}

// A thread that writes is held back, with all locks that it has. So this one takes no lock, and writes nowhere but to
// its stack and the copy, from the protection to the end of it. Returns an error number.
int ProtectAndMove(int fd, std::byte* at, size_t bytes, std::byte* replacement) {
  uffdio_writeprotect protection{};
  protection.range = {Address(at), bytes};
  protection.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  if (ioctl(fd, UFFDIO_WRITEPROTECT, &protection) != 0) return errno;
  Copy(at, replacement, bytes);
  // The system call, because UCX (1.13) replaces the function with one that ignores the fifth argument.
  return syscall(SYS_mremap, replacement, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == -1 ? errno : 0;
}

}  // namespace

Status Exchange(std::byte* at, size_t bytes, std::byte* replacement) {
  AXCCL_ASSIGN_OR_RETURN(service::Fd fd, OpenUserfaultfd());
  uffdio_register area{};
  area.range = {Address(at), bytes};
  area.mode = UFFDIO_REGISTER_MODE_WP;
  if (ioctl(fd.get(), UFFDIO_REGISTER, &area) != 0) return SystemError(errno, "userfaultfd refuses the memory");
  Touch(at, bytes);
  // A signal handler on this thread might write there, too, and would wait forever.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const int error = ProtectAndMove(fd.get(), at, bytes, replacement);
  fd.Close();  // lets waiting threads go on
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error == 0 ? Status() : SystemError(error, "exchanging pages");
}

}  // namespace axccl::shm
