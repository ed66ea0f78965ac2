/* The NCCL API as AxCCL serves it: same names, same numbers, same layouts, so that programs written or compiled for
 * NCCL 2 run on AxCCL unchanged. C from C89 on, C++ from C++98 on. Needs no CUDA header unless nvcc compiles it. From
 * C11 and C++11 on it includes cuda_runtime.h, as NVIDIA's does, where the compiler finds it and AXCCL_NO_CUDA_HEADERS
 * is not defined. Other code that uses CUDA includes CUDA's headers before this one.
 *
 * Results. Every function returns ncclResult_t unless it says otherwise; ncclGetLastError explains to the calling
 * thread what was wrong and what to do. ncclInvalidArgument leaves the communicator usable.
 *
 * Threads. Any thread may call any function; calls on one communicator must have the same order on all ranks.
 *
 * Ranks. A communicator has ranks 0..n-1. All ranks call the same collectives in the same order with the same counts,
 * datatype, op and root. `count` is in elements of `datatype`, never in bytes. A collective of count 0 does nothing, as
 * in NCCL: it waits for no rank, has no place in the order, and not all need to call it. A message of count 0 is sent.
 *
 * Order. A rank's collectives and messages on a communicator run in the order of its calls; the calls of a group are
 * one step. A collective may wait for all ranks, a message for both of its ends. If ranks call different things, or
 * keep each other waiting by their orders (one is in ncclSend, and its peer in ncclAllReduce before the ncclRecv; or
 * each sends to the next, in a circle, and then receives), all get ncclInvalidUsage with the calls named, unless a call
 * still to come could help. AXCCL_TIMEOUT ends waits by order on GPUs, and everywhere waits for a rank that never
 * calls.
 *
 * Buffers. Input and output do not overlap, or are in place as defined below; else ncclInvalidArgument.
 *
 * Streams. Where a rank lives in host memory, `stream` is a host stream of axccl/axccl.h (axcclStreamToCuda) or NULL.
 * Collectives return once the work is enqueued; buffers belong to the operation until the stream has passed it.
 *
 * Twins. Every ncclX has a pncclX with the same arguments at the same address; ncclX is weak, so that a profiler can
 * define its own ncclX and call pncclX. Twins are declared at the end.
 *
 * "Since" names the NCCL version in which a function appeared.
 */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* GPU code written against NVIDIA's nccl.h relies on the headers that it includes. */
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#ifdef __cplusplus
#include <cuda_fp8.h>
#endif
#elif defined(__has_include) && !defined(AXCCL_NO_CUDA_HEADERS) && \
    ((defined(__cplusplus) && __cplusplus >= 201103L) || (defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L))
#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#endif
#endif

/* The version of NCCL whose behaviour this header and library (ncclGetVersion) offer. Programs enable features by it,
 * so it names the newest version whose host-side functions are all served. Functions of 2.29 to 2.31 that are declared
 * below exist as well; those that are not served return ncclInvalidUsage with a text that says so. */
#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 22809
#define NCCL_VERSION(X, Y, Z) (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))

/* The NCCL version whose struct layouts this header has. Structs carry it in their `version` field, where it means that
 * all fields up to this version are set; hence it is newer than NCCL_VERSION_CODE. */
#define NCCL_LAYOUT_VERSION_CODE 23100

/* The CUDA runtime's own type if its headers came first, else a compatible declaration. */
#ifndef __DRIVER_TYPES_H__
struct CUstream_st;
typedef struct CUstream_st* cudaStream_t;
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- handles, results, constants ---- */

/* A communicator, as one rank sees it. Never dereferenced by the caller; a stale handle is an error, not a crash. */
typedef struct ncclComm* ncclComm_t;
/* A registered memory window. */
typedef struct ncclWindow_vidmem* ncclWindow_t;
/* A parameter of the library, see ncclParamBind. Lives as long as the library. */
typedef struct ncclParamHandle* ncclParamHandle_t;

#define NCCL_COMM_NULL NULL

