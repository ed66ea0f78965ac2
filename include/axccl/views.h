/* Collectives on tensor views. Pure C; part of axccl.h.
 *
 * A view is a tensor in memory: element (i0, i1, ...) is at data + (i0 * strides[0] + i1 * strides[1] + ...) elements.
 * Strides may be of any order and sign, leave gaps and, on inputs, be 0 (the same element again and again); those of
 * dimensions of size 1 mean nothing. Sizes may be 0; then data may be NULL. A view without dimensions has one element.
 *
 * Bytes go from the strided source to the strided destination; there is no transpose and no packing. Memory of
 * ncclMemAlloc, or of the same process, is reached directly; other memory of other processes by way of shared slots.
 *
 * Every call takes `count` operands, in[0..count) and out[0..count), which go together as one operation: one plan, one
 * launch. Their shapes may differ, and where nothing is reduced their datatypes, too. count = 1 is the plain form.
 *
 * The calls are collective over the ranks of a channel (channels.h) and ordered on it like NCCL's on a communicator;
 * they mix with NCCL's: on any stream, in groups, on blocking and non-blocking communicators. n is the number of ranks
 * of the channel, r a rank in it, 0..n-1; so are roots. Structs, sizes and strides are read before a call returns; the
 * data when the stream gets there. Dimensions may be negative and count from the end then: -1 is the last. On all
 * ranks, datatypes, dimensions, operators, roots and sizes must be the same; strides may differ.
 *
 * In place. Input and output may have nothing in common, or be in place: all-reduce, broadcast and reduce with the same
 * address and strides; all-gather and gather with the input being this rank's part of the output, reduce-scatter and
 * scatter with the output being this rank's part of the input. All-to-all is never in place.
 *
 * Limits. Of elements whose size does not divide 16 (axcclBits(3), 5, 6, 7 and 9 to 15) one operand a call can be
 * reduced, and a list may have such operands of AXCCL_MAX_DIMS - 1 dimensions at most.
 *
 * Errors. ncclInvalidArgument, at once and with nothing written: a dimension out of range, a size that n does not
 * divide, shapes or datatypes that do not fit each other, an operator that the datatype does not have (types.h), an
 * output two of whose indices reach one element, input and output that overlap in another way than above, operands of a
 * list that overlap each other, a missing operand, NULL data, more than AXCCL_MAX_DIMS dimensions, more than 2^63 - 1
 * bytes from first to last. ncclInvalidUsage, on all ranks and naming both calls, when ranks call
 * different things or wait for each other because of their order (nccl.h); a call on views and one of NCCL's are never
 * the same. ncclGetLastError names the call, the operand, the dimension (as StableHLO does) and the values.
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
  const int64_t* sizes;   /* elements along each dimension; may be NULL without dimensions */
  const int64_t* strides; /* elements from one index to the next, for each dimension; NULL: row-major without gaps */
} axcclView_t;

#define AXCCL_VIEW_INITIALIZER \
  { sizeof(axcclView_t), NULL, ncclFloat32, 0, NULL, NULL }

/* How a call is to be carried out. NULL stands for AXCCL_OPTIONS_INITIALIZER. */
typedef struct axcclOptions {
  size_t size;        /* bytes of this struct: set by AXCCL_OPTIONS_INITIALIZER */
  unsigned int flags; /* 0 or axcclGroupOrder (channels.h) */
  /* Operands are carried out in as many operations as keep the blocks of each below so many bytes (an operand larger
   * than that is one of its own); 0: all in one. The same on all ranks. */
  size_t bucket_bytes;
  /* Of reductions with ncclSum of floats or complex numbers: what the result is multiplied by before it is rounded
   * (floats of less than 64 bits: in float); 0: by nothing; NaN is refused. The same on all ranks. Example, mean
   * gradients of n ranks: 1.0 / n */
  double scale;
} axcclOptions_t;

#define AXCCL_OPTIONS_INITIALIZER \
  { sizeof(axcclOptions_t), 0, 0, 0.0 }

