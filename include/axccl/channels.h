/* Replica groups and channels: which ranks meet in a collective, and where. Pure C; part of axccl.h.
 *
 * Groups. A program runs on a grid of num_replicas x num_partitions processes; process (r, p) is rank
 * r * num_partitions + p. Compilers write groups of processes as lists of ids, and a mode defines what an id is. The
 * words are StableHLO's (specification, "Process groups"):
 *
 *   mode                           an id is     a list becomes                order in a group
 *   axcclCrossReplica              a replica    a group for each partition p  (r, p) for r in the list
 *   axcclCrossPartition            a partition  a group for each replica r    (r, p) for p in the list
 *   axcclCrossReplicaAndPartition  a replica    one group                     for each p: (r, p) for r in the list
 *   axcclFlattenedIds              a rank       one group                     as listed
 *
 * Example, 4 replicas x 2 partitions:
 *   axcclCrossReplica {0, 1, 2, 3} -> {0, 2, 4, 6}, {1, 3, 5, 7}
 *   axcclCrossPartition {0, 1} -> {0, 1}, {2, 3}, {4, 5}, {6, 7}
 *   axcclCrossReplicaAndPartition {0, 1}, {2, 3} -> {0, 2, 1, 3}, {4, 6, 5, 7}
 *
 * The position in a group is the rank in the group: it is the order in which parts are concatenated, and what a root
 * means. Creating groups is local; nothing is communicated.
 *
 * Channels. Calls on one channel run in the order in which they are made, which is the same on all its ranks. Calls on
 * different channels are independent: on streams of their own, or in one group, two ranks may make them in opposite
 * orders. Every communicator has a default channel of all its ranks, which NCCL's own collectives use. Others are
 * created for a group and an id. Creating one needs no new connections and does not wait; the first operation on it
 * waits until the other ranks of the group have created it and made theirs. Thousands may live at a time. Each takes a
 * few KiB before its first operation, and then as much scratch as its operations need, at most 1 MiB.
 *
 * Lives. A channel lives on a rank until it has been destroyed as often as it was created, and may then be created
 * again. All ranks of its group must do so equally often, and make the same calls in each of its lives. When they do so
 * is their own choice: no rank waits, and a rank may destroy its end as soon as it has made its last call, whatever the
 * others have yet to do. (A language with a garbage collector must not leave it to the collector whether an end is gone
 * before the next is created: give the next one another id, or destroy it by hand.) A call that waits for a rank whose
 * end is gone is ncclRemoteError. A call in a life that another rank has left, or not reached, is ncclInvalidUsage.
 * Both name the rank and the channel.
 *
 * Order. As in nccl.h, for each channel by itself: its collectives, and the messages between its ranks (axcclSend). If
 * ranks wait for each other on different channels, each in a call that the other has yet to make, they do so until
 * AXCCL_TIMEOUT: calls on different channels have no order, so either call could still come.
 *
 * Errors. ncclInvalidArgument for ids, meshes and handles that cannot be right; the text names the constraint of the
 * specification. All functions may be called from any thread.
 */
#ifndef AXCCL_CHANNELS_H_
#define AXCCL_CHANNELS_H_

#include <stddef.h>
#include <stdint.h>

#include "axccl/language.h"
#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- replica groups ---- */

typedef struct axcclGroups* axcclGroups_t;

typedef enum {
  axcclCrossReplica = 0,
  axcclCrossPartition = 1,
  axcclCrossReplicaAndPartition = 2,
  axcclFlattenedIds = 3
} axcclGroupMode_t;

/* The constraints that the lists must meet. axcclRulesAny: ids are in range, none appears twice, and no list is empty.
 * Lists may differ in length, padded with -1, and leave processes out; no lists at all mean one of all ids (in modes
 * with replica or partition ids). The others add what StableHLO demands of that operation. Its collective_broadcast and
 * collective_reduce may leave processes out; all_gather, reduce_scatter and all_to_all need lists of one length that
 * name every id. */
typedef enum {
  axcclRulesAny = 0,
  axcclRulesAllGather = 1,
  axcclRulesAllReduce = 2,
  axcclRulesReduceScatter = 3,
  axcclRulesAllToAll = 4,
  axcclRulesBroadcast = 5,
  axcclRulesReduce = 6
} axcclGroupRules_t;

/* Lists of ids. Rectangular: num_groups rows of group_size ids; -1 fills up short ones. Ragged: list i is
 * ids[offsets[i]] .. ids[offsets[i + 1] - 1], with num_groups + 1 offsets, and group_size is ignored. */