/* Where the ranks of a new communicator meet: 128 opaque bytes to copy between processes. Whoever has it can join. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,     /* the operating system refused something */
  ncclInternalError = 3,   /* a defect of the library */
  ncclInvalidArgument = 4, /* one argument is wrong by itself; nothing happened */
  ncclInvalidUsage = 5,    /* the call is wrong here and now, or not served */
  ncclRemoteError = 6,     /* a peer died, aborted or reported an error */
  ncclInProgress = 7,      /* not an error: ask ncclCommGetAsyncError until it changes */
  ncclTimeout = 8,         /* a deadline passed (since 2.30) */
  ncclNumResults = 9
} ncclResult_t;

/* clang-format off */
typedef enum {
  ncclInt8 = 0, ncclChar = 0, ncclUint8 = 1,
  ncclInt32 = 2, ncclInt = 2, ncclUint32 = 3,
  ncclInt64 = 4, ncclUint64 = 5,
  ncclFloat16 = 6, ncclHalf = 6, ncclBfloat16 = 9,
  ncclFloat32 = 7, ncclFloat = 7,
  ncclFloat64 = 8, ncclDouble = 8,
  ncclFloat8e4m3 = 10, /* 4 exponent bits, no infinity (OCP E4M3) */
  ncclFloat8e5m2 = 11, /* 5 exponent bits (OCP E5M2) */
  ncclNumTypes = 12,
  axcclMaxDatatype = 0x7fffffff /* not NCCL's: room for the types of axccl/types.h */
} ncclDataType_t;
/* clang-format on */

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4, /* of integers: the sum, which wraps, divided and rounded towards zero, as NCCL does: -3 over 2 is -1 */
  ncclNumOps = 5, /* this and above: made by ncclRedOpCreatePreMulSum, and those of axccl/types.h */
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

/* Where a reduction's scalar lives: it is read when the operation runs, or before the creating call returns. */
typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

/* What ncclCommMemStats reports. */
typedef enum {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

/* "Not set" in config structs. */
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f
#define NCCL_API_MAGIC 0xcafebeef

#define NCCL_SPLIT_NOCOLOR -1

#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM 0x01

typedef enum {
  ncclHostCftDefault = NCCL_CONFIG_UNDEF_INT,
  ncclHostCftEnable = 1,
  ncclHostCftDisable = 2,
  ncclHostCftFallback = 3
} ncclHostCftMode_t;

/* ---- structs: start from their initializer, then set fields ---- */

/* Settings of one communicator. The environment overrides them. Fields about hardware that the ranks do not have are
 * checked for range and have no other effect. Out of range: ncclInvalidArgument. */
typedef struct ncclConfig_v23100 {
  size_t size; /* the first three fields belong to the initializer */
  unsigned int magic;
  unsigned int version;
  int blocking;        /* 0: calls may return ncclInProgress. Default 1 */
  int cgaClusterSize;  /* 0 or more */
  int minCTAs;         /* 1..maxCTAs: blocks of a GPU that a rank's calls take if they are large. Rank 0's counts */
  int maxCTAs;         /* blocks that they take at most; above 64 counts as 64. Rank 0's counts */
  const char* netName; /* has no effect: NCCL_NET chooses the network of a process */
  int splitShare;      /* 1: children of ncclCommSplit share resources */
  int trafficClass;
  const char* commName; /* copied; appears in logs and messages */
  int collnetEnable;
  int CTAPolicy; /* NCCL_CTA_POLICY_*; ZERO: copy engines make large calls on symmetric windows, and pipelines */
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
  int graphUsageMode; /* 0 no graphs, 1 one graph, 2 mixed (since 2.29) */
  int numRmaCtx;
  int maxP2pPeers; /* since 2.30 */
  int graphStreamOrdering;
  int launchOrderImplicit; /* since 2.31 */
  int numRmaSig;
  int rmaEagerInit;
  int hostCftMode; /* ncclHostCftMode_t */
} ncclConfig_t;

/* clang-format off */
#define NCCL_CONFIG_INITIALIZER {                                                     \
    sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_LAYOUT_VERSION_CODE,                   \
    /* blocking */ NCCL_CONFIG_UNDEF_INT, /* cgaClusterSize */ NCCL_CONFIG_UNDEF_INT, \
    /* minCTAs, maxCTAs */ NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,              \
    /* netName, splitShare, trafficClass */                                           \
    NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,              \
    /* commName */ NCCL_CONFIG_UNDEF_PTR,                                             \
    /* collnetEnable, CTAPolicy */ NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,      \
    /* shrinkShare, nvlsCTAs */ NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,         \
    /* nChannelsPerNetPeer, nvlinkCentricSched, graphUsageMode, numRmaCtx */          \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
    /* maxP2pPeers, graphStreamOrdering, launchOrderImplicit, numRmaSig */            \
    NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
    /* rmaEagerInit, hostCftMode */ NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT }
