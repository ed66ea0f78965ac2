// Functions that exist because programs link or look them up, and that are not implemented yet. Each returns an error
// that says what is missing, and ignores its arguments. Types of the device API appear here only as far as the calling
// convention needs them.
#include "nccl.h"
#include "src/api/device_types.h"
#include "src/api/export.h"

namespace {

constexpr char kSuspend[] =
    "memory of a communicator cannot be released while it lives; destroy it and create it again";
constexpr char kMemStats[] = "memory statistics of a communicator; axcclCommGetInfo reports what a rank holds";
constexpr char kOneSided[] = "one-sided writes and signals; use ncclSend and ncclRecv";
constexpr char kGin[] = "what kernels send over networks (GIN); use the host functions between machines";

axccl::Status Unsupported(const char* call, const char* what_is_missing) {
  return axccl::MakeStatus(axccl::Code::kInvalidUsage, "%s: not served by this version of AxCCL: %s", call,
                           what_is_missing);
}

}  // namespace

#define AXCCL_UNSUPPORTED(name, parameters, what_is_missing)                                                     \
  AXCCL_API ncclResult_t pnccl##name parameters {                                                                \
    return axccl::api::Entry("nccl" #name, [](const char* call) { return Unsupported(call, what_is_missing); }); \
  }                                                                                                              \
  AXCCL_TWIN(name)

// ---- memory of a communicator ----

AXCCL_UNSUPPORTED(CommSuspend, (ncclComm_t comm, int flags), kSuspend)
AXCCL_UNSUPPORTED(CommResume, (ncclComm_t comm), kSuspend)
AXCCL_UNSUPPORTED(CommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value), kMemStats)

// ---- one-sided communication ----

AXCCL_UNSUPPORTED(PutSignal,
                  (const void* localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                   size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream),
                  kOneSided)
AXCCL_UNSUPPORTED(Signal, (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream),
                  kOneSided)
AXCCL_UNSUPPORTED(WaitSignal, (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream),
                  kOneSided)

// ---- the host side of the device API (declared in NVIDIA's nccl_device.h) ----

extern "C" {
struct ncclGinBarrierHandle;
struct ncclGinOutboxHandle;
struct ncclGinInboxA2AHandle;
}

AXCCL_UNSUPPORTED(GinBarrierCreateRequirement,
                  (ncclComm_t comm, ncclTeam team, int barriers, ncclGinBarrierHandle* handle,
                   ncclDevResourceRequirements* requirement),
                  kGin)
AXCCL_UNSUPPORTED(GinOutboxCreateRequirement,
                  (int blocks, int sizeLog2, ncclGinOutboxHandle* handle, ncclDevResourceRequirements* requirement),
                  kGin)
AXCCL_UNSUPPORTED(GinInboxA2ACreateRequirement,
                  (ncclTeam peers, int blocks, int sizeLog2, ncclGinInboxA2AHandle* handle,
                   ncclDevResourceRequirements* requirement),
                  kGin)
