#include "tests/api/every_function.h"

#include "tests/api/device_functions.h"
#include "tests/api/pipeline_calls.h"

namespace axccl::test {
namespace {

using W = World&;

constexpr size_t kCount = World::kCount;

// Of memory that comes from the heap.
constexpr size_t kLarge = 128 << 10;

// Frees it, or nothing: as malloc, these functions return null when memory runs out, and no code.
ncclResult_t Allocated(void* memory) {
  axcclFree(memory);
  return ncclSuccess;
}

ncclResult_t Resized(void* memory) {
  void* const moved = axcclRealloc(memory, 2 * kLarge);
  return Allocated(moved != nullptr ? moved : memory);
}

// call(rank) for both ranks, one after the other; waits for the work that it starts.
template <class Call>
ncclResult_t Both(W w, const Call& call) {
  for (int r = 0; r < World::kRanks; ++r) {
    if (const ncclResult_t result = call(r); result != ncclSuccess) return result;
  }
  return w.Wait();
}

// The same in a group, which is closed even if a call in it fails: with ncclGroupSimulateEnd, nothing is launched.
template <class Call>
ncclResult_t Together(W w, const Call& call, bool simulate = false) {
  ncclResult_t first = ncclGroupStart();
  if (first != ncclSuccess) return first;
  for (int r = 0; r < World::kRanks && first == ncclSuccess; ++r) first = call(r);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  const ncclResult_t end = simulate ? ncclGroupSimulateEnd(&info) : ncclGroupEnd();
  if (first == ncclSuccess) first = end;
  return first != ncclSuccess || simulate ? first : w.Wait();
}

ncclResult_t Exchange(W w, bool simulate) {
  const auto exchange = [&](int r) {
    const ncclResult_t sent = ncclSend(w.In(r), kCount, ncclInt32, 1 - r, w.comms[r], w.Stream(r));
    return sent != ncclSuccess ? sent : ncclRecv(w.Out(r), kCount, ncclInt32, 1 - r, w.comms[r], w.Stream(r));
  };
  return Together(w, exchange, simulate);
}

ncclResult_t ExchangeViews(W w) {
  const auto exchange = [&](int r) {
    const axcclView_t in = w.InView(r, 1), out = w.OutView(r, 1);
    const ncclResult_t sent = axcclSend(1, &in, 1 - r, w.channels[r], nullptr, w.Stream(r));
    return sent != ncclSuccess ? sent : axcclRecv(1, &out, 1 - r, w.channels[r], nullptr, w.Stream(r));
  };
  return Together(w, exchange);
}

ncclResult_t Split(W w) {
  ncclComm_t* const out[] = {&w.made.comm, &w.also_made};
  return Together(w, [&](int r) { return ncclCommSplit(w.comms[r], 0, r, out[r], nullptr); });
}

// Grows the spare communicator by a rank.
ncclResult_t Grow(W w) {
  return Together(w, [&](int r) {
    return r == 0 ? ncclCommGrow(w.spare.comm, 2, &w.id, -1, &w.made.comm, nullptr)
                  : ncclCommGrow(nullptr, 2, &w.id, 1, &w.also_made, nullptr);
  });
}

ncclResult_t Shrink(W w) {
  int excluded = 1;
  return ncclCommShrink(w.comms[0], &excluded, 1, &w.made.comm, nullptr, NCCL_SHRINK_DEFAULT);
}

ncclResult_t InitAll(W w) {
  ncclComm_t comms[2] = {};
  const ncclResult_t result = ncclCommInitAll(comms, 2, nullptr);
  w.made.comm = comms[0];
  w.also_made = comms[1];
  return result;
}

ncclResult_t MakeMeshGroups(W w) {
  constexpr axcclMeshAxis_t kAxis = {"x", 2};
  constexpr axcclAxisRef_t kWhole = {"x", 1, 0};
  axcclMesh_t mesh = AXCCL_MESH_INITIALIZER;
  mesh.axes = &kAxis;
  mesh.num_axes = 1;
  return axcclGroupsCreateFromMesh(&w.made.groups, &mesh, &kWhole, 1);
}

// Clears the object if it has been destroyed.
template <class T>
ncclResult_t Destroyed(ncclResult_t result, T* object, T none = T{}) {
  if (result == ncclSuccess) *object = none;
  return result;
}

ncclResult_t Worn(W w, ncclResult_t result) {
  w.worn = true;
  return result;
}

// get(object, &answer); the answer is ignored.
template <class Object, class T>
ncclResult_t Ask(ncclResult_t (*get)(Object, T*), Object object, T answer = T{}) {
  return get(object, &answer);
}

template <class Info>
Info Sized() {
  Info info{};
  info.size = sizeof(info);
  return info;
}

template <class T>
ncclResult_t GetParameter(ncclResult_t (*get)(ncclParamHandle_t, T*)) {
  ncclParamHandle_t handle = nullptr;
  const ncclResult_t bound = ncclParamBind(&handle, "NCCL_MAX_CTAS");
  return bound != ncclSuccess ? bound : Ask(get, handle);
}

ncclResult_t GetRawParameter(W) {
  return GetParameter<int64_t>([](ncclParamHandle_t handle, int64_t* value) {
    int length = 0;
    return ncclParamGet(handle, value, sizeof(*value), &length);
  });
}

// The result for a function that returns none: success if it returned the right value.
ncclResult_t Returned(bool right) { return right ? ncclSuccess : ncclInternalError; }

const ncclCollConfig_t* Settings() {
  static constexpr ncclCollConfig_t kSettings = NCCL_COLLCONFIG_INITIALIZER;
  return &kSettings;
}

// Arrays that are read when a call starts.
constexpr int64_t kExtents[] = {1, 3}, kOnes[] = {1, 1}, kOffsets[] = {0, 1}, kTargets[] = {0, 0};
constexpr int64_t kPairs[] = {0, 1, 1, 0};
constexpr int32_t kRoots[] = {0};

// Two blocks that follow each other, the first at `first`.
struct Halves {
  explicit Halves(const axcclView_t& first) : views{first, first} {
    views[1].data = static_cast<int*>(first.data) + kCount;
  }
  axcclView_t views[World::kRanks];
};

// A collective and its twin with settings, with these arguments of rank r before the communicator.
#define COLLECTIVE(name, ...)                                                                                      \
  {"nccl" #name,                                                                                                   \
   [](W w) { return Both(w, [&](int r) { return nccl##name(__VA_ARGS__, w.comms[r], w.Stream(r)); }); }},          \
  {                                                                                                                \
    "nccl" #name "Config", [](W w) {                                                                               \
      return Both(w, [&](int r) { return nccl##name##Config(__VA_ARGS__, w.comms[r], w.Stream(r), Settings()); }); \
    }                                                                                                              \
  }
// A collective on views with these numbers of blocks, with these arguments of rank r between the views and the channel.
#define ON_VIEWS(name, in_blocks, out_blocks, ...)                                          \
  {                                                                                         \
    "axccl" #name, [](W w) {                                                                \
      return Both(w, [&](int r) {                                                           \
        const axcclView_t in = w.InView(r, in_blocks), out = w.OutView(r, out_blocks);      \
        return axccl##name(1, &in, &out, __VA_ARGS__, w.channels[r], nullptr, w.Stream(r)); \
      });                                                                                   \
    }                                                                                       \
  }
// A collective with a view for every rank, with these arguments before the channel.
#define WITH_LISTS(name, ...)                                                                                    \
  {                                                                                                              \
    "axccl" #name, [](W w) {                                                                                     \
      return Both(w, [&](int r) {                                                                                \
        const Halves in(w.InView(r, 1)), out(w.OutView(r, 1));                                                   \
        return axccl##name(in.views, out.views __VA_OPT__(, ) __VA_ARGS__, w.channels[r], nullptr, w.Stream(r)); \
      });                                                                                                        \
    }                                                                                                            \
  }
#define UNSUPPORTED(name, ...)                                                  \
  {                                                                             \
    "nccl" #name, [](W w) { return nccl##name(__VA_ARGS__); }, ncclInvalidUsage \
  }

// For structs of the device API.
constexpr char kZeros[256] = {};
constexpr ncclTeam kPair{2, 0, 1};
alignas(8) char out[256], handle[8];

// On the host there is none.
#define NO_GPU_WINDOW(name, ...)          \
  {                                       \
    "nccl" #name,                         \
        [](W w) {                         \
          void* unused = nullptr;         \
          return nccl##name(__VA_ARGS__); \
        },                                \
        ncclInvalidArgument               \
  }

constexpr ExportedFunction kFunctions[] = {
    // ---- collectives and messages ----
    COLLECTIVE(AllGather, w.In(r), w.Out(r), kCount, ncclInt32),
    COLLECTIVE(AllReduce, w.In(r), w.Out(r), kCount, ncclInt32, ncclSum),
    COLLECTIVE(AlltoAll, w.In(r), w.Out(r), kCount, ncclInt32),
    COLLECTIVE(Broadcast, w.In(r), w.Out(r), kCount, ncclInt32, 0),
    COLLECTIVE(Gather, w.In(r), w.Out(r), kCount, ncclInt32, 0),
    COLLECTIVE(Reduce, w.In(r), w.Out(r), kCount, ncclInt32, ncclSum, 0),
    COLLECTIVE(ReduceScatter, w.In(r), w.Out(r), kCount, ncclInt32, ncclSum),
    COLLECTIVE(Scatter, w.In(r), w.Out(r), kCount, ncclInt32, 0),
    {"ncclBcast",
     [](W w) {
       return Both(w, [&](int r) { return ncclBcast(w.In(r), kCount, ncclInt32, 0, w.comms[r], w.Stream(r)); });
     }},
    {"ncclSend", [](W w) { return Exchange(w, false); }},
    {"ncclRecv", [](W w) { return Exchange(w, false); }},
    {"ncclGroupStart", [](W w) { return Exchange(w, false); }},
    {"ncclGroupEnd", [](W w) { return Exchange(w, false); }},
    {"ncclGroupSimulateEnd", [](W w) { return Exchange(w, true); }},
    ON_VIEWS(AllGather, 1, 2, 0),
    ON_VIEWS(AllGatherV, 2, 2, 0, kExtents),
    ON_VIEWS(AllReduce, 1, 1, ncclSum),
    ON_VIEWS(AllToAll, 2, 2, 0, 0),
    ON_VIEWS(AllToAllV, 2, 2, 0, kOnes, kOnes),
    ON_VIEWS(Broadcast, 1, 1, 0),
    ON_VIEWS(BroadcastFrom, 1, 1, kRoots),
    ON_VIEWS(CollectivePermute, 1, 1, kPairs, 2),
    ON_VIEWS(Gather, 1, 2, 0, 0),
    ON_VIEWS(GatherV, 2, 2, 0, 0, kExtents),
    ON_VIEWS(RaggedAllToAll, 2, 2, 0, kOffsets, kOnes, r == 0 ? kTargets : kOnes, kOnes),
    ON_VIEWS(Reduce, 1, 1, ncclSum, 0),
    ON_VIEWS(ReduceScatter, 2, 1, 0, ncclSum),
    ON_VIEWS(ReduceScatterV, 2, 2, 0, ncclSum, kExtents),
    ON_VIEWS(ReduceTo, 1, 1, ncclSum, kRoots),
    ON_VIEWS(Scatter, 2, 1, 0, 0),
    ON_VIEWS(ScatterV, 2, 2, 0, 0, kExtents),
    WITH_LISTS(AllGatherList),
    WITH_LISTS(ReduceScatterList, ncclSum),
    WITH_LISTS(AllToAllList),
    WITH_LISTS(GatherList, 0),
    WITH_LISTS(ScatterList, 0),
    {"axcclSend", ExchangeViews},
    {"axcclRecv", ExchangeViews},

    // ---- communicators ----
    {"ncclGetUniqueId", [](W w) { return ncclGetUniqueId(&w.id); }},
    {"ncclCommGetUniqueId", [](W w) { return ncclCommGetUniqueId(w.comms[0], &w.id); }},
    {"ncclCommInitAll", InitAll},
    {"ncclCommInitRank", [](W w) { return ncclCommInitRank(&w.made.comm, 1, w.id, 0); }},
    {"ncclCommInitRankConfig", [](W w) { return ncclCommInitRankConfig(&w.made.comm, 1, w.id, 0, nullptr); }},
    {"ncclCommInitRankScalable",
     [](W w) { return ncclCommInitRankScalable(&w.made.comm, 1, 0, 1, &w.id, nullptr); }},
    {"ncclCommSplit", Split},
    {"ncclCommShrink", Shrink},
    {"ncclCommGrow", Grow},
    {"ncclCommRevoke", [](W w) { return Worn(w, ncclCommRevoke(w.spare.comm, NCCL_REVOKE_DEFAULT)); }},
    {"ncclCommFinalize", [](W w) { return Worn(w, ncclCommFinalize(w.spare.comm)); }},
    {"ncclCommDestroy", [](W w) { return Destroyed(ncclCommDestroy(w.spare.comm), &w.spare.comm); }},
    {"ncclCommAbort", [](W w) { return Destroyed(ncclCommAbort(w.spare.comm), &w.spare.comm); }},
    {"ncclCommGetAsyncError", [](W w) { return Ask(ncclCommGetAsyncError, w.comms[0]); }},
    {"ncclCommCount", [](W w) { return Ask(ncclCommCount, w.comms[0]); }},
    {"ncclCommCuDevice", [](W w) { return Ask(ncclCommCuDevice, w.comms[0]); }},
    {"ncclCommUserRank", [](W w) { return Ask(ncclCommUserRank, w.comms[0]); }},
    {"axcclCommSetTimeout", [](W w) { return axcclCommSetTimeout(w.comms[0], 600); }},
    {"axcclCommGetInfo", [](W w) { return Ask(axcclCommGetInfo, w.comms[0], Sized<axcclCommInfo_t>()); }},
    {"axcclCommGetOps",
     [](W w) {
       auto info = Sized<axcclOpInfo_t>();
       int count = 0;
       return axcclCommGetOps(w.comms[0], 1, &info, 1, &count);
     }},
    {"axcclCommGetLastAlgorithm", [](W w) { return Ask(axcclCommGetLastAlgorithm, w.comms[0]); }},
    {"axcclCommGetLink",
     [](W w) {
       const char* link = nullptr;
       return axcclCommGetLink(w.comms[0], 1, &link);
     }},

    // ---- groups of ranks, and channels ----
    {"axcclGroupsCreate", [](W w) { return MakeGroups(&w.made.groups); }},
    {"axcclGroupsCreateFromMesh", MakeMeshGroups},
    {"axcclGroupsDestroy", [](W w) { return Destroyed(axcclGroupsDestroy(w.spare.groups), &w.spare.groups); }},
    {"axcclGroupsGetInfo", [](W w) { return Ask(axcclGroupsGetInfo, w.spare.groups, Sized<axcclGroupsInfo_t>()); }},
    {"axcclGroupsGetPlace", [](W w) { return axcclGroupsGetPlace(w.spare.groups, 1, nullptr, nullptr, nullptr); }},
    {"axcclGroupsGetRanks", [](W w) { return axcclGroupsGetRanks(w.spare.groups, 0, nullptr, 0, nullptr); }},
    {"axcclChannelCreate",
     [](W w) { return axcclChannelCreate(&w.made.channel, w.comms[0], w.spare.groups, 3, 0); }},
    {"axcclChannelDestroy", [](W w) { return Destroyed(axcclChannelDestroy(w.spare.channel), &w.spare.channel); }},
    {"axcclChannelGetInfo", [](W w) { return Ask(axcclChannelGetInfo, w.channels[0], Sized<axcclChannelInfo_t>()); }},

    // ---- pipelines: a whole step each ----
    {"axcclPipelineCreate", [](W w) { return StepPipelines(w, Awaits::kWait, Declares::kReady); }},
    {"axcclPipelineDestroy", [](W w) { return StepPipelines(w, Awaits::kWait, Declares::kStream); }},
    {"axcclPipelineStart", [](W w) { return StepPipelines(w, Awaits::kTest, Declares::kReady); }},
    {"axcclPipelineFinish", [](W w) { return StepPipelines(w, Awaits::kStream, Declares::kStream); }},
    {"axcclPipelineWait", [](W w) { return StepPipelines(w, Awaits::kWait, Declares::kWord); }},
    {"axcclPipelineTest", [](W w) { return StepPipelines(w, Awaits::kTest, Declares::kWord); }},
    {"axcclPipelineStreamWait", [](W w) { return StepPipelines(w, Awaits::kStream, Declares::kReady); }},
    {"axcclPipelineReady", [](W w) { return StepPipelines(w, Awaits::kWait, Declares::kReady); }},
    {"axcclPipelineStreamReady", [](W w) { return StepPipelines(w, Awaits::kTest, Declares::kStream); }},
    {"axcclPipelineGetChunk", [](W w) { return StepPipelines(w, Awaits::kWait, Declares::kReady); }},
    {"axcclPipelineGetFlags", [](W w) { return StepPipelines(w, Awaits::kStream, Declares::kWord); }},
    {"axcclPipelineGetInfo", [](W w) { return StepPipelines(w, Awaits::kWait, Declares::kReady); }},

    // ---- operators ----
    {"ncclRedOpCreatePreMulSum",
     [](W w) {
       int factor = 2;
       return ncclRedOpCreatePreMulSum(&w.made.op, &factor, ncclInt32, ncclScalarHostImmediate, w.comms[0]);
     }},
    {"axcclRedOpCreateCallback",
     [](W w) { return axcclRedOpCreateCallback(&w.made.op, AddInts, nullptr, ncclInt32, w.comms[0]); }},
    {"ncclRedOpDestroy",
     [](W w) { return Destroyed(ncclRedOpDestroy(w.spare.op, w.comms[0]), &w.spare.op, ncclNumOps); }},

    // ---- memory ----
    {"ncclMemAlloc", [](W w) { return ncclMemAlloc(&w.made.memory, 4096); }},
    {"ncclMemFree", [](W w) { return Destroyed(ncclMemFree(w.spare.memory), &w.spare.memory); }},
    {"axcclMalloc", [](W) { return Allocated(axcclMalloc(kLarge)); }},
    {"axcclCalloc", [](W) { return Allocated(axcclCalloc(2, kLarge)); }},
    {"axcclRealloc", [](W) { return Resized(axcclMalloc(kLarge)); }},
    {"axcclAlignedAlloc", [](W) { return Allocated(axcclAlignedAlloc(64, kLarge)); }},
    {"axcclFree",
     [](W) {
       axcclFree(axcclMalloc(kLarge));
       return ncclSuccess;
     }},
    {"axcclMallocUsableSize",
     [](W) {
       void* const memory = axcclMalloc(kLarge);
       const bool good = memory == nullptr || axcclMallocUsableSize(memory) >= kLarge;
       axcclFree(memory);
       return good ? ncclSuccess : ncclInternalError;
     }},
    {"ncclCommRegister", [](W w) { return ncclCommRegister(w.comms[0], w.memory, 64, &w.made.registration); }},
    {"ncclCommDeregister",
     [](W w) { return Destroyed(ncclCommDeregister(w.comms[0], w.spare.registration), &w.spare.registration); }},
    {"ncclCommWindowRegister",
     [](W w) { return ncclCommWindowRegister(w.comms[0], w.memory, 64, &w.made.window, NCCL_WIN_DEFAULT); }},
    {"ncclCommWindowDeregister",
     [](W w) { return Destroyed(ncclCommWindowDeregister(w.comms[0], w.spare.window), &w.spare.window); }},
    {"ncclWinGetUserPtr",
     [](W w) {
       void* at = nullptr;
       return ncclWinGetUserPtr(w.comms[0], w.spare.window, &at);
     }},

    // ---- host devices, streams and events ----
    {"axcclHostSetDevice", [](W) { return axcclHostSetDevice(1); }},
    {"axcclHostGetDevice",
     [](W) {
       int device = 0;
       return axcclHostGetDevice(&device);
     }},
    {"axcclHostDeviceSynchronize", [](W) { return axcclHostDeviceSynchronize(); }},
    {"axcclStreamCreate", [](W w) { return axcclStreamCreate(&w.made.stream, axcclStreamDefault); }},
    {"axcclStreamDestroy", [](W w) { return Destroyed(axcclStreamDestroy(w.spare.stream), &w.spare.stream); }},
    {"axcclStreamSynchronize", [](W w) { return axcclStreamSynchronize(w.spare.stream); }},
    {"axcclStreamSynchronizeFor", [](W w) { return axcclStreamSynchronizeFor(w.spare.stream, 600); }},
    {"axcclStreamQuery", [](W w) { return axcclStreamQuery(w.spare.stream); }},
    {"axcclStreamWaitEvent", [](W w) { return axcclStreamWaitEvent(w.spare.stream, w.spare.event); }},
    {"axcclLaunchHostFunc",
     [](W w) {
       const ncclResult_t launched = axcclLaunchHostFunc(w.streams[0], [](void*) {}, nullptr);
       return launched != ncclSuccess ? launched : w.Wait();
     }},
    {"axcclMemcpyAsync",
     [](W w) {
       const ncclResult_t launched = axcclMemcpyAsync(w.Out(0), w.In(0), 64, w.streams[0]);
       return launched != ncclSuccess ? launched : w.Wait();
     }},
    {"axcclEventCreate", [](W w) { return axcclEventCreate(&w.made.event); }},
    {"axcclEventDestroy", [](W w) { return Destroyed(axcclEventDestroy(w.spare.event), &w.spare.event); }},
    {"axcclEventRecord", [](W w) { return axcclEventRecord(w.spare.event, w.spare.stream); }},
    {"axcclEventQuery", [](W w) { return axcclEventQuery(w.spare.event); }},
    {"axcclEventSynchronizeFor", [](W w) { return axcclEventSynchronizeFor(w.spare.event, 1); }},
    {"axcclEventSynchronize", [](W w) { return axcclEventSynchronize(w.spare.event); }},

    // ---- versions, errors and parameters ----
    {"ncclGetVersion",
     [](W) {
       int version = 0;
       return ncclGetVersion(&version);
     }},
    {"axcclGetVersion",
     [](W) {
       int version = 0;
       return axcclGetVersion(&version);
     }},
    {"ncclGetErrorString", [](W) { return Returned(ncclGetErrorString(ncclTimeout) != nullptr); }},
    {"ncclGetLastError", [](W w) { return Returned(ncclGetLastError(w.comms[0]) != nullptr); }},
    {"ncclResetDebugInit", [](W) { return ncclResetDebugInit(), ncclSuccess; }},
    {"ncclParamBind", [](W) { return GetParameter(ncclParamGetI64); }},
    {"ncclParamGetI8", [](W) { return GetParameter(ncclParamGetI8); }},
    {"ncclParamGetI16", [](W) { return GetParameter(ncclParamGetI16); }},
    {"ncclParamGetI32", [](W) { return GetParameter(ncclParamGetI32); }},
    {"ncclParamGetI64", [](W) { return GetParameter(ncclParamGetI64); }},
    {"ncclParamGetU8", [](W) { return GetParameter(ncclParamGetU8); }},
    {"ncclParamGetU16", [](W) { return GetParameter(ncclParamGetU16); }},
    {"ncclParamGetU32", [](W) { return GetParameter(ncclParamGetU32); }},
    {"ncclParamGetU64", [](W) { return GetParameter(ncclParamGetU64); }},
    {"ncclParamGetStr", [](W) { return GetParameter(ncclParamGetStr); }},
    {"ncclParamGet", GetRawParameter},
    {"ncclParamGetParameter",
     [](W) {
       const char* value = nullptr;
       return ncclParamGetParameter("NCCL_ALGO", &value, nullptr);
     }},
    {"ncclParamGetAllParameterKeys",
     [](W) {
       const char** keys = nullptr;
       int count = 0;
       return ncclParamGetAllParameterKeys(&keys, &count);
     }},
    {"ncclParamDumpAll", [](W) { return ncclParamDumpAll(), ncclSuccess; }},
    {"axcclParamGetByIndex",
     [](W) {
       const char *name, *value, *source, *meaning;
       return axcclParamGetByIndex(0, &name, &value, &source, &meaning);
     }},

    // ---- not served ----
    UNSUPPORTED(CommSuspend, w.comms[0], NCCL_SUSPEND_MEM),
    UNSUPPORTED(CommResume, w.comms[0]),
    UNSUPPORTED(CommMemStats, w.comms[0], ncclStatGpuMemTotal, nullptr),
    UNSUPPORTED(PutSignal, w.In(0), 0, ncclInt8, 0, w.spare.window, 0, 0, 0, 0, w.comms[0], w.Stream(0)),
    UNSUPPORTED(Signal, 0, 0, 0, 0, w.comms[0], w.Stream(0)),
    UNSUPPORTED(WaitSignal, 0, nullptr, w.comms[0], w.Stream(0)),
    UNSUPPORTED(DevCommCreate, w.comms[0], kZeros, out),
    {"ncclDevCommDestroy", [](W w) { return ncclDevCommDestroy(w.comms[0], kZeros); }, ncclInvalidArgument},
    UNSUPPORTED(CommQueryProperties, w.comms[0], out),
    NO_GPU_WINDOW(GetLsaDevicePointer, w.spare.window, 0, 0, &unused),
    NO_GPU_WINDOW(GetLsaMultimemDevicePointer, w.spare.window, 0, &unused),
    NO_GPU_WINDOW(GetMultimemDevicePointer, w.spare.window, 0, &w, &unused),
    NO_GPU_WINDOW(GetPeerDevicePointer, w.spare.window, 0, 0, &unused),
    {"ncclLsaBarrierCreateRequirement", [](W) { return ncclLsaBarrierCreateRequirement(kPair, 1, handle, out); }},
    UNSUPPORTED(GinBarrierCreateRequirement, w.comms[0], ncclTeam{}, 1, nullptr, nullptr),
    {"ncclLLA2ACreateRequirement", [](W) { return ncclLLA2ACreateRequirement(1, 1, handle, out); }},
    UNSUPPORTED(GinOutboxCreateRequirement, 1, 7, nullptr, nullptr),
    UNSUPPORTED(GinInboxA2ACreateRequirement, ncclTeam{}, 1, 7, nullptr, nullptr),
    {"ncclTeamWorld", [](W w) { return Returned(ncclTeamWorld(w.comms[0]).ranks == 0); }},
    {"ncclTeamLsa", [](W w) { return Returned(ncclTeamLsa(w.comms[0]).ranks == 0); }},
    {"ncclTeamRail", [](W w) { return Returned(ncclTeamRail(w.comms[0]).ranks == 0); }},
    {"ncclTeamRankToWorld", [](W w) { return Returned(ncclTeamRankToWorld(w.comms[0], ncclTeam{}, 0) == -1); }},
    {"ncclTeamRankToLsa", [](W w) { return Returned(ncclTeamRankToLsa(w.comms[0], ncclTeam{}, 0) == -1); }},
    {"ncclLLA2ACalcSlots", [](W) { return Returned(ncclLLA2ACalcSlots(4, 4) == 4); }},
};

}  // namespace

std::span<const ExportedFunction> EveryFunction() { return kFunctions; }

}  // namespace axccl::test
