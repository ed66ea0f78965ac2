/* AxCCL's extensions to the NCCL API: host devices, streams and events, collectives on tensor
 * views, version and introspection. Pure C.
 *
 * Streams. A host stream is what NCCL takes as cudaStream_t when ranks live in CPU memory: work enqueued on it runs in
 * order and asynchronously. Cast with axcclStreamToCuda (the types are distinct on purpose). The NULL stream is the
 * current host device's default stream with CUDA's legacy meaning: work on it starts after all earlier work on the device's
 * blocking streams, and later work on those starts after it. Streams made with axcclStreamNonBlocking take no part in that.
 *
 * Devices. Every rank on the host has a host device of its own, numbered within the process; ncclCommCuDevice tells the
 * number. ncclCommInitAll(comms, n, NULL) uses devices 0..n-1. ncclCommInitRank uses the calling thread's current device;
 * a thread that never called axcclHostSetDevice gets the next free device at its first init, which becomes its current one.
 *
 * All functions return ncclResult_t and are thread-safe; ncclGetLastError tells the reason of a failure.
 */
#ifndef AXCCL_AXCCL_H_
#define AXCCL_AXCCL_H_

#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* AxCCL's own version: major * 10000 + minor * 100 + patch. */
#define AXCCL_VERSION_CODE 100

/* In: nothing. Out: *version = AXCCL_VERSION_CODE of the library. NULL: ncclInvalidArgument. */
ncclResult_t axcclGetVersion(int* version);

/* ---- host devices ---- */

/* Makes `device` (0..1023) the calling thread's current host device. */
ncclResult_t axcclHostSetDevice(int device);
/* *device = the calling thread's current host device (0 if none was set or implied). */
ncclResult_t axcclHostGetDevice(int* device);
/* Waits until all work enqueued so far on the current device's streams is done. */
ncclResult_t axcclHostDeviceSynchronize(void);

/* ---- streams ---- */

typedef struct axcclStream* axcclStream_t;
typedef struct axcclEvent* axcclEvent_t;

/* Flags of axcclStreamCreate. */
#define axcclStreamDefault 0x0u
#define axcclStreamNonBlocking 0x1u

/* A new stream on the current host device. Unknown flags: ncclInvalidArgument. */
ncclResult_t axcclStreamCreate(axcclStream_t* stream, unsigned int flags);
/* The stream's work still completes; the handle is invalid at once. NULL: ncclInvalidArgument. */
ncclResult_t axcclStreamDestroy(axcclStream_t stream);
/* Waits for all work enqueued so far; helps to do it. Returns the first error of that work not yet reported, if any. */
ncclResult_t axcclStreamSynchronize(axcclStream_t stream);
/* ncclSuccess when all work is done, ncclInProgress otherwise, or the first unreported error. Never waits. */
ncclResult_t axcclStreamQuery(axcclStream_t stream);
/* Work enqueued on `stream` after this call starts after the event's last record. A never recorded event: no effect. */
ncclResult_t axcclStreamWaitEvent(axcclStream_t stream, axcclEvent_t event);
/* Runs fn(argument) on a thread of the library when the stream gets there; the stream waits for its return. `fn` must not
 * call functions of this library that wait. Callbacks of different streams may run at the same time. */
ncclResult_t axcclLaunchHostFunc(axcclStream_t stream, void (*fn)(void* argument), void* argument);
/* Copies `bytes` bytes when the stream gets there. The ranges must not overlap. */
ncclResult_t axcclMemcpyAsync(void* dst, const void* src, size_t bytes, axcclStream_t stream);

/* ---- events ---- */

ncclResult_t axcclEventCreate(axcclEvent_t* event);
ncclResult_t axcclEventDestroy(axcclEvent_t event);
/* The event stands for all work enqueued on `stream` so far. */
ncclResult_t axcclEventRecord(axcclEvent_t event, axcclStream_t stream);
/* ncclSuccess when that work is done (or the event was never recorded), else ncclInProgress. */
ncclResult_t axcclEventQuery(axcclEvent_t event);
ncclResult_t axcclEventSynchronize(axcclEvent_t event);

/* A host stream as NCCL's stream argument and back (no conversion takes place). */
static inline cudaStream_t axcclStreamToCuda(axcclStream_t stream) { return (cudaStream_t)(void*)stream; }
static inline axcclStream_t axcclStreamFromCuda(cudaStream_t stream) { return (axcclStream_t)(void*)stream; }