/* clang-format on */

/* One option for a particular vendor's library, in a list. Unknown vendors' options are ignored. */
typedef struct ncclConfigExt {
  struct ncclConfigExt* next;
  struct {
    int vendorId; /* 1 .. 2^24 - 1 */
    int optionId;
  } key;
  union {
    int i;
    const char* s;
    void* raw;
  } val;
} ncclConfigExt_t;

/* Settings of one collective call (since 2.31). The same on every rank; read before the call returns. */
typedef struct ncclCollConfig_v23100 {
  size_t size; /* the first three fields belong to the initializer */
  unsigned int magic;
  unsigned int version;
  ncclConfigExt_t* ext;
  int minCTAs; /* has no effect, nor have maxCTAs, nvlsCTAs, cgaClusterSize and CTAPolicy */
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  /* As NCCL_ALGO; NULL or "": automatic. Not served: a name is ncclInvalidUsage if it is forced, else ignored. */
  const char* algSelection;
  int forceAlgSelection; /* 1: a selection that cannot be met is an error. 0: it is a wish */
  int CTAPolicy;
  uint64_t userProfilerTag; /* top bit clear */
} ncclCollConfig_t;

/* clang-format off */
#define NCCL_COLLCONFIG_INITIALIZER {                                             \
    sizeof(ncclCollConfig_t), NCCL_API_MAGIC, NCCL_LAYOUT_VERSION_CODE,           \
    /* ext */ NCCL_CONFIG_UNDEF_PTR,                                              \
    /* minCTAs, maxCTAs */ NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,          \
    /* nvlsCTAs, cgaClusterSize */ NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,  \
    /* algSelection */ NCCL_CONFIG_UNDEF_PTR, /* forceAlgSelection */ 1,          \
    /* CTAPolicy */ NCCL_CONFIG_UNDEF_INT, /* userProfilerTag */ 0 }
/* clang-format on */

/* What ncclGroupSimulateEnd reports. */
typedef struct ncclSimInfo_v22200 {
  size_t size; /* the first three fields belong to the initializer */
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* microseconds */
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), 0x74685283, NCCL_LAYOUT_VERSION_CODE, NCCL_UNDEF_FLOAT }

/* `opCnt` signals expected from `peer` at a signal index of a context. */
typedef struct {
  int opCnt;
  int peer;
  int sigIdx;
  int ctx;
} ncclWaitSignalDesc_t;

/* ---- version and errors: usable before any communicator exists ---- */

/* *version = NCCL_VERSION_CODE of the library. */
ncclResult_t ncclGetVersion(int* version);
/* A static text for a result; "unknown result code" for numbers that are none. */
const char* ncclGetErrorString(ncclResult_t result);
/* What broke `comm`, if it is given and broken; else why the calling thread's last failing call failed, or if it had
 * none, another thread's. Never NULL; "" if nothing failed. Valid until the thread's next such call. Since 2.13. */
const char* ncclGetLastError(ncclComm_t comm);
/* Deprecated in NCCL. Reads NCCL_DEBUG and its siblings again. Since 2.24. */
void ncclResetDebugInit(void);

/* ---- making and ending communicators ---- */

