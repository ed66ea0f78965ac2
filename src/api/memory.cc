// Memory, registrations and windows.
#include "nccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/base/service_fd.h"
#include "src/comm/create.h"
#include "src/exec/gpu.h"
#include "transports/shm/heap.h"

namespace axccl::api {
namespace {

// Where ranks of this process live, so that peers reach it.
Result<void*> Allocate(size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(const bool on_gpus, comm::RanksOnGpus());
  if (on_gpus) {
    service::BindToProcess();
    return exec::AllocateOnGpu(bytes);
  }
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  return heap->Allocate(bytes, NCCL_WIN_REQUIRED_ALIGNMENT);
}

// Whether `buff` may be a window: memory that peers can map.
Status CheckWindow(const comm::Comm& comm, const void* buff, size_t bytes, const char* call) {
  const comm::Phase phase = comm.phase();
  if (phase == comm::Phase::kInitialising || phase == comm::Phase::kFailed) return comm.Ready(call).status();
  if (const exec::GpuRank* gpu = comm.core()->gpu(); gpu != nullptr)
    return Prefixed(call, gpu->CheckMemory(buff, bytes, "argument buff"));
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, Prefixed(call, shm::Heap::Get()));
  uint64_t offset = 0;
  if (heap->Contains(buff, bytes, &offset)) return Status();
  if (heap->TakenBack(buff, bytes))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: argument buff has pages that peers cannot map any more, since a call on them was given up "
                      "while a peer was in the middle of it (ncclCommAbort); free it and allocate again",
                      call);
  return MakeStatus(Code::kInvalidArgument,
                    "%s: argument buff is not memory from ncclMemAlloc; windows need memory that peers can map", call);
}

Status Free(const char* call, void* memory) {
  AXCCL_RETURN_IF_ERROR(CheckProcess(call));
  if (memory == nullptr || exec::FreeOnGpu(memory)) return Status();
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, Prefixed(call, shm::Heap::Get()));
  return Prefixed(call, heap->Free(memory));
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
