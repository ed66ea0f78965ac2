// The functions of the NCCL API that the library implements, without the prefix: libnccl.so.2 forwards them.
// X(AllGather) ... Can be included from C.
#pragma once

// clang-format off
#define AXCCL_NCCL_FUNCTIONS(X) \
  X(AllGather) X(AllGatherConfig) X(AllReduce) X(AllReduceConfig) X(AlltoAll) X(AlltoAllConfig) X(Bcast)           \
  X(Broadcast) X(BroadcastConfig) X(CommAbort) X(CommCount) X(CommCuDevice) X(CommDeregister) X(CommDestroy)       \
  X(CommFinalize) X(CommGetAsyncError) X(CommGetUniqueId) X(CommGrow) X(CommInitAll) X(CommInitRank)               \
  X(CommInitRankConfig) X(CommInitRankScalable) X(CommMemStats) X(CommQueryProperties) X(CommRegister)             \
  X(CommResume) X(CommRevoke) X(CommShrink) X(CommSplit) X(CommSuspend) X(CommUserRank) X(CommWindowDeregister)    \
  X(CommWindowRegister) X(DevCommCreate) X(DevCommDestroy) X(Gather) X(GatherConfig) X(GetErrorString)             \
  X(GetLastError) X(GetLsaDevicePointer) X(GetLsaMultimemDevicePointer) X(GetMultimemDevicePointer)                \
  X(GetPeerDevicePointer) X(GetUniqueId) X(GetVersion) X(GinBarrierCreateRequirement)                              \
  X(GinInboxA2ACreateRequirement) X(GinOutboxCreateRequirement) X(GroupEnd) X(GroupSimulateEnd) X(GroupStart)      \
  X(LLA2ACalcSlots) X(LLA2ACreateRequirement) X(LsaBarrierCreateRequirement) X(MemAlloc) X(MemFree) X(ParamBind)   \
  X(ParamDumpAll) X(ParamGet) X(ParamGetAllParameterKeys) X(ParamGetI16) X(ParamGetI32) X(ParamGetI64)             \
  X(ParamGetI8) X(ParamGetParameter) X(ParamGetStr) X(ParamGetU16) X(ParamGetU32) X(ParamGetU64) X(ParamGetU8)     \
  X(PutSignal) X(Recv) X(RedOpCreatePreMulSum) X(RedOpDestroy) X(Reduce) X(ReduceConfig) X(ReduceScatter)          \
  X(ReduceScatterConfig) X(ResetDebugInit) X(Scatter) X(ScatterConfig) X(Send) X(Signal) X(TeamLsa) X(TeamRail)    \
  X(TeamRankToLsa) X(TeamRankToWorld) X(TeamWorld) X(WaitSignal) X(WinGetUserPtr)
// clang-format on
