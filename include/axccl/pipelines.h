/* Pipelines: collectives whose output can be used chunk by chunk while the rest is on its way, and whose input can be
 * declared ready chunk by chunk while the rest is being computed. Pure C; part of axccl.h.
 *
 * A pipeline is created once, for buffers that stay where they are, and started in every step of the application.
 * Planning and verification happen at creation, the exchange of addresses in the first start: with each rank when its
 * chunks are needed, so a late rank holds up what comes from it or depends on it, in every start.
 *
 * Chunks. Input and output of a rank consist of blocks, as the collective defines them: with n ranks,
 *
 *   kind            blocks of the input     blocks of the output
 *   all_gather      1                       n: block b is rank b's input
 *   reduce_scatter  n: block r for rank r   1
 *   all_reduce      1                       1
 *   all_to_all      n: block r for rank r   n: block b comes from rank b
 *   broadcast       1 on the root           1
 *   permute         1 on sources            1
 *
 * Every block is cut into S slices along `slice_dim`, whose sizes differ by one index at most. A chunk is one slice of
 * one block, and its number is block * S + slice, on its side (input or output).
 *
 * A step. axcclPipelineStart is collective, and ordered on the channel like any call; the communication runs beside the
 * caller's stream. axcclPipelineFinish makes a stream wait for the end of it. In between, a chunk of the output may be
 * used once axcclPipelineWait has returned, or behind axcclPipelineStreamWait on a stream, or when its word is 1. With
 * axcclProducer, a chunk of the input is read only after axcclPipelineReady, or when a stream has got to
 * axcclPipelineStreamReady, or when its word is 1; without, the whole input must be there when `stream` gets to the
 * start. Between axcclPipelineStart and axcclPipelineFinish nothing else may write the input's chunks that are declared
 * ready, or the output. Example, a product of an all-gathered matrix, chunk by chunk, the rank's own chunk first:
 *
 *   axcclPipelineStart(pipeline, stream);
 *   for (int64_t i = 0; i < chunks; ++i) {
 *     axcclPipelineGetChunk(pipeline, axcclOut, i, &chunk);
 *     axcclPipelineWait(pipeline, chunk.number);
 *     multiply(chunk.view);
 *   }
 *   axcclPipelineFinish(pipeline, stream);
 *
 * Progress. Between start and finish a thread of the library sleeps until a peer has sent something, or a chunk has
 * been declared ready, moves what there is, and sleeps again; so communication goes on while all threads of the
 * application compute. A thread that waits for a chunk helps.
 *
 * Words. Every chunk has a word of 32 bits in memory of the rank's device: 0 not yet, 1 there (output) or ready
 * (input), 2 failed. Start resets all of them to 0, when `stream` gets there; so code compares with constants. On the
 * host they are 0 when the start returns, if all work of `stream` and the last start have ended. A reader loads with
 * acquire, a producer stores 1 with release (axccl/device.h). When the communicator fails or is aborted, or
 * a deadline passes, all words of both sides that are 0 become 2, so that no loop on a word lasts for ever. On the host
 * a word that a program stores itself is seen within a millisecond; axcclPipelineReady is seen at once.
 *
 * Where memory is. As with other calls, peers reach memory of ncclMemAlloc directly. What they read of other memory
 * (inputs; for all_reduce, and for more than 16 ranks, outputs, too) is registered for the pipeline's life, as by
 * ncclCommRegister; where that cannot be done, it is copied into memory that they reach (on GPUs it is refused).
 *
 * Between machines, and for blocks of up to 256 bytes that are not reduced, chunks go through slots of shared memory
 * that the pipeline keeps: twice the size of the input, or a few times that.
 *
 * On GPUs, a start launches a kernel on a stream of the pipeline's own, of the highest priority, or fills several such
 * streams with the work of copy engines (axcclEngine_t). Kernels that wait for words must leave it room: call
 * axcclPipelineStart, and let `stream` get there, before they can fill the device; the pipeline needs `blocks`
 * (axcclPipelineInfo_t) of it. Words are in memory of the device: the host reads them only where it can read that
 * memory. Chunks do not go through slots.
 *
 * Graphs. A start on a stream that is being captured becomes part of that graph, which may be launched any number of
 * times; every launch resets the words. axcclPipelineStreamWait, axcclPipelineStreamReady and axcclPipelineFinish then
 * belong to the same capture: streams that they are called on join it, and must be joined with the captured stream
 * before the capture ends, as CUDA demands. Calls by which threads wait for chunks or declare them ready are
 * ncclInvalidUsage after such a start, and so is everything that crosses the border of the capture. The application
 * orders launches of graphs with the same pipeline and its other starts by streams and events, and launches none once
 * the pipeline has been destroyed. All ranks of a pipeline start it equally often; those that capture may differ.
 *
 * Limits. The GPU ranks of a pipeline must reach each other's memory (not with NCCL_P2P_DISABLE=1), and what ranks of
 * other processes read (above) must be memory of cudaMalloc or ncclMemAlloc, each buffer in one allocation. Their
 * pipelines have one of the channels that AXCCL_GPU_CHANNELS counts (a permute has up to two). No pipeline reduces by a
 * callback. All of these are ncclInvalidUsage. GPU ranks that start pipelines in another order than their peers wait
 * for each other until AXCCL_TIMEOUT.
 *
 * Errors. At once and with nothing changed: what the collective refuses (views.h); ncclInvalidArgument also for a
 * slice_dim out of range, S below 1 or above the size of that dimension in a block, more than 65536 chunks of a side,
 * an order or engine that the kind does not have, a chunk or position that does not exist; ncclInvalidUsage for calls
 * out of order, as below. Later, on all ranks and naming both: ncclInvalidUsage when the first, second, ... pipelines
 * that ranks create on a channel differ (in anything but buffers, strides and engine), or ranks start them in another
 * order relative to each other or to other calls. Host ranks compare what they have created when a start begins, and
 * while it waits, and wait for no rank for that: a permute in which a rank has all that it needs may end before another
 * rank has created its end, and the next start is the error. ncclGetLastError has the text. After an error of a start,
 * the communicator has failed.
 */
