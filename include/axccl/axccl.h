/* AxCCL's extensions to the NCCL API: host devices, streams and events, version and introspection here, replica groups
 * and channels in channels.h, collectives on tensor views in views.h, pipelines in pipelines.h, more types and
 * operators in types.h, malloc of memory that peers can map in malloc.h, what ranks are doing in board.h. Pure C.
 *
 * Streams. A host stream takes the place of cudaStream_t when ranks live in CPU memory: work enqueued on it runs in
 * order and asynchronously. Cast it with axcclStreamToCuda (the types are distinct on purpose). The NULL stream is the
 * current host device's default stream with CUDA's legacy meaning: work on it starts after all earlier work on the
 * device's blocking streams, and later work on those starts after it. Streams made with axcclStreamNonBlocking take no
 * part in that. Streams and events mean what they mean in CUDA: a wait is work of its stream, and to synchronise, query
 * or record covers everything that the stream waits for, by events and by the legacy rule. The calls of a group are
 * launched together, whatever their streams.
 *
 * Devices. Every rank on the host has a host device of its own, numbered within the process; ncclCommCuDevice returns
 * the number. ncclCommInitAll(comms, n, NULL) uses devices 0..n-1. ncclCommInitRank uses the calling thread's current
 * device; a thread that never called axcclHostSetDevice gets a free device at its first init, which becomes its current
 * one. There are 1024 devices; one is free again when the communicators and streams on it, and the thread that got it,
 * are gone. Any thread may call any rank. For a thread that never called axcclHostSetDevice, NULL means the default
 * streams of all ranks that it has called with NULL. It waits, queries and records for all of them. Its host functions,
 * copies and waits are ordered with all of them, and its calls on ranks of ncclCommInitRank are ordered with each
 * other, as on CUDA's one default stream. If it has called and made none, it waits for the default streams of all
 * devices.
 *
 * GPUs. With AXCCL_DEVICE=auto, the default, communicators get ranks on GPUs where there are any, unless the thread has
 * called axcclHostSetDevice. AXCCL_DEVICE=host and AXCCL_DEVICE=cuda decide outright. GPU ranks take CUDA's memory and
 * streams as in NCCL; the device is the thread's current one (cudaSetDevice). A device may have any number of ranks,
 * and ncclCommInitAll(comms, n, NULL) uses the devices in turn.
 *
 * All functions return ncclResult_t and are thread-safe; ncclGetLastError returns the reason of a failure.
 */
#ifndef AXCCL_AXCCL_H_
#define AXCCL_AXCCL_H_

#include <stddef.h>
#include <stdint.h>

#include "axccl/language.h"
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
/* *device = the calling thread's current host device: the one it set, got at an init, or first used NULL on; else 0. */
ncclResult_t axcclHostGetDevice(int* device);
/* Waits until all work enqueued so far on the streams of the current device (those that NULL covers) is done. */
ncclResult_t axcclHostDeviceSynchronize(void);

/* ---- streams ---- */

typedef struct axcclStream* axcclStream_t;
typedef struct axcclEvent* axcclEvent_t;

/* Flags of axcclStreamCreate. */
#define axcclStreamDefault 0x0u
#define axcclStreamNonBlocking 0x1u

/* A new stream on the current host device. Unknown flags: ncclInvalidArgument. */
ncclResult_t axcclStreamCreate(axcclStream_t* stream, unsigned int flags);
/* The stream's work still completes, and so do waits for it; the handle is invalid at once. NULL:
 * ncclInvalidArgument. */
ncclResult_t axcclStreamDestroy(axcclStream_t stream);
/* Waits for all work enqueued so far, and for what that waits for, and helps to do it. Returns the first error of that
 * work that has not been reported yet, if any. */
ncclResult_t axcclStreamSynchronize(axcclStream_t stream);
/* As axcclStreamSynchronize, but returns ncclInProgress if the work is not done after `seconds` (it looks at the clock
 * every 20 ms), and the work goes on. For programs that must look at something else while they wait, such as signals in
 * an interpreter. 0: looks for work that it can do before it returns. Negative or NaN: ncclInvalidArgument. */
ncclResult_t axcclStreamSynchronizeFor(axcclStream_t stream, double seconds);
/* ncclSuccess when all work is done, ncclInProgress otherwise, or the first unreported error. Never waits. */
ncclResult_t axcclStreamQuery(axcclStream_t stream);
/* Work enqueued on `stream` after this call starts after the work that the event stands for now; a later record of the
 * event does not change that. The streams may belong to different devices. A never recorded event has no effect. */
ncclResult_t axcclStreamWaitEvent(axcclStream_t stream, axcclEvent_t event);
/* Runs fn(argument) on a thread of the library when the stream gets there; the stream waits for its return. `fn` must
 * not call functions of this library that wait. Callbacks of different streams may run at the same time, or one after
 * the other where the system grants no more threads (none at all: ncclSystemError, and nothing is enqueued). An
 * exception from `fn` is an error of the stream; later work on the stream still runs. What `fn` chooses with
 * axcclHostSetDevice ends with it. */
