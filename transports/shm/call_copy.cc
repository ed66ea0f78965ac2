#include <errno.h>
#include <sys/uio.h>

#include <cstddef>

#include "transports/shm/attach.h"

namespace axccl::shm {

bool CanCallCopy(uint32_t pid, uint64_t remote_probe, uint64_t expected) {
  uint64_t value = ~expected;
  return CallRead(pid, &value, remote_probe, sizeof value).ok() && value == expected;
}

Status CallRead(uint32_t pid, void* local, uint64_t remote, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const iovec here{static_cast<std::byte*>(local) + done, bytes - done};
    const iovec there{reinterpret_cast<void*>(remote + done), bytes - done};
    const ssize_t n = process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    if (n > 0) {
      done += static_cast<size_t>(n);
      continue;
    }
    const int error = n == 0 ? EIO : errno;
    if (error == EINTR) continue;
    if (error == ESRCH) return MakeStatus(Code::kRemoteError, "process_vm_readv: process %u is gone", pid);
    // That the process could be read was found out when the communicator was made.
    const char* const remedy = error == EPERM ? "has it changed its user or become undumpable? Do that before it makes "
                                                "communicators, or set AXCCL_CMA=0"
                                              : "is the buffer still allocated there? Memory that other processes may "
                                                "not read, as that of memfd_secret, needs AXCCL_CMA=0";
    return SystemError(error, "process_vm_readv: %zu bytes at 0x%llx of process %u, %zu done (%s)", bytes,
                       static_cast<unsigned long long>(remote), pid, done, remedy);
  }
  return Status();
}

}  // namespace axccl::shm
