// Memory, registrations and windows.
#include "nccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/base/param.h"
#include "src/comm/create.h"
#include "src/exec/platform/rank_device.h"

namespace axccl::api {
namespace {

// Allocates where ranks of this process live, so that peers can access it.
Result<void*> Allocate(size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(const exec::Platform* const platform, comm::CurrentPlatform());
  return platform->Allocate(bytes);
}

// Checks that `buff` may be a window: memory that peers can map. A kernel that uses a window of NCCL takes the handle
// for an address of the device, and ours is none.
Status CheckWindow(const comm::CommHandle& comm, const void* buff, size_t bytes, const char* call) {
  const comm::Phase phase = comm.phase();
  if (phase == comm::Phase::kInitialising || phase == comm::Phase::kFailed) return comm.Ready(call).status();
  const exec::RankDevice& device = comm.core()->device();
  AXCCL_RETURN_IF_ERROR(Prefixed(call, device.CheckMemory(buff, bytes, "argument buff")));
  if (&device.platform() != &exec::Platform::Cuda() || param::GetInt("AXCCL_GPU_WINDOWS") != 0) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "%s: argument comm is of a rank on a GPU, and kernels cannot use the windows of such ranks; use "
                    "ncclCommRegister, or set AXCCL_GPU_WINDOWS=1 if no kernel of the program uses a window's handle",
                    call);
}

Status Free(const char* call, void* memory) {
  AXCCL_RETURN_IF_ERROR(CheckProcess(call));
  if (memory == nullptr) return Status();
  AXCCL_ASSIGN_OR_RETURN(const bool was_cuda, Prefixed(call, exec::Platform::Cuda().Free(memory)));
  // For other memory, the host's Free returns an error that says what is wrong with it.
  return was_cuda ? Status() : Prefixed(call, exec::Platform::Host().Free(memory).status());
}

Status CheckBuffer(const char* call, const void* buff, size_t size) {
  if (buff != nullptr && size != 0) return Status();
  return InvalidArgument("%s: argument %s; pass a buffer of at least one byte", call,
                         buff == nullptr ? "buff is NULL" : "size is 0");
}

}  // namespace
}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  return Entry("ncclMemAlloc", [&](const char* call) -> Status {
    AXCCL_RETURN_IF_ERROR(CheckProcess(call));
    if (ptr == nullptr) return InvalidArgument("%s: argument ptr is NULL; pass where to put the address", call);
    *ptr = nullptr;
    if (size == 0) return InvalidArgument("%s: argument size is 0; pass the bytes needed", call);
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
    *out = comm->AddRegion(buff, size, false);
    return Status();
  });
}
AXCCL_TWIN(CommRegister)

AXCCL_API ncclResult_t pncclCommDeregister(const ncclComm_t handle, void* registration) {
  return Entry("ncclCommDeregister", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    return Prefixed(call, comm->RemoveRegion(registration, false));
  });
}
AXCCL_TWIN(CommDeregister)

AXCCL_API ncclResult_t pncclCommWindowRegister(ncclComm_t handle, void* buff, size_t size, ncclWindow_t* win,
                                               int winFlags) {
  return Entry("ncclCommWindowRegister", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (win == nullptr) return InvalidArgument("%s: argument win is NULL; pass where to put the window", call);
    *win = nullptr;
    AXCCL_RETURN_IF_ERROR(CheckBuffer(call, buff, size));
    if ((winFlags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING)) != 0)
      return InvalidArgument("%s: argument winFlags is 0x%x; pass a combination of NCCL_WIN_*", call, winFlags);
    AXCCL_RETURN_IF_ERROR(CheckWindow(*comm, buff, size, call));
    *win = static_cast<ncclWindow_t>(comm->AddRegion(buff, size, true));
    return Status();
  });
}
AXCCL_TWIN(CommWindowRegister)

AXCCL_API ncclResult_t pncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t win) {
  return Entry("ncclCommWindowDeregister", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    return Prefixed(call, comm->RemoveRegion(win, true));
  });
}
AXCCL_TWIN(CommWindowDeregister)

AXCCL_API ncclResult_t pncclWinGetUserPtr(ncclComm_t handle, ncclWindow_t win, void** outUserPtr) {
  return Entry("ncclWinGetUserPtr", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (outUserPtr == nullptr) return InvalidArgument("%s: argument outUserPtr is NULL", call);
    if (comm->FindWindow(win, outUserPtr)) return Status();
    return InvalidArgument("%s: argument win is not a live window of this communicator", call);
  });
}
AXCCL_TWIN(WinGetUserPtr)