/* ---- collectives on tensor views ----
 *
 * A view is a tensor in memory: element (i0, i1, ...) is at data + (i0 * strides[0] + i1 * strides[1] + ...) elements.
 * Strides may be of any order and sign, leave gaps and, on inputs, be 0 (the same element again and again); those of
 * dimensions of size 1 mean nothing. Sizes may be 0; then data may be NULL. A view without dimensions has one element.
 *
 * Bytes go from the strided source to the strided destination; there is no transpose and no packing. Memory of
 * ncclMemAlloc, or of the same process, is reached directly; other memory of other processes by way of shared slots.
 *
 * The calls are collective and ordered like NCCL's, and mix with them: on any stream, in groups, on blocking and
 * non-blocking communicators. Structs, sizes and strides are read before a call returns; the data when the stream gets
 * there. n is the number of ranks, r a rank. Dimensions may be negative and count from the end then: -1 is the last. On
 * all ranks, datatypes, dimensions, operators, roots and sizes must be the same; strides may differ.
 *
 * In place. Input and output may have nothing in common, or be in place: all-reduce, broadcast and reduce with the same
 * address and strides; all-gather and gather with the input being this rank's part of the output, reduce-scatter and
 * scatter with the output being this rank's part of the input. All-to-all is never in place.
 *
 * Errors. ncclInvalidArgument, at once and with nothing written: a dimension out of range, a size that n does not
 * divide, shapes or datatypes that do not fit each other, an output two of whose indices reach one element, input and
 * output that overlap in another way than above, a missing operand, NULL data, more than AXCCL_MAX_DIMS dimensions,
 * more than 2^63 - 1 bytes from first to last. ncclInvalidUsage, on all ranks and naming both calls, when ranks call
 * different things. ncclGetLastError names the call, the operand, the dimension (as StableHLO does) and the values.
 */

#define AXCCL_MAX_DIMS 8

typedef struct axcclView {
  size_t size;             /* bytes of this struct: set by AXCCL_VIEW_INITIALIZER */
  void* data;              /* element (0, 0, ...); an input is only read */
  ncclDataType_t datatype;
  int num_dims;            /* 0..AXCCL_MAX_DIMS */
  const int64_t* sizes;    /* elements along each dimension; may be NULL without dimensions */
  const int64_t* strides;  /* elements from one index to the next, for each dimension; NULL: row-major without gaps */
} axcclView_t;

#define AXCCL_VIEW_INITIALIZER {sizeof(axcclView_t), NULL, ncclFloat32, 0, NULL, NULL}

/* The inputs of all ranks, concatenated along `dim` in order of ranks: sizes of `out` are those of `in`, n times along
 * dim. Source: StableHLO, all_gather. Example, n = 2, dim = 1, in [2, 2] -> out [2, 4]:
 *   rank 0 {{1, 2}, {3, 4}}, rank 1 {{5, 6}, {7, 8}} -> on both {{1, 2, 5, 6}, {3, 4, 7, 8}} */
ncclResult_t axcclAllGather(const axcclView_t* in, const axcclView_t* out, int dim, ncclComm_t comm,
                            cudaStream_t stream);

/* The inputs of all ranks are reduced with `op`, and of the result rank r gets part r of n along `dim`: sizes of `out`
 * are those of `in`, 1/n along dim. Source: StableHLO, reduce_scatter. Example, n = 2, dim = 1, ncclSum,
 * in [2, 4] -> out [2, 2]:
 *   rank 0 {{1, 2, 3, 4}, {5, 6, 7, 8}}, rank 1 {{9, 10, 11, 12}, {13, 14, 15, 16}}
 *   -> rank 0 {{10, 12}, {18, 20}}, rank 1 {{14, 16}, {22, 24}} */
ncclResult_t axcclReduceScatter(const axcclView_t* in, const axcclView_t* out, int dim, ncclRedOp_t op, ncclComm_t comm,
                                cudaStream_t stream);

/* The inputs of all ranks, reduced with `op`; sizes of `out` are those of `in`. Source: StableHLO, all_reduce. Example,
 * n = 2, ncclSum, in [2, 2] -> out [2, 2], `out` with strides {1, 2}, so that {11, 33, 22, 44} is what lies in memory:
 *   rank 0 {{1, 2}, {3, 4}}, rank 1 {{10, 20}, {30, 40}} -> on both {{11, 22}, {33, 44}} */
ncclResult_t axcclAllReduce(const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op, ncclComm_t comm,
                            cudaStream_t stream);

