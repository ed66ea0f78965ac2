/* Collectives on tensor views. Pure C; part of axccl.h.
 *
 * A view is a tensor in memory: element (i0, i1, ...) is at data + (i0 * strides[0] + i1 * strides[1] + ...) elements.
 * Strides may be of any order and sign and leave gaps. On inputs they may be 0, which repeats an element. Strides of
 * dimensions of size 1 have no meaning. Sizes may be 0; then data may be NULL. A view without dimensions has one
 * element.
 *
 * Bytes go from the strided source to the strided destination; there is no transpose and no packing. The library
 * reaches memory of ncclMemAlloc, and of the same process, directly, and other memory of other processes through shared
 * slots.
 *
 * Every call takes `count` operands, in[0..count) and out[0..count), which form one operation: one plan, one launch.
 * Their shapes may differ, and so may their datatypes where nothing is reduced. count = 1 is the plain form.
 *
 * The calls are collective over the ranks of a channel (channels.h) and ordered on it like NCCL's on a communicator.
 * They mix with NCCL's calls: on any stream, in groups, on blocking and non-blocking communicators. n is the number of
 * ranks of the channel; a rank r, and a root, is a rank in the channel, 0..n-1. Structs, sizes and strides are read
 * before a call returns; the data is read when the stream gets there. A negative dimension counts from the end: -1 is
 * the last. Datatypes, dimensions, operators, roots and sizes must be the same on all ranks; strides may differ.
 *
 * In place. Input and output do not overlap, or are in place. In place means: for all-reduce, broadcast and reduce, the
 * same address and strides; for all-gather and gather, the input is this rank's part of the output; for reduce-scatter
 * and scatter, the output is this rank's part of the input. All-to-all is never in place.
 *
 * Limits. If the size of an element does not divide 16 (axcclBits(3), 5, 6, 7 and 9 to 15), a call can reduce one
 * operand of such elements, and those in a list may have AXCCL_MAX_DIMS - 1 dimensions at most.
 *
 * Errors. ncclInvalidArgument, at once and with nothing written: a dimension out of range; a size that n does not
 * divide; shapes or datatypes that do not match; an operator that the datatype does not have (types.h); an output two
 * of whose indices reach one element; input and output that overlap in another way than above; operands of a list that
 * overlap each other; a missing operand; NULL data; more than AXCCL_MAX_DIMS dimensions; more than 2^63 - 1 bytes from
 * first to last. ncclInvalidUsage, on all ranks and naming both calls: ranks call different things, or wait for each
 * other because of their order (nccl.h); a call on views never matches one of NCCL's. ncclGetLastError names the call,
 * the operand, the dimension (as StableHLO does) and the values.
 *
 * Examples. A line shows a rank's operands: input -> output. Tensors are written in braces, one level a dimension.
 */
#ifndef AXCCL_VIEWS_H_
#define AXCCL_VIEWS_H_

#include <stddef.h>
#include <stdint.h>

#include "axccl/channels.h"
#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AXCCL_MAX_DIMS 8

typedef struct axcclView {
  size_t size; /* bytes of this struct: set by AXCCL_VIEW_INITIALIZER */
  void* data;  /* element (0, 0, ...); an input is only read */
  ncclDataType_t datatype;
  int num_dims;           /* 0..AXCCL_MAX_DIMS */
  const int64_t* sizes;   /* elements along each dimension; may be NULL if there are none */
  const int64_t* strides; /* elements from one index to the next, for each dimension; NULL: row-major without gaps */
} axcclView_t;

#define AXCCL_VIEW_INITIALIZER \
  { sizeof(axcclView_t), NULL, ncclFloat32, 0, NULL, NULL }

