// Functions that exist so that programs load, and say what is missing when they are called. They look at none of their
// arguments. Types of the device API appear here only as far as the calling convention needs them.
#include "src/api/unsupported.h"

#include "src/api/export.h"

using axccl::api::Unsupported;

namespace {

constexpr char kSuspend[] =
    "memory of a communicator cannot be released while it lives; destroy it and create it again";
constexpr char kMemStats[] = "it reports memory on a GPU, and ranks live in host memory; see axcclCommGetInfo";
constexpr char kOneSided[] = "one-sided writes and signals; use ncclSend and ncclRecv";
constexpr char kDevice[] =
    "the device API runs inside CUDA kernels, and ranks live in host memory; use the host functions";

}  // namespace

// ---- memory of a communicator ----

AXCCL_API ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags) try {
  return Unsupported("ncclCommSuspend", kSuspend);
}
AXCCL_TWIN(CommSuspend)

AXCCL_API ncclResult_t pncclCommResume(ncclComm_t comm) try { return Unsupported("ncclCommResume", kSuspend); }
AXCCL_TWIN(CommResume)

AXCCL_API ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) try {
  return Unsupported("ncclCommMemStats", kMemStats);
}
AXCCL_TWIN(CommMemStats)

// ---- one-sided communication ----

AXCCL_API ncclResult_t pncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
                                      ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                                      unsigned int flags, ncclComm_t comm, cudaStream_t stream) try {
  return Unsupported("ncclPutSignal", kOneSided);
}
AXCCL_TWIN(PutSignal)

AXCCL_API ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                                   cudaStream_t stream) try {
  return Unsupported("ncclSignal", kOneSided);
}
AXCCL_TWIN(Signal)

AXCCL_API ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm,
                                       cudaStream_t stream) try {
  return Unsupported("ncclWaitSignal", kOneSided);
}
AXCCL_TWIN(WaitSignal)

// ---- the host side of the device API (declared in NVIDIA's nccl_device.h) ----

extern "C" {
struct ncclTeam {
  int ranks, rank, stride;
};
struct ncclMultimemHandle {
  void* base;
};
struct ncclDevComm;
struct ncclDevCommRequirements;
struct ncclDevResourceRequirements;
struct ncclCommProperties;
struct ncclLsaBarrierHandle;
struct ncclGinBarrierHandle;
struct ncclLLA2AHandle;
struct ncclGinOutboxHandle;
struct ncclGinInboxA2AHandle;
}

namespace {

// A team nobody is in: what functions that return a team can say instead of an error.
ncclTeam NoTeam(const char* function) {
  (void)Unsupported(function, kDevice);
  return {0, 0, 0};
}

int NoRank(const char* function) {
  (void)Unsupported(function, kDevice);
  return -1;
}

}  // namespace

AXCCL_API ncclResult_t pncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements* requirements,
                                          ncclDevComm* devComm) try {
  return Unsupported("ncclDevCommCreate", kDevice);
}
AXCCL_TWIN(DevCommCreate)

AXCCL_API ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const ncclDevComm* devComm) try {
  return Unsupported("ncclDevCommDestroy", kDevice);
}
AXCCL_TWIN(DevCommDestroy)

AXCCL_API ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties* properties) try {
  return Unsupported("ncclCommQueryProperties", kDevice);
}
AXCCL_TWIN(CommQueryProperties)

AXCCL_API ncclResult_t pncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank, void** pointer) try {
  return Unsupported("ncclGetLsaDevicePointer", kDevice);
}
AXCCL_TWIN(GetLsaDevicePointer)

AXCCL_API ncclResult_t pncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void** pointer) try {
  return Unsupported("ncclGetLsaMultimemDevicePointer", kDevice);
}
AXCCL_TWIN(GetLsaMultimemDevicePointer)

AXCCL_API ncclResult_t pncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset, ncclMultimemHandle handle,
                                                     void** pointer) try {
  return Unsupported("ncclGetMultimemDevicePointer", kDevice);
}
AXCCL_TWIN(GetMultimemDevicePointer)

AXCCL_API ncclResult_t pncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void** pointer) try {
  return Unsupported("ncclGetPeerDevicePointer", kDevice);
}
AXCCL_TWIN(GetPeerDevicePointer)

AXCCL_API ncclTeam pncclTeamWorld(ncclComm_t comm) try { return NoTeam("ncclTeamWorld"); }
AXCCL_TWIN_ELSE(TeamWorld, ncclTeam{})

AXCCL_API ncclTeam pncclTeamLsa(ncclComm_t comm) try { return NoTeam("ncclTeamLsa"); }
AXCCL_TWIN_ELSE(TeamLsa, ncclTeam{})

AXCCL_API ncclTeam pncclTeamRail(ncclComm_t comm) try { return NoTeam("ncclTeamRail"); }
AXCCL_TWIN_ELSE(TeamRail, ncclTeam{})

AXCCL_API int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam team, int rank) try {
  return NoRank("ncclTeamRankToWorld");
}
AXCCL_TWIN_ELSE(TeamRankToWorld, -1)

AXCCL_API int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam team, int rank) try { return NoRank("ncclTeamRankToLsa"); }
AXCCL_TWIN_ELSE(TeamRankToLsa, -1)

AXCCL_API ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam team, int barriers, ncclLsaBarrierHandle* handle,
                                                        ncclDevResourceRequirements* requirement) try {
  return Unsupported("ncclLsaBarrierCreateRequirement", kDevice);
}
AXCCL_TWIN(LsaBarrierCreateRequirement)

AXCCL_API ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam team, int barriers,
                                                        ncclGinBarrierHandle* handle,
                                                        ncclDevResourceRequirements* requirement) try {
  return Unsupported("ncclGinBarrierCreateRequirement", kDevice);
}
AXCCL_TWIN(GinBarrierCreateRequirement)

AXCCL_API int pncclLLA2ACalcSlots(int maxElements, int maxElementSize) try {
  (void)Unsupported("ncclLLA2ACalcSlots", kDevice);
  return 0;
}
AXCCL_TWIN_ELSE(LLA2ACalcSlots, 0)

AXCCL_API ncclResult_t pncclLLA2ACreateRequirement(int blocks, int slots, ncclLLA2AHandle* handle,
                                                   ncclDevResourceRequirements* requirement) try {
  return Unsupported("ncclLLA2ACreateRequirement", kDevice);
}
AXCCL_TWIN(LLA2ACreateRequirement)

AXCCL_API ncclResult_t pncclGinOutboxCreateRequirement(int blocks, int sizeLog2, ncclGinOutboxHandle* handle,
                                                       ncclDevResourceRequirements* requirement) try {
  return Unsupported("ncclGinOutboxCreateRequirement", kDevice);
}
AXCCL_TWIN(GinOutboxCreateRequirement)

AXCCL_API ncclResult_t pncclGinInboxA2ACreateRequirement(ncclTeam peers, int blocks, int sizeLog2,
                                                         ncclGinInboxA2AHandle* handle,
                                                         ncclDevResourceRequirements* requirement) try {
  return Unsupported("ncclGinInboxA2ACreateRequirement", kDevice);
}
AXCCL_TWIN(GinInboxA2ACreateRequirement)