/* Rank r gets part r of n along `split_dim` of every input, concatenated along `concat_dim` in order of ranks: sizes of
 * `out` are those of `in`, 1/n along split_dim, then n times along concat_dim. Source: StableHLO, all_to_all. Example,
 * n = 2, split_dim = 1, concat_dim = 0, in [2, 4] -> out [4, 2]:
 *   rank 0 {{1, 2, 3, 4}, {5, 6, 7, 8}}, rank 1 {{9, 10, 11, 12}, {13, 14, 15, 16}}
 *   -> rank 0 {{1, 2}, {5, 6}, {9, 10}, {13, 14}}, rank 1 {{3, 4}, {7, 8}, {11, 12}, {15, 16}} */
ncclResult_t axcclAllToAll(const axcclView_t* in, const axcclView_t* out, int split_dim, int concat_dim,
                           ncclComm_t comm, cudaStream_t stream);

/* As axcclAllGather, on rank `root` only. Elsewhere `out` is ignored and may be NULL. Source: StableHLO, all_gather (it
 * has no gather). Example, n = 2, dim = 0, root = 1, in [1, 2] -> out [2, 2] on rank 1:
 *   rank 0 {{1, 2}}, rank 1 {{3, 4}} -> rank 1 {{1, 2}, {3, 4}} */
ncclResult_t axcclGather(const axcclView_t* in, const axcclView_t* out, int dim, int root, ncclComm_t comm,
                         cudaStream_t stream);

/* Rank r gets part r of n along `dim` of root's input: sizes of `out` are those of `in`, 1/n along dim. On other ranks
 * than `root`, `in` is ignored and may be NULL. Source: StableHLO, reduce_scatter without the reduction (it has no
 * scatter). Example, n = 2, dim = 1, root = 0, in [2, 2] on rank 0 -> out [2, 1]:
 *   rank 0 {{1, 2}, {3, 4}} -> rank 0 {{1}, {3}}, rank 1 {{2}, {4}} */
ncclResult_t axcclScatter(const axcclView_t* in, const axcclView_t* out, int dim, int root, ncclComm_t comm,
                          cudaStream_t stream);

/* Root's input, on every rank; sizes of `out` are those of `in`. On other ranks than `root`, `in` is ignored and may be
 * NULL. Source: StableHLO, collective_broadcast. Example, n = 2, root = 0, in [2] with stride 0 on rank 0 -> out [2]:
 *   rank 0 {7, 7}, which is one element in memory -> on both {7, 7} */
ncclResult_t axcclBroadcast(const axcclView_t* in, const axcclView_t* out, int root, ncclComm_t comm,
                            cudaStream_t stream);

/* As axcclAllReduce, on rank `root` only. Elsewhere `out` is ignored and may be NULL: it is not filled with zeros, as
 * the result of StableHLO's operation is. Source: StableHLO, collective_reduce. Example, n = 2, ncclMax, root = 0,
 * in [2] -> out [2] on rank 0:
 *   rank 0 {1, 5}, rank 1 {4, 2} -> rank 0 {4, 5} */
ncclResult_t axcclReduce(const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op, int root, ncclComm_t comm,
                         cudaStream_t stream);

/* ---- introspection ---- */

/* What a communicator is made of. Set `size` = sizeof(axcclCommInfo_t) before the call; later versions append fields. */
typedef struct axcclCommInfo {
  size_t size;             /* in: bytes of the struct the caller knows */
  int nranks;              /* ranks */
  int rank;                /* own rank */
  int device;              /* host device */
  int local_processes;     /* processes of the machine that hold ranks of it */
  uint64_t memory_bytes;   /* memory held for this rank: control, scratch touched so far, plans (bytes) */
  uint64_t operations;     /* operations started so far */
  uint64_t plans;          /* plans in the cache */
  double verify_seconds;   /* time spent in the verifier so far */
} axcclCommInfo_t;
ncclResult_t axcclCommGetInfo(ncclComm_t comm, axcclCommInfo_t* info);

/* How this rank reaches `peer`: "self", "inproc", "shm" or "shm+cma" (memory mapped; other memory by system call where
 * "+cma"). The text is static. */
ncclResult_t axcclCommGetLink(ncclComm_t comm, int peer, const char** link);

/* The algorithm of the last operation of the communicator that has ended (not of one that is still enqueued or running), ""
 * before the first. Static text. For tests and logs. */
ncclResult_t axcclCommGetLastAlgorithm(ncclComm_t comm, const char** algorithm);

/* Parameter `index` of the table (0, 1, ...): name, value as text, and source ("default", "environment", a file). Past the
 * end: ncclInvalidArgument. Texts live as long as the library. */
ncclResult_t axcclParamGetByIndex(int index, const char** name, const char** value, const char** source,
                                  const char** meaning);

#ifdef __cplusplus
}
#endif

#endif /* AXCCL_AXCCL_H_ */
