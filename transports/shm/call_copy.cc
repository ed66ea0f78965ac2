#include <errno.h>
#include <sys/uio.h>

#include <cstddef>

#include "transports/shm/attach.h"

namespace axccl::shm {
namespace {

using CopyCall = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

Status CopyAll(CopyCall call, const char* name, uint32_t pid, std::byte* local, uint64_t remote, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const iovec here{local + done, bytes - done};
    const iovec there{reinterpret_cast<void*>(remote + done), bytes - done};
    const ssize_t n = call(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    if (n > 0) {
      done += static_cast<size_t>(n);
      continue;
    }
    const int error = n == 0 ? EIO : errno;
    if (error == EINTR) continue;
    if (error == ESRCH) return MakeStatus(Code::kRemoteError, "%s: process %u is gone", name, pid);
    return SystemError(error, "%s: %zu bytes at 0x%llx of process %u, %zu done (is the buffer still allocated there?)",
                       name, bytes, static_cast<unsigned long long>(remote), pid, done);
  }
  return Status();
}

}  // namespace

bool CanCallCopy(uint32_t pid, uint64_t remote_probe, uint64_t expected) {
  uint64_t value = ~expected;
  if (!CallRead(pid, &value, remote_probe, sizeof value).ok() || value != expected) return false;
  return CallWrite(pid, &expected, remote_probe, sizeof expected).ok();
}

Status CallRead(uint32_t pid, void* local, uint64_t remote, size_t bytes) {
  return CopyAll(process_vm_readv, "process_vm_readv", pid, static_cast<std::byte*>(local), remote, bytes);
}

Status CallWrite(uint32_t pid, const void* local, uint64_t remote, size_t bytes) {
  auto* const from = static_cast<std::byte*>(const_cast<void*>(local));  // iovec has no const form
  return CopyAll(process_vm_writev, "process_vm_writev", pid, from, remote, bytes);
}

}  // namespace axccl::shm