typedef struct axcclGroupSpec {
  size_t size; /* bytes of this struct: set by AXCCL_GROUP_SPEC_INITIALIZER */
  axcclGroupMode_t mode;
  axcclGroupRules_t rules;
  int64_t num_replicas; /* the grid; the product is the number of ranks of the communicator, 2^24 at most */
  int64_t num_partitions;
  const int64_t* ids;    /* read during the call only; NULL without lists */
  size_t num_groups;     /* lists */
  size_t group_size;     /* ids of a list */
  const size_t* offsets; /* NULL: rectangular */
  int64_t split_count;   /* not 0: every list must have this many ids (all_to_all) */
} axcclGroupSpec_t;

#define AXCCL_GROUP_SPEC_INITIALIZER \
  { sizeof(axcclGroupSpec_t), axcclFlattenedIds, axcclRulesAny, 1, 1, NULL, 0, 0, NULL, 0 }

/* *groups = the groups of `spec`. Example, of 4 ranks, 0 and 1 in this order and 3 and 2 in this order:
 *   int64_t ids[] = {0, 1, 3, 2};
 *   axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
 *   spec.num_partitions = 4, spec.ids = ids, spec.num_groups = 2, spec.group_size = 2;
 *   axcclGroupsCreate(&groups, &spec);
 */
ncclResult_t axcclGroupsCreate(axcclGroups_t* groups, const axcclGroupSpec_t* spec);

typedef struct axcclMeshAxis {
  const char* name;
  int64_t size;
} axcclMeshAxis_t;

/* A mesh of devices; each device is a rank. Source: StableHLO, "Process groups" by mesh axes; Shardy, meshes and
 * sub-axes. */
typedef struct axcclMesh {
  size_t size;                 /* bytes of this struct: set by AXCCL_MESH_INITIALIZER */
  const axcclMeshAxis_t* axes; /* major to minor */
  int num_axes;
  const int64_t* device_ids; /* the rank at each coordinate, row-major; NULL: 0, 1, 2, ... */
  size_t num_device_ids;
  int64_t num_ranks; /* of the communicator; 0: as many as the mesh has devices */
} axcclMesh_t;

#define AXCCL_MESH_INITIALIZER \
  { sizeof(axcclMesh_t), NULL, 0, NULL, 0, 0 }

/* An axis, or its sub-axis (pre_size)size: the middle one when the axis is seen as [pre_size, size, rest]. */
typedef struct axcclAxisRef {
  const char* name;
  int64_t pre_size; /* 1 for the whole axis */
  int64_t size;     /* 0 for the whole axis */
} axcclAxisRef_t;

/* *groups = the groups of ranks that differ only in their coordinates along `axes`, ordered by these; the first axis
 * varies slowest. No axes: every rank alone. Example, mesh {"x" 2, "y" 4}:
 *   "y" -> {0, 1, 2, 3}, {4, 5, 6, 7}
 *   "x" -> {0, 4}, {1, 5}, {2, 6}, {3, 7}
 *   "y":(1)2 -> {0, 2}, {1, 3}, {4, 6}, {5, 7} */
ncclResult_t axcclGroupsCreateFromMesh(axcclGroups_t* groups, const axcclMesh_t* mesh, const axcclAxisRef_t* axes,
                                       int num_axes);

/* Channels that were created with the groups keep working. */
ncclResult_t axcclGroupsDestroy(axcclGroups_t groups);

/* Set `size` = sizeof(axcclGroupsInfo_t) before the call; later versions append fields. */
typedef struct axcclGroupsInfo {
  size_t size;
  int num_ranks;
  int num_groups;
  int largest_group; /* ranks of it */
} axcclGroupsInfo_t;
ncclResult_t axcclGroupsGetInfo(axcclGroups_t groups, axcclGroupsInfo_t* info);

/* The *group of a rank, its *position there, and the *group_size. In no group: -1, -1 and 0. Any may be NULL. */
ncclResult_t axcclGroupsGetPlace(axcclGroups_t groups, int rank, int* group, int* position, int* group_size);

/* ranks[] = the ranks of a group in order, at most `max_ranks` of them; *num_ranks (may be NULL) = how many it has. */
ncclResult_t axcclGroupsGetRanks(axcclGroups_t groups, int group, int* ranks, int max_ranks, int* num_ranks);

/* ---- channels ---- */

typedef struct axcclChannel* axcclChannel_t;