/* The inputs of all ranks, concatenated along `dim` in order of ranks: sizes of `out` are those of `in`, n times along
 * dim. Source: StableHLO, all_gather. Example, n = 2, dim = 1, in [2, 2] -> out [2, 4]:
 *   rank 0 {{1, 2}, {3, 4}}, rank 1 {{5, 6}, {7, 8}} -> on both {{1, 2, 5, 6}, {3, 4, 7, 8}} */
ncclResult_t axcclAllGather(int count, const axcclView_t* in, const axcclView_t* out, int dim, axcclChannel_t channel,
                            const axcclOptions_t* options, cudaStream_t stream);

/* The inputs of all ranks are reduced with `op`, and of the result rank r gets part r of n along `dim`: sizes of `out`
 * are those of `in`, 1/n along dim. Source: StableHLO, reduce_scatter. Example, n = 2, dim = 1, ncclSum,
 * in [2, 4] -> out [2, 2]:
 *   rank 0 {{1, 2, 3, 4}, {5, 6, 7, 8}}, rank 1 {{9, 10, 11, 12}, {13, 14, 15, 16}}
 *   -> rank 0 {{10, 12}, {18, 20}}, rank 1 {{14, 16}, {22, 24}} */
ncclResult_t axcclReduceScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim, ncclRedOp_t op,
                                axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* The inputs of all ranks, reduced with `op`; sizes of `out` are those of `in`. Source: StableHLO, all_reduce. Example,
 * n = 2, ncclSum, in [2, 2] -> out [2, 2], `out` with strides {1, 2}, so that {11, 33, 22, 44} is what lies in memory:
 *   rank 0 {{1, 2}, {3, 4}}, rank 1 {{10, 20}, {30, 40}} -> on both {{11, 22}, {33, 44}} */
ncclResult_t axcclAllReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                            axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* Rank r gets part r of n along `split_dim` of every input, concatenated along `concat_dim` in order of ranks: sizes of
 * `out` are those of `in`, 1/n along split_dim, then n times along concat_dim. Source: StableHLO, all_to_all. Example,
 * n = 2, split_dim = 1, concat_dim = 0, in [2, 4] -> out [4, 2]:
 *   rank 0 {{1, 2, 3, 4}, {5, 6, 7, 8}}, rank 1 {{9, 10, 11, 12}, {13, 14, 15, 16}}
 *   -> rank 0 {{1, 2}, {5, 6}, {9, 10}, {13, 14}}, rank 1 {{3, 4}, {7, 8}, {11, 12}, {15, 16}} */
