/* Replica groups and channels: which ranks meet in a collective, and where. Pure C; part of axccl.h.
 *
 * Groups. A program runs on a grid of num_replicas x num_partitions processes; process (r, p) is rank
 * r * num_partitions + p. Compilers write groups of processes as lists of ids, and a mode says what an id is. The words
 * are StableHLO's (specification, "Process groups"):
 *
 *   mode                           an id is     a list becomes                order in a group
 *   axcclCrossReplica              a replica    a group for each partition p  (r, p) for r in the list
 *   axcclCrossPartition            a partition  a group for each replica r    (r, p) for p in the list
 *   axcclCrossReplicaAndPartition  a replica    one group                     for each p: (r, p) for r in the list
 *   axcclFlattenedIds              a rank       one group                     as listed
 *
 * Example, 4 replicas x 2 partitions: the list {0, 1, 2, 3} cross_replica is two groups, ranks 0 2 4 6 and 1 3 5 7; the
 * list {0, 1} cross_partition is four groups, 0 1, 2 3, 4 5 and 6 7; the lists {0, 1}, {2, 3}
 * cross_replica_and_partition are two groups, 0 2 1 3 and 4 6 5 7. The position in a group is the rank in the group:
 * the order in which parts are concatenated, and what a root means. Groups are computed locally and say nothing to
 * anybody.
 *
 * Channels. Calls on one channel are carried out in the order in which they are made, the same on all its ranks. Calls
 * on different channels have nothing to do with each other: on streams of their own, or in one group, two ranks may
 * make them in opposite orders. Every communicator has a default channel of all its ranks, on which NCCL's own
 * collectives take place; others are created for a group and an id. This needs no new connections and does not wait for
 * anybody: a channel's first operation waits for the others of the group to create it and to get there. Thousands may
 * live at a time; each holds a few KiB before its first operation, and scratch as its operations need it, 1 MiB at
 * most.
 *
 * Lives. A channel lives on a rank until it has been destroyed as often as it was created, and may then be created
 * again. All ranks of its group must do so equally often, and make the same calls in each of its lives. When they do it
 * is theirs: nobody waits, and a rank may destroy its end as soon as it has made its last call, whatever others have
 * yet to do. (A language that collects garbage must not leave it to its collector whether an end is gone before the
 * next is created: give the next one another id, or destroy it by hand.) A call that waits for a rank whose end is gone
 * is ncclRemoteError, and one in a life that another rank is past or has not come to is ncclInvalidUsage, both with the
 * rank and the channel named.
 *
 * Order. As in nccl.h, for each channel by itself: its collectives, and the messages between its ranks (axcclSend).
 * Ranks that wait for each other on different channels, each in one that the other has yet to come to, do so until
 * AXCCL_TIMEOUT: calls on different channels are in no order, so either could still come.
 *
 * Errors. ncclInvalidArgument for ids, meshes and handles that cannot be right; the text names the constraint of the
 * specification. All functions may be called from any thread.
 */
#ifndef AXCCL_CHANNELS_H_
#define AXCCL_CHANNELS_H_

#include <stddef.h>
#include <stdint.h>

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

/* Whose constraints the lists must meet. axcclRulesAny: ids in range, none twice, no empty list; lists may be of
 * different lengths, padded with -1, and leave processes out; no lists at all mean one of all ids (in modes with
 * replica or partition ids). The others: what StableHLO demands of that operation, besides. Its collective_broadcast
 * and collective_reduce may leave processes out; all_gather, reduce_scatter and all_to_all want lists of one length
 * that name every id. */
typedef enum {
  axcclRulesAny = 0,
  axcclRulesAllGather = 1,
  axcclRulesAllReduce = 2,
  axcclRulesReduceScatter = 3,
  axcclRulesAllToAll = 4,
  axcclRulesBroadcast = 5,
  axcclRulesReduce = 6
} axcclGroupRules_t;