/* A new id. The calling process must live until all ranks have joined. Children that it forks may be ranks, as with
 * NCCL, as long as it has only made ids. Once it has joined, made a stream or allocated memory, later children get
 * ncclInvalidUsage from all calls but versions, texts and parameters. No other thread may be in a call at a fork. */
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);

/* Joins a communicator of `nranks` ranks as `rank`; returns when all have joined. Several calls of one thread belong
 * between ncclGroupStart and ncclGroupEnd, and *comm is valid after the latter. Ranks that disagree on nranks, or
 * claim the same rank, get ncclInvalidUsage. */
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
/* As above with settings; config NULL: defaults. Since 2.14. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config);
/* As above with nId meeting points that share the load: rank r meets at one of them. Since 2.23. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                      ncclConfig_t* config);
/* All ranks in one call and thread: comm[i] on device devlist[i], or on device i if devlist is NULL. */
ncclResult_t ncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);

/* Collective. Waits for all work of the communicator (non-blocking: starts to wait). After it, only ncclCommDestroy and
 * queries are allowed. Once only. Since 2.14. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);
/* Ends the handle when its work is done, by AXCCL_TIMEOUT at the latest; at once while it is made. NULL: no effect. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
/* Ends at once, whatever the peers do: the handle, its work, and communicators that are being made from it. Any thread
 * may call it, also while another one is blocked in an init. NULL: ncclSuccess. When it has returned, buffers of the
 * calls that it ended may be freed or reused: no rank writes into them, and no rank of this process reads them. That is
 * so for host ranks; docs/errors-and-limits.md says how. */
ncclResult_t ncclCommAbort(ncclComm_t comm);
/* Ends all work on all ranks (others get ncclRemoteError). Only split and shrink still serve. Since 2.28.7. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);

/* Collective. Ranks of one colour (>= 0) form a new communicator, ordered by (key, rank); NCCL_SPLIT_NOCOLOR:
 * *newcomm = NULL. config NULL: the parent's. Settings that a config leaves undefined: the defaults. Since 2.18.
 *
 * A split or shrink blocks if `comm` does. If not, `comm` is ncclInProgress until *newcomm is ready. If that fails, it
 * has the error, until *newcomm is destroyed or aborted, or its next split or shrink begins. A grow blocks if *newcomm
 * does, and does not change the state of `comm`.
 * Splits, shrinks and grows of one communicator may run at the same time (in a group, or non-blocking). Calls match in
 * the order in which they are made, whichever ends first: any two ranks make the calls that both take part in in the
 * same order. Each ends by AXCCL_INIT_TIMEOUT, at the abort of the communicator or of the new one, and when a rank that
 * takes part dies or fails; shrinks go on. A communicator that has failed can only be shrunk. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);
/* The ranks that stay call it: a communicator without the listed ranks (possibly none, which NCCL refuses) and without
 * any that are gone or die meanwhile. A rank that another one lists gets ncclInvalidUsage within a second. shrinkFlags:
 * NCCL_SHRINK_*. Since 2.27. For networks that break, see docs/errors-and-limits.md. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                            ncclConfig_t* config, int shrinkFlags);
/* An id by which new ranks can join an existing communicator, in one ncclCommGrow. Since 2.29. */
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);
/* A communicator of nRanks ranks: present ones (rank -1), which may all pass NULL as the id if one of them has made it,
 * and new ones (comm NULL). Since 2.29. */
ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
                          ncclConfig_t* config);

/* ---- asking and tending communicators ---- */

/* *asyncError = ncclSuccess, ncclInProgress, or what broke the communicator. Cheap.
 *
 * A peer that ends, aborts or destroys its communicator is an error (ncclRemoteError) of the operations that need it:
 * of those under way, within some 20 ms, and of the next one, at once, by its call or its stream. A communicator with
 * nothing under way stays ncclSuccess, as does one that this rank has revoked, or shrunk with NCCL_SHRINK_ABORT. An
 * operation that has waited for a peer for AXCCL_TIMEOUT (600 s; each rank's own setting counts) gets ncclTimeout. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
/* The device number the rank lives on (host devices: axccl/axccl.h). */
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);
/* In NCCL: release memory of an idle communicator, take it back, count it. Here: ncclInvalidUsage. Since 2.29.7. */
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value);