#ifndef AXCCL_PIPELINES_H_
#define AXCCL_PIPELINES_H_

#include <stddef.h>
#include <stdint.h>

#include "axccl/channels.h"
#include "axccl/views.h"
#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct axcclPipeline* axcclPipeline_t;

typedef enum axcclPipelineKind {
  axcclPipelineAllGather = 0,
  axcclPipelineReduceScatter = 1,
  axcclPipelineAllReduce = 2,
  axcclPipelineAllToAll = 3,
  axcclPipelineBroadcast = 4,
  axcclPipelinePermute = 5
} axcclPipelineKind_t;

/* In which order the blocks of a rank r come, or are needed. By default own first where blocks are moved, and own last
 * where they are reduced, because the own block then needs all others. all_reduce, broadcast and permute have one block
 * and no order: only the default. */
typedef enum axcclChunkOrder {
  axcclDefaultOrder = 0,
  axcclOwnFirst = 1, /* r, r + 1, ..., r - 1 */
  axcclOwnLast = 2,  /* r + 1, ..., r - 1, r */
  axcclByRank = 3    /* 0, 1, ..., n - 1 on all ranks */
} axcclChunkOrder_t;

/* Who moves the data. On the host the threads of the library do, whatever it says but axcclEngineCopy, which is
 * refused. On GPUs a kernel does, or the copy engines of the devices, which leave the multiprocessors to the
 * application: with axcclEngineCopy, or with axcclEngineAuto where the communicator's configuration has CTAPolicy
 * NCCL_CTA_POLICY_ZERO, if all ranks of the pipeline (of a permute: both ranks of a message) have that, are in one
 * process and have their buffers in memory of devices (managed memory will do); a kernel otherwise. Copy engines do not
 * reduce (ncclInvalidArgument) and cannot be captured (ncclInvalidUsage of the start), and a chunk must not be in more
 * than 4096 pieces where it is read or written (ncclInvalidArgument, of the creation, or of the start if it is the
 * strides of two ranks that do not fit together): a piece is rows of bytes at a constant distance. They take no part
 * before all ranks have created the pipeline. */
typedef enum axcclEngine { axcclEngineAuto = 0, axcclEngineKernel = 1, axcclEngineCopy = 2 } axcclEngine_t;

typedef enum axcclSide { axcclIn = 0, axcclOut = 1 } axcclSide_t;

/* A flag of a pipeline: input chunks count once they are declared ready. */
#define axcclProducer 0x1u

typedef struct axcclPipelineSpec {
  size_t size; /* bytes of this struct: set by AXCCL_PIPELINE_SPEC_INITIALIZER */
  axcclPipelineKind_t kind;
  axcclView_t in, out;  /* as the collective takes them (views.h); read at creation, the memory stays bound */
  int dim;              /* all_gather, reduce_scatter; all_to_all: split_dim */
  int concat_dim;       /* all_to_all */
  int root;             /* broadcast */
  ncclRedOp_t op;       /* all_reduce, reduce_scatter */
  const int64_t* pairs; /* permute: num_pairs times (source, target), as axcclCollectivePermute */
  int num_pairs;
  int slice_dim;  /* of a block; negative: from the end */
  int64_t slices; /* S */
  axcclChunkOrder_t order;
  axcclEngine_t engine;
  unsigned int flags;            /* 0 or axcclProducer */
  const axcclOptions_t* options; /* group order and scale; bucket_bytes must be 0. May be NULL */
} axcclPipelineSpec_t;

#define AXCCL_PIPELINE_SPEC_INITIALIZER                                                                           \
  {                                                                                                               \
    sizeof(axcclPipelineSpec_t), axcclPipelineAllGather, AXCCL_VIEW_INITIALIZER, AXCCL_VIEW_INITIALIZER, 0, 0, 0, \
        ncclSum, NULL, 0, 0, 1, axcclDefaultOrder, axcclEngineAuto, 0, NULL                                       \
  }