/* Lists of ids. Rectangular: num_groups rows of group_size ids, -1 filling up short ones. Ragged: list i is
 * ids[offsets[i]] .. ids[offsets[i + 1] - 1], with num_groups + 1 offsets; group_size is ignored then. */
typedef struct axcclGroupSpec {
  size_t size; /* bytes of this struct: set by AXCCL_GROUP_SPEC_INITIALIZER */
  axcclGroupMode_t mode;
  axcclGroupRules_t rules;
  int64_t num_replicas; /* the grid; the product is the number of ranks of the communicators it is for, 2^24 at most */
  int64_t num_partitions;
  const int64_t* ids;    /* read during the call only; NULL without lists */
  size_t num_groups;     /* lists */
  size_t group_size;     /* ids of a list */
  const size_t* offsets; /* NULL: rectangular */
  int64_t split_count;   /* not 0: every list must have so many ids (all_to_all) */
} axcclGroupSpec_t;

#define AXCCL_GROUP_SPEC_INITIALIZER \
  { sizeof(axcclGroupSpec_t), axcclFlattenedIds, axcclRulesAny, 1, 1, NULL, 0, 0, NULL, 0 }

/* Example, ranks 0 and 1 in this and ranks 2 and 3 in opposite order, of 4:
 *   int64_t ids[] = {0, 1, 3, 2};
 *   axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
 *   spec.num_partitions = 4, spec.ids = ids, spec.num_groups = 2, spec.group_size = 2;
 *   axcclGroupsCreate(&groups, &spec); */
ncclResult_t axcclGroupsCreate(axcclGroups_t* groups, const axcclGroupSpec_t* spec);

typedef struct axcclMeshAxis {
  const char* name;
  int64_t size;
} axcclMeshAxis_t;

/* A mesh of devices, of which each is a rank. Source: StableHLO, "Process groups" by mesh axes; Shardy, meshes and
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

/* An axis, or the sub-axis (pre_size)size of it: the axis seen as [pre_size, size, rest], and the middle meant. */
typedef struct axcclAxisRef {
  const char* name;
  int64_t pre_size; /* 1 for the whole axis */
  int64_t size;     /* 0 for the whole axis */
} axcclAxisRef_t;

/* The groups of ranks that differ in nothing but the coordinates along `axes`, ordered by those, the first slowest. No
 * axes: every rank alone. Example, mesh {"x" 2, "y" 4}: "y" gives 0 1 2 3 and 4 5 6 7; "x" gives 0 4, 1 5, 2 6 and 3 7;
 * the sub-axis "y":(1)2 gives 0 2, 1 3, 4 6 and 5 7. */
ncclResult_t axcclGroupsCreateFromMesh(axcclGroups_t* groups, const axcclMesh_t* mesh, const axcclAxisRef_t* axes,
                                       int num_axes);

/* Channels that were created with the groups stay. */
ncclResult_t axcclGroupsDestroy(axcclGroups_t groups);

/* Set `size` = sizeof(axcclGroupsInfo_t) before the call; later versions append fields. */
typedef struct axcclGroupsInfo {
  size_t size;
  int num_ranks;
  int num_groups;
  int largest_group; /* ranks of it */
} axcclGroupsInfo_t;
ncclResult_t axcclGroupsGetInfo(axcclGroups_t groups, axcclGroupsInfo_t* info);

/* Where a rank is: *group and *position, -1 when it is in no group, and the *group_size, 0 then. Any may be NULL. */
ncclResult_t axcclGroupsGetPlace(axcclGroups_t groups, int rank, int* group, int* position, int* group_size);

/* The ranks of a group in order, as many as `max_ranks` of them; *num_ranks (may be NULL) is how many there are. */
ncclResult_t axcclGroupsGetRanks(axcclGroups_t groups, int group, int* ranks, int max_ranks, int* num_ranks);

/* ---- channels ---- */

typedef struct axcclChannel* axcclChannel_t;