/* ---- memory ---- */

/* Memory that peers reach directly. A size of 0 gives NULL, as in NCCL. Needs no communicator. Since 2.19. */
ncclResult_t ncclMemAlloc(void** ptr, size_t size);
/* NULL: ncclSuccess. Not from ncclMemAlloc, or freed already: ncclInvalidArgument. Waits for no call that uses it. */
ncclResult_t ncclMemFree(void* ptr);
/* Announces a buffer for many calls. Local. Since 2.19. Plain memory of host ranks, of 32 KiB or more, is on pages that
   peers map until deregistered: free it later, and let no direct I/O be under way at either call (docs/malloc.md). */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);
/* Collective: makes buffers, of host ranks those of ncclMemAlloc, known to all. winFlags: NCCL_WIN_*. Since 2.27. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
/* This rank's buffer behind a window. Since 2.29. */
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr);

/* ---- operators of your own ---- */

/* Sum of inputs, each first multiplied by its rank's *scalar (of `datatype`). For `comm` and `datatype` only. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
/* Allowed as soon as the last call that was given `op` has returned. */
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* ---- collectives: n ranks, all of them call ---- */

/* recv[count] = op over all ranks of send[count]; the same bits everywhere. In place: send == recv. */
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
/* As ncclAllReduce, at `root` only; elsewhere recvbuff is ignored. */
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream);
/* recv[count] = root's send[count]; elsewhere sendbuff is ignored. In place: send == recv. */
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream);
/* Broadcast in place. */
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);
/* recv[n * sendcount] = every rank's send[sendcount], in rank order. In place: send == recv + rank * sendcount. */
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);
/* recv[recvcount] = block `rank` of the reduction of send[n * recvcount]. In place: recv == send + rank * recvcount. */
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
/* Block j of send[n * count] becomes block `rank` of rank j's recv[n * count]. Not in place: a call with send == recv
 * succeeds, because benchmarks time that, but leaves unspecified data in recv. Since 2.28. */
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream);
/* Root's recv[n * count] = every rank's send[count]. In place: send == recv + root * count. Since 2.28. */
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream);
/* recv[count] = block `rank` of root's send[n * count]. In place: recv == send + root * count. Since 2.28. */
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream);

/* The same with settings for this call; config NULL: as without. Since 2.31. */
ncclResult_t ncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                              ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t* config);
ncclResult_t ncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t* config);
ncclResult_t ncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t ncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);

/* ---- two ranks ---- */

/* The k-th send to a peer matches the peer's k-th receive from this rank. If their counts or datatypes differ, or one
 * of them is axcclSend or axcclRecv (axccl/views.h), both ranks get ncclInvalidUsage. Put sends and receives that need
 * each other into one group. */
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);

/* One-sided writes and signals into windows. Here: ncclInvalidUsage; use ncclSend and ncclRecv. Since 2.29. */
ncclResult_t ncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
                           size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream);

/* ---- groups: per thread, may be nested; only the outermost end acts ---- */

ncclResult_t ncclGroupStart(void);
/* Starts all calls since ncclGroupStart together; the first error since, of whatever call, cancels all. Calls of
 * blocking and of non-blocking communicators take a group each, but destroys any. Without a start: ncclInvalidUsage. */
ncclResult_t ncclGroupEnd(void);
/* Ends the group without running it and estimates how long it would take; an inner end estimates nothing. Since 2.22 */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

/* ---- parameters (the environment variables of the library). Since 2.30 ---- */

