// Every function of the NCCL API that the library exports, without the prefix: all host functions up to NCCL 2.31, and
// the host side of the device API. Kept by hand on purpose: a function lost from the header and the library alike would
// otherwise go unnoticed.
#pragma once

namespace axccl::test {

inline constexpr const char* kNcclFunctions[] = {
    // up to 2.28.9, its 52 functions
    "AllGather", "AllReduce", "AlltoAll", "Bcast", "Broadcast", "CommAbort", "CommCount", "CommCuDevice",
    "CommDeregister", "CommDestroy", "CommFinalize", "CommGetAsyncError", "CommInitAll", "CommInitRank",
    "CommInitRankConfig", "CommInitRankScalable", "CommRegister", "CommRevoke", "CommShrink", "CommSplit",
    "CommUserRank", "CommWindowDeregister", "CommWindowRegister", "DevCommCreate", "DevCommDestroy", "Gather",
    "GetErrorString", "GetLastError", "GetUniqueId", "GetVersion", "GinBarrierCreateRequirement", "GroupEnd",
    "GroupSimulateEnd", "GroupStart", "LLA2ACalcSlots", "LLA2ACreateRequirement", "LsaBarrierCreateRequirement",
    "MemAlloc", "MemFree", "Recv", "RedOpCreatePreMulSum", "RedOpDestroy", "Reduce", "ReduceScatter",
    "ResetDebugInit", "Scatter", "Send", "TeamLsa", "TeamRail", "TeamRankToLsa", "TeamRankToWorld", "TeamWorld",
    // 2.29
    "CommGetUniqueId", "CommGrow", "CommMemStats", "CommQueryProperties", "CommResume", "CommSuspend",
    "GetLsaDevicePointer", "GetLsaMultimemDevicePointer", "GetMultimemDevicePointer", "GetPeerDevicePointer",
    "GinInboxA2ACreateRequirement", "GinOutboxCreateRequirement", "PutSignal", "Signal", "WaitSignal",
    "WinGetUserPtr",
    // 2.30
    "ParamBind", "ParamDumpAll", "ParamGet", "ParamGetAllParameterKeys", "ParamGetI16", "ParamGetI32",
    "ParamGetI64", "ParamGetI8", "ParamGetParameter", "ParamGetStr", "ParamGetU16", "ParamGetU32",
    "ParamGetU64", "ParamGetU8",
    // 2.31
    "AllGatherConfig", "AllReduceConfig", "AlltoAllConfig", "BroadcastConfig", "GatherConfig", "ReduceConfig",
    "ReduceScatterConfig", "ScatterConfig",
};

}  // namespace axccl::test