/* Group order: a flag of a channel (for all calls on it) and of a single call (axcclOptions_t). The parameter
 * AXCCL_ORDER=group is that flag for all calls of a communicator, NCCL's, too. A reduction is then the left fold of the
 * ranks' elements in the order of the group, ((x0 op x1) op x2) op ..., and gives the same bits for every algorithm,
 * memory, number of ranks in a process, cutting into lanes and chunks, and time it is run:
 *
 *   float, double, complex   every operation rounds to the datatype (complex numbers: types.h)
 *   floats of 8 and 16 bits  every operation rounds to float, and the last result to the datatype
 *   avg of floats, complex   xr is rank r's element times 1/n in float (double: in double), rounded to the datatype
 *   PreMulSum of floats      xr is rank r's element times its scalar in float (double: in double), rounded likewise
 *   callbacks                accumulator x0, then operand x1, x2, ...; they need be neither associative nor commutative
 *   all others               integers, bool, max and min have the same bits in any order; the flag changes nothing
 *
 * Rounding is to nearest even; floats of 8 bits saturate. What does not reduce ignores the flag. It leaves fewer
 * algorithms to choose from: those whose plans the verifier finds to fold so, which `axccl-plan verify` tells of any.
 * Where NCCL_ALGO names none of them it is ignored (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=TUNING says so). When some ranks
 * ask for it and some do not, all get ncclInvalidUsage with both calls named. */
#define axcclGroupOrder 0x1u

/* The communicator's default channel. It lives as long as the communicator and needs no destroying. */
static inline axcclChannel_t axcclDefaultChannel(ncclComm_t comm) { return (axcclChannel_t)(void*)comm; }

/* This rank's end of the channel `channel_id` of the group it is in. All ranks of the group create it; NULL for
 * `groups` is one group of all ranks in order, on a grid of one replica. Groups are for exactly the communicator's
 * ranks. A rank in no group gets a channel, too, on which it can call nothing.
 *
 * Creating a channel of the same id and the same group again while it lives gives the same channel, which then needs to
 * be destroyed as often. Groups are the same when they have the same ranks in the same order. Channels of one id and
 * different groups are different channels; ranks must create those that they share in the same order.
 *
 * ncclInvalidUsage: about 4096 live already, the same channel lives with other flags, or the communicator cannot take
 * calls. Later, from the first operation: on all
 * ranks, when the groups under an id differ. A rank that never creates its end leaves the others waiting until
 * AXCCL_TIMEOUT (10 min unless set). Example, all-reduce over groups of two neighbours:
 *   axcclChannelCreate(&channel, comm, groups, 0, 0);
 *   axcclAllReduce(1, &in, &out, ncclSum, channel, NULL, stream);
 *   axcclChannelDestroy(channel); */
ncclResult_t axcclChannelCreate(axcclChannel_t* channel, ncclComm_t comm, axcclGroups_t groups, int64_t channel_id,
                                unsigned int flags /* 0 or axcclGroupOrder */);

/* Calls made before are still carried out. A channel whose communicator has been destroyed or aborted takes no calls
 * any more, but must be destroyed all the same. */
ncclResult_t axcclChannelDestroy(axcclChannel_t channel);

/* Set `size` = sizeof(axcclChannelInfo_t) before the call; later versions append fields. */
typedef struct axcclChannelInfo {
  size_t size;
  int64_t channel_id; /* 0 for the default channel */
  int rank;           /* of the communicator */
  int num_ranks;
  int group;      /* index of this rank's group, -1: in none. Of the groups that the channel was first created with */
  int group_rank; /* position in it, -1 */
  int group_size; /* 0 */
  int64_t replica_id; /* this rank's place on the grid */
  int64_t partition_id;
} axcclChannelInfo_t;
ncclResult_t axcclChannelGetInfo(axcclChannel_t channel, axcclChannelInfo_t* info);

#ifdef __cplusplus
}
#endif

#endif /* AXCCL_CHANNELS_H_ */
