// Memory and registrations.
#include <cstdint>

#include "nccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/comm/create.h"
#include "src/exec/platform/platform.h"

namespace axccl::api {
namespace {

// Allocates where ranks of this process live, so that peers can access it.
Result<void*> Allocate(size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(const exec::Platform* const platform, comm::CurrentPlatform());
  return platform->Allocate(bytes);
}

Status Free(const char* call, void* memory) {
  if (memory == nullptr) return Status();
  AXCCL_ASSIGN_OR_RETURN(const bool was_cuda, Prefixed(call, exec::Platform::Cuda().Free(memory)));
  // For other memory, the host's Free returns an error that says what is wrong with it.
  return was_cuda ? Status() : Prefixed(call, exec::Platform::Host().Free(memory).status());
}

Status CheckBuffer(const char* call, const void* buff, size_t size) {
  constexpr uintptr_t kNullPage = 4096;  // holds no memory of a program
  const auto address = reinterpret_cast<uintptr_t>(buff);
  if (buff == nullptr || size == 0)
    return InvalidArgument("%s: argument %s; pass a buffer of at least one byte", call,
                           buff == nullptr ? "buff is NULL" : "size is 0");
  if (address < kNullPage || size > UINTPTR_MAX - address)
    return InvalidArgument("%s: arguments buff %p and size %zu are no memory; pass the start and the bytes of a buffer",
                           call, buff, size);
  return Status();
}

}  // namespace
}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  return Entry("ncclMemAlloc", [&](const char* call) -> Status {
    if (ptr == nullptr) return InvalidArgument("%s: argument ptr is NULL; pass where to put the address", call);
    *ptr = nullptr;
    if (size == 0) return Status();  // as cudaMalloc, and so NCCL
    AXCCL_ASSIGN_OR_RETURN(*ptr, Prefixed(call, Allocate(size)));
    return Status();
  });
}
AXCCL_TWIN(MemAlloc)

AXCCL_API ncclResult_t pncclMemFree(void* ptr) {
  return Entry("ncclMemFree", [&](const char* call) { return Free(call, ptr); });
}
AXCCL_TWIN(MemFree)

AXCCL_API ncclResult_t pncclCommRegister(const ncclComm_t handle, void* buff, size_t size, void** out) {
  return Entry("ncclCommRegister", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    AXCCL_RETURN_IF_ERROR(CheckBuffer(call, buff, size));
    if (out == nullptr) return InvalidArgument("%s: argument handle is NULL; pass where to put the handle", call);
    AXCCL_ASSIGN_OR_RETURN(*out, Prefixed(call, comm->AddRegion(buff, size, false)));
    return Status();
  });
}
AXCCL_TWIN(CommRegister)

AXCCL_API ncclResult_t pncclCommDeregister(const ncclComm_t handle, void* registration) {
  return Entry("ncclCommDeregister", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    return registration == nullptr ? Status() : Prefixed(call, comm->RemoveRegion(registration, false));
  });
}
AXCCL_TWIN(CommDeregister)