/* Group order: a flag of a channel (for all calls on it) and of a single call (axcclOptions_t). The parameter
 * AXCCL_ORDER=group is that flag for all calls of a communicator, NCCL's included. A reduction is then the left fold of
 * the ranks' elements in the order of the group, ((x0 op x1) op x2) op ..., and gives the same bits for every
 * algorithm, memory, number of ranks in a process, division into lanes and chunks, and run:
 *
 *   float, double, complex   every operation rounds to the datatype (complex numbers: types.h)
 *   floats of 8 and 16 bits  every operation rounds to float, and the last result to the datatype
 *   avg of floats, complex   xr is rank r's element times 1/n in float (double: in double), rounded to the datatype
 *   PreMulSum of floats      xr is rank r's element times its scalar in float (double: in double), rounded likewise
 *   callbacks                accumulator x0, then operand x1, x2, ...; they need be neither associative nor commutative
 *   all others               integers, bool, max and min have the same bits in any order; the flag changes nothing
 *   NaN                      a result is a NaN in every run, or in none; its sign and payload are not specified
 *
 * Rounding is to nearest even; floats of 8 bits saturate. Calls that do not reduce ignore the flag. It leaves fewer
 * algorithms to choose from: those whose plans the verifier finds to fold in this order (`axccl-plan verify` shows
 * whether a plan does). If NCCL_ALGO names none of them, it is ignored (NCCL_DEBUG=INFO with
 * NCCL_DEBUG_SUBSYS=TUNING logs that). When some ranks ask for group order and some do not, all get ncclInvalidUsage
 * with both calls named. */
#define axcclGroupOrder 0x1u

/* The communicator's default channel. It lives as long as the communicator and needs no destroying. */
AXCCL_INLINE axcclChannel_t axcclDefaultChannel(ncclComm_t comm) { return AXCCL_POINTER_CAST(axcclChannel_t, comm); }

/* *channel = this rank's end of the channel `channel_id` of the rank's group. All ranks of the group create it. NULL
 * for `groups` means one group of all ranks in order, on a grid of one replica. Groups are for exactly the
 * communicator's ranks. A rank in no group gets a channel, too, on which it can only make the calls that views.h lists
 * at its end.
 *
 * If a channel of the same id and the same group is alive, the call gives the same channel, which must then be
 * destroyed once more. Groups are the same when they have the same ranks in the same order. Channels of one id and
 * different groups are different channels; ranks must create those that they share in the same order.
 *
 * ncclInvalidUsage: about 4096 are alive already, the same channel is alive with other flags, or the communicator
 * cannot take calls. Later, from the first operation on: on all ranks, when the groups under an id differ. If a rank
 * never creates its end, the others wait until AXCCL_TIMEOUT (10 min unless set). Example, all-reduce over groups of
 * two neighbours, of 4 ranks:
 *   int64_t ids[] = {0, 1, 2, 3};
 *   axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
 *   axcclGroups_t groups;
 *   axcclChannel_t channel;
 *   spec.num_partitions = 4, spec.ids = ids, spec.num_groups = 2, spec.group_size = 2;
 *   axcclGroupsCreate(&groups, &spec);
 *   axcclChannelCreate(&channel, comm, groups, 0, 0);
 *   axcclGroupsDestroy(groups);
 *   axcclAllReduce(1, &in, &out, ncclSum, channel, NULL, stream);
 *   axcclChannelDestroy(channel);
 */
ncclResult_t axcclChannelCreate(axcclChannel_t* channel, ncclComm_t comm, axcclGroups_t groups, int64_t channel_id,
                                unsigned int flags /* 0 or axcclGroupOrder */);

/* Calls made before still run. A channel whose communicator has been destroyed or aborted takes no more calls, but must
 * still be destroyed. */
ncclResult_t axcclChannelDestroy(axcclChannel_t channel);

/* Set `size` = sizeof(axcclChannelInfo_t) before the call; later versions append fields. */
typedef struct axcclChannelInfo {
  size_t size;
  int64_t channel_id; /* 0 for the default channel */
  int rank;           /* this rank in the communicator */
  int num_ranks;      /* ranks of the communicator */
  int group;          /* this rank's group among those that the channel was first created with; -1: in none */
  int group_rank;     /* position in it; -1: in none */
  int group_size;     /* ranks of it; 0: in none */
  int64_t replica_id; /* this rank's place on the grid */
  int64_t partition_id;
} axcclChannelInfo_t;
ncclResult_t axcclChannelGetInfo(axcclChannel_t channel, axcclChannelInfo_t* info);

#ifdef __cplusplus
}
#endif

#endif /* AXCCL_CHANNELS_H_ */