/* How to carry out a call. NULL means AXCCL_OPTIONS_INITIALIZER. */
typedef struct axcclOptions {
  size_t size;        /* bytes of this struct: set by AXCCL_OPTIONS_INITIALIZER */
  unsigned int flags; /* 0 or axcclGroupOrder (channels.h) */
  /* The call becomes as many operations as keep the blocks of each below this many bytes (a larger operand is an
   * operation of its own); 0: one operation. The same on all ranks. */
  size_t bucket_bytes;
  /* For ncclSum of floats or complex numbers: a factor that multiplies the result before it is rounded (floats of less
   * than 64 bits: in float); 0: none. NaN is an error. The same on all ranks. For mean gradients of n ranks: 1.0 / n */
  double scale;
  /* Seconds that a wait of the call may last; then the call is ncclTimeout and names the ranks that are missing, and
   * the communicator has failed. 0: as for all calls of the communicator (axcclCommSetTimeout). Each rank's own setting
   * counts. Calls in a captured graph have the communicator's. */
  double timeout;
  /* axcclSend and axcclRecv: 0, or a positive number. A message with a tag is ordered only with those of the same tag
   * between the same ranks in the same direction: on streams of their own, it may overtake all others. Each tag takes
   * what a channel of two ranks takes for each peer and direction (channels.h), from its first message to the end of
   * the channel that it is used on. */
  int tag;
  /* axcclRecv: where the rank is written that the message comes from, before the stream goes on; or NULL. */
  int* source;
} axcclOptions_t;

#define AXCCL_OPTIONS_INITIALIZER \
  { sizeof(axcclOptions_t), 0, 0, 0.0, 0.0, 0, NULL }

/* The inputs of all ranks, concatenated along `dim` in order of ranks. `out` has the sizes of `in`, n times along dim.
 * Source: StableHLO, all_gather. Example, n = 2, dim = 1:
 *   rank 0: {{1, 2}, {3, 4}} -> {{1, 2, 5, 6}, {3, 4, 7, 8}}
 *   rank 1: {{5, 6}, {7, 8}} -> {{1, 2, 5, 6}, {3, 4, 7, 8}} */
ncclResult_t axcclAllGather(int count, const axcclView_t* in, const axcclView_t* out, int dim, axcclChannel_t channel,
                            const axcclOptions_t* options, cudaStream_t stream);

/* Reduces the inputs of all ranks with `op`; rank r gets part r of n of the result along `dim`. `out` has the sizes of
 * `in`, 1/n along dim. Source: StableHLO, reduce_scatter. Example, n = 2, dim = 1, ncclSum:
 *   rank 0: {{1, 2, 3, 4}, {5, 6, 7, 8}} -> {{10, 12}, {18, 20}}
 *   rank 1: {{9, 10, 11, 12}, {13, 14, 15, 16}} -> {{14, 16}, {22, 24}} */
ncclResult_t axcclReduceScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim, ncclRedOp_t op,
                                axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* The inputs of all ranks, reduced with `op`. `out` has the sizes of `in`. Source: StableHLO, all_reduce. Example,
 * n = 2, ncclSum, out strides {1, 2}:
 *   rank 0: {{1, 2}, {3, 4}} -> {{11, 22}, {33, 44}}, in memory {11, 33, 22, 44}
 *   rank 1: {{10, 20}, {30, 40}} -> {{11, 22}, {33, 44}}, in memory {11, 33, 22, 44} */
ncclResult_t axcclAllReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                            axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* Rank r gets part r of n along `split_dim` of every input, concatenated along `concat_dim` in order of ranks. `out`
 * has the sizes of `in`, 1/n along split_dim, then n times along concat_dim. Source: StableHLO, all_to_all. Example,
 * n = 2, split_dim = 1, concat_dim = 0:
 *   rank 0: {{1, 2, 3, 4}, {5, 6, 7, 8}} -> {{1, 2}, {5, 6}, {9, 10}, {13, 14}}
 *   rank 1: {{9, 10, 11, 12}, {13, 14, 15, 16}} -> {{3, 4}, {7, 8}, {11, 12}, {15, 16}} */