/* A handle for the parameter named `key`. Unknown: ncclInvalidArgument, *out unchanged. */
ncclResult_t ncclParamBind(ncclParamHandle_t* out, const char* key);
/* The value as a number. Not a number, or out of the type's range: ncclInvalidArgument, *out unchanged. */
ncclResult_t ncclParamGetI8(ncclParamHandle_t h, int8_t* out);
ncclResult_t ncclParamGetI16(ncclParamHandle_t h, int16_t* out);
ncclResult_t ncclParamGetI32(ncclParamHandle_t h, int32_t* out);
ncclResult_t ncclParamGetI64(ncclParamHandle_t h, int64_t* out);
ncclResult_t ncclParamGetU8(ncclParamHandle_t h, uint8_t* out);
ncclResult_t ncclParamGetU16(ncclParamHandle_t h, uint16_t* out);
ncclResult_t ncclParamGetU32(ncclParamHandle_t h, uint32_t* out);
ncclResult_t ncclParamGetU64(ncclParamHandle_t h, uint64_t* out);
/* The value as text. Valid until the thread's next call of this function. */
ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char** out);
/* The value as stored: 8 bytes of int64_t for numbers, 8 bytes of double for seconds, characters without a terminator
 * for text. *len = its bytes, also when maxLen is too small (ncclInvalidArgument then). */
ncclResult_t ncclParamGet(ncclParamHandle_t h, void* out, int maxLen, int* len);
/* The value as text by name. *valueLen (may be NULL): characters. Valid until the thread's next such call. */
ncclResult_t ncclParamGetParameter(const char* key, const char** value, int* valueLen);
/* All names. The table belongs to the library. */
ncclResult_t ncclParamGetAllParameterKeys(const char*** table, int* tableLen);
/* Writes name, value and source of every parameter to the log, whatever NCCL_DEBUG says. */
void ncclParamDumpAll(void);

/* ---- twins ---- */

ncclResult_t pncclGetVersion(int* version);
const char* pncclGetErrorString(ncclResult_t result);
const char* pncclGetLastError(ncclComm_t comm);
void pncclResetDebugInit(void);
ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId);
ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config);
ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                       ncclConfig_t* config);
ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist);
ncclResult_t pncclCommFinalize(ncclComm_t comm);
ncclResult_t pncclCommDestroy(ncclComm_t comm);
ncclResult_t pncclCommAbort(ncclComm_t comm);
ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags);
ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);
ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                             ncclConfig_t* config, int shrinkFlags);
ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* uniqueId);
ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
                           ncclConfig_t* config);
ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t pncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank);
ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t pncclCommResume(ncclComm_t comm);
ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value);
ncclResult_t pncclMemAlloc(void** ptr, size_t size);
ncclResult_t pncclMemFree(void* ptr);
ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle);
ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags);
ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void** outUserPtr);
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                         int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                            ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                        cudaStream_t stream);
ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                            ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                          ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t pncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t* config);
ncclResult_t pncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t pncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t pncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                      const ncclCollConfig_t* config);
ncclResult_t pncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t pncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t pncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config);
ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t pncclPutSignal(const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
                            ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags,
                            ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclGroupStart(void);
ncclResult_t pncclGroupEnd(void);
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo);
ncclResult_t pncclParamBind(ncclParamHandle_t* out, const char* key);
ncclResult_t pncclParamGetI8(ncclParamHandle_t h, int8_t* out);
ncclResult_t pncclParamGetI16(ncclParamHandle_t h, int16_t* out);
ncclResult_t pncclParamGetI32(ncclParamHandle_t h, int32_t* out);
ncclResult_t pncclParamGetI64(ncclParamHandle_t h, int64_t* out);
ncclResult_t pncclParamGetU8(ncclParamHandle_t h, uint8_t* out);
ncclResult_t pncclParamGetU16(ncclParamHandle_t h, uint16_t* out);
ncclResult_t pncclParamGetU32(ncclParamHandle_t h, uint32_t* out);
ncclResult_t pncclParamGetU64(ncclParamHandle_t h, uint64_t* out);
ncclResult_t pncclParamGetStr(ncclParamHandle_t h, const char** out);
ncclResult_t pncclParamGet(ncclParamHandle_t h, void* out, int maxLen, int* len);
ncclResult_t pncclParamGetParameter(const char* key, const char** value, int* valueLen);
ncclResult_t pncclParamGetAllParameterKeys(const char*** table, int* tableLen);
void pncclParamDumpAll(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NCCL_H_ */
