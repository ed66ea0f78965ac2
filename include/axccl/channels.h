/* Channels: where the ranks of a group meet. Pure C; part of axccl.h.
 *
 * Calls on one channel are carried out in the order in which they are made, the same on all its ranks. Calls on
 * different channels have nothing to do with each other. Every communicator has a default channel of all its ranks, on
 * which NCCL's own collectives take place.
 */
#ifndef AXCCL_CHANNELS_H_
#define AXCCL_CHANNELS_H_

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct axcclChannel* axcclChannel_t;

/* The communicator's default channel. It lives as long as the communicator and needs no destroying. */
static inline axcclChannel_t axcclDefaultChannel(ncclComm_t comm) { return (axcclChannel_t)(void*)comm; }

#ifdef __cplusplus
}
#endif

#endif /* AXCCL_CHANNELS_H_ */
