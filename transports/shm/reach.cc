#include "transports/shm/reach.h"

#include "transports/shm/attach.h"

namespace axccl::shm {

const char* Reach::Name() const {
  if (same_process()) return "inproc";
  return calls() ? "shm+cma" : "shm";
}

bool Reach::TryCalls(uint64_t address, uint64_t expected) {
  return same_process() || CanCallCopy(pid(), address, expected);
}

// Its process may be found to be gone before its death is, and another one may have its number by now.
Status Reach::Read(void* to, uint64_t from, size_t bytes) {
  const Status status = CallRead(pid(), to, from, bytes);
  if (status.ok() && Died()) return MakeStatus(Code::kRemoteError, "process %u is gone", pid());
  return status;
}

}  // namespace axccl::shm