ncclResult_t axcclAllToAll(int count, const axcclView_t* in, const axcclView_t* out, int split_dim, int concat_dim,
                           axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* As axcclAllGather, on rank `root` only. Elsewhere `out` is ignored and may be NULL. Source: StableHLO, all_gather (it
 * has no gather). Example, n = 2, dim = 0, root = 1, in [1, 2] -> out [2, 2] on rank 1:
 *   rank 0 {{1, 2}}, rank 1 {{3, 4}} -> rank 1 {{1, 2}, {3, 4}} */
ncclResult_t axcclGather(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                         axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* Rank r gets part r of n along `dim` of root's input: sizes of `out` are those of `in`, 1/n along dim. On other ranks
 * than `root`, `in` is ignored and may be NULL. Source: StableHLO, reduce_scatter without the reduction (it has no
 * scatter). Example, n = 2, dim = 1, root = 0, in [2, 2] on rank 0 -> out [2, 1]:
 *   rank 0 {{1, 2}, {3, 4}} -> rank 0 {{1}, {3}}, rank 1 {{2}, {4}} */
ncclResult_t axcclScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                          axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* Root's input, on every rank; sizes of `out` are those of `in`. On other ranks than `root`, `in` is ignored and may be
 * NULL. Source: StableHLO, collective_broadcast. Example, n = 2, root = 0, in [2] with stride 0 on rank 0 -> out [2]:
 *   rank 0 {7, 7}, which is one element in memory -> on both {7, 7} */
ncclResult_t axcclBroadcast(int count, const axcclView_t* in, const axcclView_t* out, int root, axcclChannel_t channel,
                            const axcclOptions_t* options, cudaStream_t stream);

/* As axcclAllReduce, on rank `root` only. Elsewhere `out` may be NULL; if it is not, it is filled with zeros. Source:
 * StableHLO, collective_reduce. Example, n = 2, ncclMax, root = 0, in [2] -> out [2]:
 *   rank 0 {1, 5}, rank 1 {4, 2} -> rank 0 {4, 5}, rank 1 {0, 0} */
ncclResult_t axcclReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op, int root,
                         axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* ---- parts of different sizes ----
 *
 * Extents are numbers of rows, which is what one index of `dim` selects: extents[o * n + r] are those of rank r in
 * operand o. They may be 0. An operand may have more rows than its parts take: parts lie one after the other from its
 * first row on, and the rest is neither read nor written. Extents are read before a call returns, except where it says
 * otherwise. Ranks that give extents which do not fit each other get ncclInvalidUsage, all of them and before anything
 * is written. bucket_bytes has no effect, and NCCL_ALGO neither: direct moves where memory is mapped, oneshot
 * elsewhere. Source: MPI-4.1, sections 6.5-6.10 (MPI_Allgatherv and its siblings), with rows of a view in place of
 * elements. */

/* Rank r has extents[r] rows; all of them go to every rank. In place: the input is this rank's rows of the output.
 * Example, n = 2, dim = 0, extents {1, 2}: rank 0 {{1, 2}}, rank 1 {{3, 4}, {5, 6}}
 *   -> on both {{1, 2}, {3, 4}, {5, 6}} */
ncclResult_t axcclAllGatherV(int count, const axcclView_t* in, const axcclView_t* out, int dim, const int64_t* extents,
                             axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* The inputs of all ranks are reduced, and rank r gets extents[r] rows of the result. Example, n = 2, dim = 0, ncclSum,
 * extents {1, 2}: rank 0 {1, 2, 3}, rank 1 {10, 20, 30} -> rank 0 {11}, rank 1 {22, 33} */
ncclResult_t axcclReduceScatterV(int count, const axcclView_t* in, const axcclView_t* out, int dim, ncclRedOp_t op,
                                 const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                                 cudaStream_t stream);

/* As axcclAllGatherV, on rank `root` only. */
ncclResult_t axcclGatherV(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                          const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                          cudaStream_t stream);

/* Rank r gets extents[r] rows of root's input. */
ncclResult_t axcclScatterV(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                           const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                           cudaStream_t stream);

/* Rank r gets send_extents[r] rows of this rank's input, and receive_extents[r] of this rank's output are from rank r.
 * Example, n = 2, dim = 0, rank 0 sends {1, 2} and receives {1, 1}, rank 1 sends {1, 1} and receives {2, 1}:
 *   rank 0 {1, 2, 3}, rank 1 {4, 5} -> rank 0 {1, 4}, rank 1 {2, 3, 5} */
ncclResult_t axcclAllToAllV(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                            const int64_t* send_extents, const int64_t* receive_extents, axcclChannel_t channel,
                            const axcclOptions_t* options, cudaStream_t stream);

/* As axcclAllToAllV, with every part at a place of its own, and all four arrays (n values, the same for all operands)
 * read when the stream gets there: rank r gets send_extents[r] rows of this rank's input from row input_offsets[r] on,
 * and they are written into *its* output from row output_offsets[r] on. receive_extents[r] come from rank r. Rows of
 * the output that nobody sends keep what they hold. Parts that leave an operand, or overlap in an output, are
 * ncclInvalidUsage as above. Source: JAX, lax.ragged_all_to_all. Example, n = 2, dim = 0, out {0, 0, 0, 0} on both:
 *   rank 0 {1, 2, 2}: input_offsets {0, 1}, send_extents {1, 2}, output_offsets {0, 0}, receive_extents {1, 1}
 *   rank 1 {3, 4, 0}: input_offsets {0, 1}, send_extents {1, 1}, output_offsets {1, 2}, receive_extents {2, 1}
 *   -> rank 0 {1, 3, 0, 0}, rank 1 {2, 2, 4, 0} */
ncclResult_t axcclRaggedAllToAll(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                 const int64_t* input_offsets, const int64_t* send_extents,
                                 const int64_t* output_offsets, const int64_t* receive_extents, axcclChannel_t channel,
                                 const axcclOptions_t* options, cudaStream_t stream);

/* Operand o of rank roots[o], on every rank; in[o] is needed on all of them. roots: `count` values, read when the
 * stream gets there, the same on all ranks. Source: StableHLO, collective_broadcast with a dynamic root. Example, n =
 * 2, roots {1, 0}: rank 0 {1}, {2}, rank 1 {3}, {4} -> on both {3}, {2} */
ncclResult_t axcclBroadcastFrom(int count, const axcclView_t* in, const axcclView_t* out, const int32_t* roots,
                                axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream);

/* The reduction of operand o, on rank roots[o]; zeros on the others. roots as above. Source: StableHLO,
 * collective_reduce with a dynamic root. Example, n = 2, ncclSum, roots {1, 0}: rank 0 {1}, {2}, rank 1 {3}, {4}
 *   -> rank 0 {0}, {6}, rank 1 {4}, {0} */
ncclResult_t axcclReduceTo(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                           const int32_t* roots, axcclChannel_t channel, const axcclOptions_t* options,
                           cudaStream_t stream);

/* ---- between two ranks ---- */

/* in[0..count) go to rank `peer`, whose axcclRecv of the same channel gives views of the same shapes and datatypes;
 * they become its out[0..count). Messages from one rank to another on one channel arrive in the order in which they are
 * sent. As with ncclSend, either call may wait for the other, so what two ranks exchange belongs in one ncclGroup; a
 * message to oneself does, too. Source: StableHLO, send and recv. Example: rank 0 sends {{1, 2}, {3, 4}} to rank 1,
 * which receives into [2, 2] with strides {1, 2}: {1, 3, 2, 4} is what lies in memory there. */
ncclResult_t axcclSend(int count, const axcclView_t* in, int peer, axcclChannel_t channel,
                       const axcclOptions_t* options, cudaStream_t stream);
ncclResult_t axcclRecv(int count, const axcclView_t* out, int peer, axcclChannel_t channel,
                       const axcclOptions_t* options, cudaStream_t stream);

/* pairs: num_pairs times (source, target), ranks of the channel; the same on all of them, in any order. Target's `out`
 * becomes source's `in`; `out` of a rank that is no target is filled with zeros. A rank is the source of one pair at
 * most, and the target of one; both may be the same rank. `in` is ignored, and may be NULL, where the rank is no
 * source. Never in place. A rank in none of the pairs waits for nobody; others that passed pairs with it wait until
 * AXCCL_TIMEOUT, or for its next call with them, which is a mismatch unless it goes with theirs. Source: StableHLO,
 * collective_permute. Example, n = 3, pairs {0, 1, 1, 2}: in {1}, {2}, {3} on ranks 0, 1, 2 -> out {0}, {1}, {2} */
ncclResult_t axcclCollectivePermute(int count, const axcclView_t* in, const axcclView_t* out, const int64_t* pairs,
                                    int num_pairs, axcclChannel_t channel, const axcclOptions_t* options,
                                    cudaStream_t stream);

/* Ranks in no group of a channel may call axcclBroadcast, axcclReduce, axcclBroadcastFrom, axcclReduceTo and
 * axcclCollectivePermute on it: their outputs are filled with zeros, as StableHLO has it. */

#ifdef __cplusplus
}
#endif

#endif /* AXCCL_VIEWS_H_ */
