/* The op board: what a rank is doing, for monitors and for programs that seem to hang. Pure C; part of axccl/axccl.h.
 *
 * Every rank keeps records of its operations in memory that it shares with the ranks of its machine: of each channel
 * the last 16, of a pipeline the last 4 starts. The board shows those that are under way and those that have ended. It
 * is read from the records alone, by any thread, in this process or another one of the communicator: it waits for
 * nothing and takes no lock that an operation holds, so it also works while the rank hangs, or its process is stopped
 * or dead. Operations go on meanwhile, so what is shown is a moment ago, and not the same moment for all of them.
 *
 * For a rank on another machine, the rank's process is asked, where a thread of the library answers whatever the
 * application does, and if it does not within 250 ms, other processes of that machine with ranks of the communicator.
 *
 * An operation is on the board once the rank has begun it, not while it waits on its stream for earlier work. Messages
 * of a rank to itself are not on it. Example, what rank 1 is doing:
 *
 *   axcclOpInfo_t ops[32];
 *   int count = 0;
 *   ops[0].size = sizeof(ops[0]);
 *   axcclCommGetOps(comm, 1, ops, 32, &count);
 *   for (int i = 0; i < count && i < 32 && ops[i].state == axcclOpUnderWay; ++i)
 *     printf("rank 1 is in %s (operation %llu)\n", ops[i].call, (unsigned long long)ops[i].sequence);
 *
 * GPU ranks. Their kernels tell the host neither that an operation has begun nor that it has ended. So the board shows
 * what has been enqueued, as axcclOpEnqueued. Starts of pipelines are shown as on the host: the device stores into
 * memory that the ranks of the machine share when a start has begun and ended, and which chunks it has got to. A start
 * in a graph is one operation, which shows the last launch of a graph with that pipeline.
 */
#ifndef AXCCL_BOARD_H_
#define AXCCL_BOARD_H_

#include <stddef.h>
#include <stdint.h>

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum axcclOpState {
  axcclOpUnderWay = 0,
  axcclOpDone = 1,
  axcclOpFailed = 2,  /* not ended when the rank failed, died, or destroyed or aborted its communicator */
  axcclOpEnqueued = 3 /* GPU ranks: enqueued, and perhaps under way or done; a start of a pipeline: not begun */
} axcclOpState_t;

typedef enum axcclOpUse {
  axcclOpOnChannel = 0, /* a collective */
  axcclOpMessage = 1,   /* ncclSend, ncclRecv, and the messages of a collective permute */
  axcclOpOfPipeline = 2 /* a start of a pipeline; of a permute: its message to one rank, or from one */
} axcclOpUse_t;

#define AXCCL_OP_TEXT_BYTES 192

typedef struct axcclOpInfo {
  size_t size; /* bytes of this struct */
  axcclOpState_t state;
  axcclOpUse_t use;
  int created;        /* 1: on a channel that was created, channel_id; 0: on the communicator's own */
  int peer;           /* of a message: the rank that it goes to or comes from; else -1 */
  int64_t channel_id; /* axcclChannelCreate's; 0 if it was not created */
  uint64_t sequence;  /* 0, 1, ...: number among the operations of the channel, the messages in one direction between
                         two ranks, or the starts of the pipeline; the same on all ranks that take part */
  uint64_t count;     /* elements of a block; of calls on views: 0 if blocks differ */
  uint64_t bytes;     /* of these elements */
  int64_t in_chunks;  /* of a pipeline on this rank, else 0 */
  int64_t in_ready;   /* declared ready in this start so far; without axcclProducer: all. A word that the program has
                         stored itself, and every chunk of a GPU rank, counts when the library has seen it, which looks
                         for chunks in the order in which they are needed. -1: not known (see out_there) */
  int64_t out_chunks; /* of a pipeline on this rank, else 0 */
  int64_t out_there;  /* complete in this start so far; -1: not known, as the rank's GPU driver cannot pin memory that
                         processes share; the start is then shown as axcclOpEnqueued */
  char call[AXCCL_OP_TEXT_BYTES]; /* as error texts describe it: "ncclAllReduce count 8 float sum"; may be cut */
} axcclOpInfo_t;

/* Writes the operations of a rank of the communicator to `ops`: first those under way, then failed ones, then the rest;
 * those of one channel newest first. *count = how many there are; of more than `capacity` (0 or more) the first are
 * written. Set ops[0].size = sizeof(axcclOpInfo_t) before: elements are as far apart. `ops` may be NULL if `capacity`
 * is 0. Of a rank on another machine, no more are written than fit into 60 KiB, about 500. ncclInvalidArgument: no such
 * rank, `count` NULL, no size. Of a rank on another machine also ncclRemoteError: no process is left there that could
 * tell; ncclTimeout: none has answered for 3 s; ncclInvalidUsage: another thread has aborted the communicator. Works on
 * a communicator that has failed, but not on one that was aborted here. */
ncclResult_t axcclCommGetOps(ncclComm_t comm, int rank, axcclOpInfo_t* ops, int capacity, int* count);

#ifdef __cplusplus
}
#endif

#endif /* AXCCL_BOARD_H_ */
