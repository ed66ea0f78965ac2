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
  if (const exec::GpuRank* gpu = comm.core()->gpu(); gpu != nullptr) {
    const Status seen = gpu->CheckMemory(buff, bytes, "argument buff");
    return seen.ok() ? seen : MakeStatus(seen.code(), "%s: %s", call, std::string(seen.message()).c_str());
  }
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  uint64_t offset = 0;
  if (heap->Contains(buff, bytes, &offset)) return Status();
  if (heap->TakenBack(buff, bytes))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: argument buff has pages that peers cannot map any more, since a call on them was given up "
                      "while a peer was "
                      "in the middle of it (ncclCommAbort); free it and allocate again",
                      call);
  return MakeStatus(Code::kInvalidArgument,
                    "%s: argument buff is not memory from ncclMemAlloc; windows need memory that peers can map", call);
}

}  // namespace
}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t pncclMemAlloc(void** ptr, size_t size) try {
  if (const Status status = CheckProcess("ncclMemAlloc"); !status.ok()) return Report(status);
  if (ptr == nullptr) return InvalidArgument("ncclMemAlloc: argument ptr is NULL; pass where to put the address");
  *ptr = nullptr;
  if (size == 0) return InvalidArgument("ncclMemAlloc: argument size is 0; pass the bytes needed");
  const auto memory = Allocate(size);
  if (!memory.ok()) return Report(memory.status());
  *ptr = memory.value();
  return ncclSuccess;
}
AXCCL_TWIN(MemAlloc)

AXCCL_API ncclResult_t pncclMemFree(void* ptr) try {
  if (const Status status = CheckProcess("ncclMemFree"); !status.ok()) return Report(status);
  if (ptr == nullptr || axccl::exec::FreeOnGpu(ptr)) return ncclSuccess;
  const auto heap = shm::Heap::Get();
  const Status freed = heap.ok() ? heap.value()->Free(ptr) : heap.status();
  if (freed.ok()) return ncclSuccess;
  return Report(
      MakeStatus(freed.code(), "ncclMemFree: %.*s", static_cast<int>(freed.message().size()), freed.message().data()));
}
AXCCL_TWIN(MemFree)

AXCCL_API ncclResult_t pncclCommRegister(const ncclComm_t handle, void* buff, size_t size, void** out) try {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, "ncclCommRegister", &result);
  if (!comm) return result;
  if (buff == nullptr || size == 0)
    return InvalidArgument("ncclCommRegister: argument %s; pass a buffer of at least one byte",
                           buff == nullptr ? "buff is NULL" : "size is 0");
  if (out == nullptr) return InvalidArgument("ncclCommRegister: argument handle is NULL; pass where to put the handle");
  *out = comm->AddRegion(buff, size, false);
  return ncclSuccess;
}
AXCCL_TWIN(CommRegister)

AXCCL_API ncclResult_t pncclCommDeregister(const ncclComm_t handle, void* registration) try {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, "ncclCommDeregister", &result);
  if (!comm) return result;
  return Report(comm->RemoveRegion(registration, false));
}
AXCCL_TWIN(CommDeregister)

AXCCL_API ncclResult_t pncclCommWindowRegister(ncclComm_t handle, void* buff, size_t size, ncclWindow_t* win,
                                               int winFlags) try {
  constexpr const char* kCall = "ncclCommWindowRegister";
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, kCall, &result);
  if (!comm) return result;
  if (win == nullptr) return InvalidArgument("%s: argument win is NULL; pass where to put the window", kCall);
  *win = nullptr;
  if (buff == nullptr || size == 0)
    return InvalidArgument("%s: argument %s; pass a buffer of at least one byte", kCall,
                           buff == nullptr ? "buff is NULL" : "size is 0");
  if ((winFlags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING)) != 0)
    return InvalidArgument("%s: argument winFlags is 0x%x; pass a combination of NCCL_WIN_*", kCall, winFlags);
  if (const Status status = CheckWindow(*comm, buff, size, kCall); !status.ok()) return Report(status);
  *win = static_cast<ncclWindow_t>(comm->AddRegion(buff, size, true));
  return ncclSuccess;
}
AXCCL_TWIN(CommWindowRegister)

AXCCL_API ncclResult_t pncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t win) try {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, "ncclCommWindowDeregister", &result);
  if (!comm) return result;
  return Report(comm->RemoveRegion(win, true));
}
AXCCL_TWIN(CommWindowDeregister)

AXCCL_API ncclResult_t pncclWinGetUserPtr(ncclComm_t handle, ncclWindow_t win, void** outUserPtr) try {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(handle, "ncclWinGetUserPtr", &result);
  if (!comm) return result;
  if (outUserPtr == nullptr) return InvalidArgument("ncclWinGetUserPtr: argument outUserPtr is NULL");
  if (!comm->FindWindow(win, outUserPtr))
    return InvalidArgument("ncclWinGetUserPtr: argument win is not a live window of this communicator");
  return ncclSuccess;
}
AXCCL_TWIN(WinGetUserPtr)