/* *pipeline = this rank's end of a new pipeline on `channel`. Local: waits for no other rank. The ranks of a channel
 * create their pipelines on it in the same order. Views without data: NULL data where the rank has no chunks there. */
ncclResult_t axcclPipelineCreate(axcclPipeline_t* pipeline, const axcclPipelineSpec_t* spec, axcclChannel_t channel);

/* Waits for the end of the last start, whose finish must have been called; ncclInvalidUsage otherwise, unless the
 * communicator has failed or is gone. After that, the memory is the caller's again. All ranks start a pipeline equally
 * often before they destroy it: ncclInvalidUsage if copy engines are at work for another rank's next start, which will
 * read this rank's memory. */
ncclResult_t axcclPipelineDestroy(axcclPipeline_t pipeline);

/* Begins a step: after what is on `stream`, resets the words and begins to communicate. What comes later on `stream`
 * does not wait for that. In an open group (ncclGroupStart), the pipelines start at its end, after the calls of the
 * group, in order; all calls on them must come after that. ncclInvalidUsage: a start without a finish since. */
ncclResult_t axcclPipelineStart(axcclPipeline_t pipeline, cudaStream_t stream);

/* Ends a step: `stream` waits until all chunks of the output are there, and the input is not needed any more. An error
 * of the start is an error of `stream`. ncclInvalidUsage: no start before, or finished already. */
ncclResult_t axcclPipelineFinish(axcclPipeline_t pipeline, cudaStream_t stream);

/* Waits until a chunk of the output is there, and returns an error if it will not be. Returns at once for chunks of the
 * last start that are there. ncclInvalidUsage: nothing was started. */
ncclResult_t axcclPipelineWait(axcclPipeline_t pipeline, int64_t chunk);
/* *done = 1 if the chunk is there, 0 if not yet; never waits. */
ncclResult_t axcclPipelineTest(axcclPipeline_t pipeline, int64_t chunk, int* done);
/* What is enqueued on `stream` from now on starts after the chunk of this start is there; on GPUs, where a later start
 * may have reset the word before `stream` gets there, of that one. An error is an error of `stream`. */
ncclResult_t axcclPipelineStreamWait(axcclPipeline_t pipeline, int64_t chunk, cudaStream_t stream);

/* Declares a chunk of the input ready; it may be read from now on. ncclInvalidUsage: no start before, a pipeline
 * without axcclProducer, a chunk that was declared ready since the start. */
ncclResult_t axcclPipelineReady(axcclPipeline_t pipeline, int64_t chunk);
/* The same, when `stream` gets there. */
ncclResult_t axcclPipelineStreamReady(axcclPipeline_t pipeline, int64_t chunk, cudaStream_t stream);

typedef struct axcclChunk {
  size_t size;    /* bytes of this struct: set by AXCCL_CHUNK_INITIALIZER */
  int64_t number; /* block * S + slice */
  int64_t block;
  int64_t slice;
  axcclView_t view; /* where it is in the caller's memory; sizes and strides live as long as the pipeline */
} axcclChunk_t;

#define AXCCL_CHUNK_INITIALIZER \
  { sizeof(axcclChunk_t), 0, 0, 0, AXCCL_VIEW_INITIALIZER }

/* *chunk = the chunk of that side at `position`, 0 .. chunks - 1, in the order in which the outputs come, or in which
 * the inputs are best declared ready. A producer that declares chunks in this order, each only once all output of its
 * rank that depends on those before it has come, never waits for ever. It must not wait in a reduce_scatter with
 * axcclOwnFirst, where the first output of each rank needs what the others declare last. */
ncclResult_t axcclPipelineGetChunk(axcclPipeline_t pipeline, axcclSide_t side, int64_t position, axcclChunk_t* chunk);

/* *words = the words of that side, by number of the chunk; *count (may be NULL) = how many. They live as long as the
 * pipeline. Words of the output must only be read; words of the input may be set to 1, once after each start. */
ncclResult_t axcclPipelineGetFlags(axcclPipeline_t pipeline, axcclSide_t side, uint32_t** words, int64_t* count);

/* Set `size` = sizeof(axcclPipelineInfo_t) before the call; later versions append fields. */
typedef struct axcclPipelineInfo {
  size_t size;
  int64_t in_chunks, out_chunks; /* of this rank */
  const char* algorithm;         /* static text */
  axcclEngine_t engine;          /* that is used: not axcclEngineAuto. Known once all ranks have started */
  uint64_t plan_hash[2];         /* of the plan, as axccl-plan prints it: high and low half */
  int blocks;                    /* GPU ranks: resident blocks of the kernel, at most; 0 on the host */
  size_t scratch_bytes;          /* memory of this rank that data passes through; 0 where peers reach the buffers */
  size_t memory_bytes;           /* that the pipeline takes besides, about */
  uint64_t starts;               /* so far */
} axcclPipelineInfo_t;
ncclResult_t axcclPipelineGetInfo(axcclPipeline_t pipeline, axcclPipelineInfo_t* info);

#ifdef __cplusplus
}
#endif

#endif /* AXCCL_PIPELINES_H_ */