ncclResult_t axcclLaunchHostFunc(axcclStream_t stream, void (*fn)(void* argument), void* argument);
/* Copies `bytes` bytes when the stream gets there. The ranges must not overlap. */
ncclResult_t axcclMemcpyAsync(void* dst, const void* src, size_t bytes, axcclStream_t stream);

/* ---- events ---- */

ncclResult_t axcclEventCreate(axcclEvent_t* event);
/* Does not wait for what the event stands for, even if another thread does. */
ncclResult_t axcclEventDestroy(axcclEvent_t event);
/* From now on the event stands for all work enqueued on `stream` so far, including waits for other events, and no
 * longer for what it was recorded for before. */
ncclResult_t axcclEventRecord(axcclEvent_t event, axcclStream_t stream);
/* ncclSuccess when that work is done (or the event was never recorded), else ncclInProgress. Never waits, but helps to
 * do the work. */
ncclResult_t axcclEventQuery(axcclEvent_t event);
ncclResult_t axcclEventSynchronize(axcclEvent_t event);
/* As axcclEventSynchronize, but returns ncclInProgress after `seconds`, as axcclStreamSynchronizeFor does. */
ncclResult_t axcclEventSynchronizeFor(axcclEvent_t event, double seconds);

/* A host stream as NCCL's stream argument and back (no conversion takes place). */
AXCCL_INLINE cudaStream_t axcclStreamToCuda(axcclStream_t stream) { return AXCCL_POINTER_CAST(cudaStream_t, stream); }
AXCCL_INLINE axcclStream_t axcclStreamFromCuda(cudaStream_t stream) {
  return AXCCL_POINTER_CAST(axcclStream_t, stream);
}

/* ---- deadlines ---- */

/* From now on, a wait of this rank in an operation of `comm` may last `seconds`; 0: forever. Then the operation fails
 * with ncclTimeout, which names the ranks that are missing, and so does the communicator. Waits that are under way, the
 * channels and pipelines of `comm`, and communicators made from it later are included. Before the first call it is
 * AXCCL_TIMEOUT (600 s unless set). A call's own deadline (axcclOptions_t, timeout) goes first. What moves does not
 * wait: a long operation may take any time. Of a time for which the process of a host rank was stopped (a suspended
 * job, a paused container), half a second counts. Each rank's own setting counts, and the others get the error of the
 * rank that waited. ncclInvalidArgument: seconds is negative or NaN. */
ncclResult_t axcclCommSetTimeout(ncclComm_t comm, double seconds);

/* ---- introspection ---- */

/* Facts about a rank's communicator. Set `size` to sizeof(axcclCommInfo_t) before; later versions append fields. */
typedef struct axcclCommInfo {
  size_t size;           /* in: bytes of the struct the caller knows */
  int nranks;            /* ranks of the communicator */
  int rank;              /* own rank */
  int device;            /* host ranks: the host device; GPU ranks: the CUDA device */
  int local_processes;   /* processes of this machine that hold ranks of it */
  uint64_t memory_bytes; /* host memory that this rank shares with others: control areas and scratch touched so far */
  uint64_t operations;   /* operations started so far */
  uint64_t plans;        /* host ranks: calls that the default channel has prepared and keeps */
  double verify_seconds; /* time that the process, not only this communicator, has spent in the verifier so far */
  uint64_t mapped;       /* GPU ranks of several processes: operations that went from buffer to buffer so far */
  uint64_t ll, ll128;    /* GPU ranks: operations that used these protocols so far (NCCL_PROTO) */
  double timeout;        /* seconds that a wait may last, 0: forever (axcclCommSetTimeout) */
  uint64_t grown;        /* GPU ranks of several processes: operations that went through grown scratch so far */
  uint64_t gpudirect;    /* GPU ranks of several machines: slots that adapters read from the device so far */
} axcclCommInfo_t;
ncclResult_t axcclCommGetInfo(ncclComm_t comm, axcclCommInfo_t* info);

/* *link = how this rank reaches `peer`. "self"; host ranks: "inproc" (same process), "shm" (mapped memory), "shm+cma"
 * (other memory also by system call); GPU ranks: "inproc", "cuda_ipc", or "pinned" (through host memory); either kind:
 * "tcp" or "ucx" (messages to another machine). The text is static. */
ncclResult_t axcclCommGetLink(ncclComm_t comm, int peer, const char** link);

/* *algorithm = the algorithm of the communicator's last operation that has ended (not of one that is still enqueued or
 * running), "" before the first. Static text. For tests and logs. */
ncclResult_t axcclCommGetLastAlgorithm(ncclComm_t comm, const char** algorithm);

/* Parameter `index` of the table (0, 1, ...): name, value as text, source ("default", "environment", a file), and
 * meaning. Past the end: ncclInvalidArgument. Texts live as long as the library. */
ncclResult_t axcclParamGetByIndex(int index, const char** name, const char** value, const char** source,
                                  const char** meaning);

#ifdef __cplusplus
}
#endif

#include "axccl/board.h"
#include "axccl/channels.h"
#include "axccl/malloc.h"
#include "axccl/pipelines.h"
#include "axccl/types.h"
#include "axccl/views.h"

#endif /* AXCCL_AXCCL_H_ */