ncclResult_t axcclAllToAll(int count, const axcclView_t* in, const axcclView_t* out, int split_dim, int concat_dim,
                           axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* As axcclAllGather, on rank `root` only. On other ranks `out` is ignored and may be NULL. Source: StableHLO,
 * all_gather (it has no gather). Example, n = 2, dim = 0, root = 1:
 *   rank 0: {{1, 2}}
 *   rank 1: {{3, 4}} -> {{1, 2}, {3, 4}} */
ncclResult_t axcclGather(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                         axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* Rank r gets part r of n along `dim` of the root's input. `out` has the sizes of `in`, 1/n along dim. On ranks other
 * than `root`, `in` is ignored and may be NULL. Source: StableHLO, reduce_scatter without the reduction (it has no
 * scatter). Example, n = 2, dim = 1, root = 0:
 *   rank 0: {{1, 2}, {3, 4}} -> {{1}, {3}}
 *   rank 1: -> {{2}, {4}} */
ncclResult_t axcclScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                          axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* The root's input, on every rank. `out` has the sizes of `in`. On ranks other than `root`, `in` is ignored and may be
 * NULL. Source: StableHLO, collective_broadcast. Example, n = 2, root = 0, in strides {0}:
 *   rank 0: {7, 7}, in memory {7} -> {7, 7}
 *   rank 1: -> {7, 7} */
ncclResult_t axcclBroadcast(int count, const axcclView_t* in, const axcclView_t* out, int root, axcclChannel_t channel,
                            const axcclOptions_t* options, cudaStream_t stream);

/* As axcclAllReduce, on rank `root` only. On other ranks `out` may be NULL; if it is not, it is filled with zeros.
 * Source: StableHLO, collective_reduce. Example, n = 2, ncclMax, root = 0:
 *   rank 0: {1, 5} -> {4, 5}
 *   rank 1: {4, 2} -> {0, 0} */
ncclResult_t axcclReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op, int root,
                         axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* ---- parts of different sizes ----
 *
 * Extents are numbers of rows; a row is what one index of `dim` selects. extents[o * n + r] belongs to rank r in
 * operand o, and may be 0. An operand may have more rows than its parts take: parts lie one after the other from its
 * first row on, and the rest is neither read nor written. Extents are read before a call returns, except where its
 * comment says otherwise. If ranks give extents that do not match, all of them get ncclInvalidUsage before anything is
 * written. bucket_bytes and NCCL_ALGO have no effect: the library moves data directly where memory is mapped, and by
 * `oneshot` elsewhere; all-gathers between machines by `hierarchical`. Between machines, each part travels as if it
 * were as long as the longest of the call, and a reduce-scatter sends the parts of every rank, not their sums. Source:
 * MPI-4.1, sections 6.5-6.10 (MPI_Allgatherv and its siblings), with rows of a view in place of elements. */

/* Rank r has extents[r] rows, and all of them go to every rank. In place: the input is this rank's rows of the output.
 * Example, n = 2, dim = 0, extents {1, 2}:
 *   rank 0: {{1, 2}} -> {{1, 2}, {3, 4}, {5, 6}}
 *   rank 1: {{3, 4}, {5, 6}} -> {{1, 2}, {3, 4}, {5, 6}} */
ncclResult_t axcclAllGatherV(int count, const axcclView_t* in, const axcclView_t* out, int dim, const int64_t* extents,
                             axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* Reduces the inputs of all ranks; rank r gets extents[r] rows of the result. Example, n = 2, dim = 0, ncclSum, extents
 * {1, 2}:
 *   rank 0: {1, 2, 3} -> {11}
 *   rank 1: {10, 20, 30} -> {22, 33} */
ncclResult_t axcclReduceScatterV(int count, const axcclView_t* in, const axcclView_t* out, int dim, ncclRedOp_t op,
                                 const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                                 cudaStream_t stream);

/* As axcclAllGatherV, on rank `root` only. Example, n = 2, dim = 0, root = 0, extents {1, 2}:
 *   rank 0: {1} -> {1, 2, 3}
 *   rank 1: {2, 3} */
ncclResult_t axcclGatherV(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                          const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                          cudaStream_t stream);

/* Rank r gets extents[r] rows of the root's input. Example, n = 2, dim = 0, root = 0, extents {1, 2}:
 *   rank 0: {1, 2, 3} -> {1}
 *   rank 1: -> {2, 3} */
ncclResult_t axcclScatterV(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                           const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                           cudaStream_t stream);

/* Rank r gets send_extents[r] rows of this rank's input, and receive_extents[r] rows of this rank's output come from
 * rank r. Example, n = 2, dim = 0:
 *   rank 0, send_extents {1, 2}, receive_extents {1, 1}: {1, 2, 3} -> {1, 4}
 *   rank 1, send_extents {1, 1}, receive_extents {2, 1}: {4, 5} -> {2, 3, 5} */
ncclResult_t axcclAllToAllV(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                            const int64_t* send_extents, const int64_t* receive_extents, axcclChannel_t channel,
                            const axcclOptions_t* options, cudaStream_t stream);

/* As axcclAllToAllV, with an offset for every part, and with all four arrays (n values, the same for all operands) read
 * when the stream gets there. Rank r gets send_extents[r] rows of this rank's input from row input_offsets[r] on, and
 * they are written into *its* output from row output_offsets[r] on. receive_extents[r] rows come from rank r. Rows of
 * the output that no rank sends keep their values. Parts that leave an operand, or overlap in an output, are
 * ncclInvalidUsage as above. Source: JAX, lax.ragged_all_to_all. Example, n = 2, dim = 0, out of zeros before:
 *   rank 0, input_offsets {0, 1}, send_extents {1, 2}, output_offsets {0, 0}, receive_extents {1, 1}:
 *     {1, 2, 2} -> {1, 3, 0, 0}
 *   rank 1, input_offsets {0, 1}, send_extents {1, 1}, output_offsets {1, 2}, receive_extents {2, 1}:
 *     {3, 4, 0} -> {2, 2, 4, 0} */
ncclResult_t axcclRaggedAllToAll(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                 const int64_t* input_offsets, const int64_t* send_extents,
                                 const int64_t* output_offsets, const int64_t* receive_extents, axcclChannel_t channel,
                                 const axcclOptions_t* options, cudaStream_t stream);

/* Operand o of rank roots[o], on every rank; every rank passes in[o]. roots: `count` values, read when the stream gets
 * there, the same on all ranks. Source: StableHLO, collective_broadcast with a dynamic root. Example, n = 2, roots
 * {1, 0}:
 *   rank 0: {1}, {2} -> {3}, {2}
 *   rank 1: {3}, {4} -> {3}, {2} */
ncclResult_t axcclBroadcastFrom(int count, const axcclView_t* in, const axcclView_t* out, const int32_t* roots,
                                axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* The reduction of operand o, on rank roots[o]; zeros on the others. roots as above. Source: StableHLO,
 * collective_reduce with a dynamic root. Example, n = 2, ncclSum, roots {1, 0}:
 *   rank 0: {1}, {2} -> {0}, {6}
 *   rank 1: {3}, {4} -> {4}, {0} */
ncclResult_t axcclReduceTo(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                           const int32_t* roots, axcclChannel_t channel, const axcclOptions_t* options,
                           cudaStream_t stream);

/* ---- a view for every rank ----
 *
 * Where parts of the ranks are tensors of their own. A list has n views, that of rank r at index r, whose sizes may
 * differ from rank to rank and must be the same on both ends. Each call is one launch. As in all calls, no output may
 * overlap anything else, but for the part of the rank itself, which may be in place. bucket_bytes has no effect.
 * Source: PyTorch, torch.distributed (all_gather, gather, scatter, reduce_scatter and all_to_all of lists of tensors).
 */

/* out[r] of every rank becomes in[0] of rank r. Example, n = 2:
 *   rank 0: {1} -> {1}, {2, 3}
 *   rank 1: {2, 3} -> {1}, {2, 3} */
ncclResult_t axcclAllGatherList(const axcclView_t* in, const axcclView_t* out, axcclChannel_t channel,
                                const axcclOptions_t* options, cudaStream_t stream);

/* out[0] of rank r becomes in[r] of all ranks, reduced with `op`. Example, n = 2, ncclSum:
 *   rank 0: {1}, {2, 3} -> {11}
 *   rank 1: {10}, {20, 30} -> {22, 33} */
ncclResult_t axcclReduceScatterList(const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                                    axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* out[s] of rank r becomes in[r] of rank s. Example, n = 2:
 *   rank 0: {1}, {2, 3} -> {1}, {4}
 *   rank 1: {4}, {5} -> {2, 3}, {5} */
ncclResult_t axcclAllToAllList(const axcclView_t* in, const axcclView_t* out, axcclChannel_t channel,
                               const axcclOptions_t* options, cudaStream_t stream);

/* As axcclAllGatherList, on rank `root` only. On other ranks `out` is ignored and may be NULL. Example, n = 2, root =
 * 1: rank 0: {1} rank 1: {2, 3} -> {1}, {2, 3} */
ncclResult_t axcclGatherList(const axcclView_t* in, const axcclView_t* out, int root, axcclChannel_t channel,
                             const axcclOptions_t* options, cudaStream_t stream);

/* out[0] of rank r becomes in[r] of rank `root`. On other ranks `in` is ignored and may be NULL.
 * Example, n = 2, root = 0:
 *   rank 0: {1}, {2, 3} -> {1}
 *   rank 1: -> {2, 3} */
ncclResult_t axcclScatterList(const axcclView_t* in, const axcclView_t* out, int root, axcclChannel_t channel,
                              const axcclOptions_t* options, cudaStream_t stream);

/* ---- between two ranks ---- */

/* Sends in[0..count) to rank `peer`, whose axcclRecv on the same channel gives views of the same shapes and datatypes;
 * they become its out[0..count). Messages from one rank to another on one channel arrive in the order in which they are
 * sent. As with ncclSend, either call may wait for the other, so put what two ranks exchange into one ncclGroup, and a
 * message to oneself, too. Source: StableHLO, send and recv. Example, n = 2, out strides {1, 2}:
 *   rank 0: {{1, 2}, {3, 4}}
 *   rank 1: -> {{1, 2}, {3, 4}}, in memory {1, 3, 2, 4} */
ncclResult_t axcclSend(int count, const axcclView_t* in, int peer, axcclChannel_t channel,
                       const axcclOptions_t* options, cudaStream_t stream);
ncclResult_t axcclRecv(int count, const axcclView_t* out, int peer, axcclChannel_t channel,
                       const axcclOptions_t* options, cudaStream_t stream);

/* A peer of axcclRecv, on host ranks: the rank whose message (of the options' tag) is there first. The receive
 * has its place among the messages from every rank; without a tag, among all calls on the channel. While no message
 * comes, ranks that die or fail are an error, and so is that all of them have left. ncclInvalidUsage: GPU ranks, or
 * inside a group, because the calls of a group are matched by their ranks. */
#define AXCCL_ANY_SOURCE (-1)

/* pairs: num_pairs times (source, target), ranks of the channel; the same on all of them, in any order. The target's
 * `out` becomes the source's `in`. A rank that is no target fills `out` with zeros. A rank is the source of at most one
 * pair and the target of at most one; both may be the same rank. `in` is ignored, and may be NULL, where the rank is no
 * source. Never in place. A rank in none of the pairs waits for no other. If the others pass pairs that name it, they
 * wait until AXCCL_TIMEOUT, or until its next call with them, which is a mismatch unless it matches theirs. Source:
 * StableHLO, collective_permute. Example, n = 3, pairs {0, 1, 1, 2}:
 *   rank 0: {1} -> {0}
 *   rank 1: {2} -> {1}
 *   rank 2: {3} -> {2} */
ncclResult_t axcclCollectivePermute(int count, const axcclView_t* in, const axcclView_t* out, const int64_t* pairs,
                                    int num_pairs, axcclChannel_t channel, const axcclOptions_t* options,
                                    cudaStream_t stream);

/* Ranks in no group of a channel may call axcclBroadcast, axcclReduce, axcclBroadcastFrom, axcclReduceTo and
 * axcclCollectivePermute on it. These calls fill their outputs with zeros, as in StableHLO. */

#ifdef __cplusplus
}
#endif

#endif /* AXCCL_VIEWS_H_ */
