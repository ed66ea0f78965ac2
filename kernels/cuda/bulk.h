// What a block copies in bulk with, where the processor has that (primitives.h): a ring of stages in shared memory. The
// first thread alone uses it: nobody else loads or stores the stages.
//
// A copy runs through the ring: loads are on their way to most of the stages while what has come leaves from the
// others. Between two copies all stages are free. The ring is made ready when a kernel starts, and counts its stages
// from then on, as the gates count how often they have opened.
//
// What orders memory. Data to be copied was acquired, or written by threads of the block, before a barrier of the block
// that is before the move, and so was what they read of the places that are written now. The first thread's BulkFence()
// comes after that barrier, so all of this is before the loads and the stores of the unit. The loads of a stage are
// before the opening of its gate, which the thread waits for before it begins the stores of that stage; both are of the
// unit. Those stores have read a stage before it is loaded again (AwaitBulkRead), and have written when the copy ends
// (AwaitBulkWritten; that they have read would not do): then the thread sees what they wrote, by the barrier after the
// move all threads do, and by the flag that is stored with release behind that barrier whoever acquires it. Loads have
// read what they are of by then, too, so it may be written again.
#pragma once

#include <cstdint>

#include "kernels/cuda/primitives.h"

#if defined(AXCCL_CUDA_HAS_BULK)

namespace axccl::kernels::cuda {

// Stages that are being loaded. While they are all but one, that one may still be read by its stores.
inline constexpr uint32_t kBulkAhead = kBulkStages - 2;

struct alignas(16) BulkRing {
  BulkGate gate[kBulkStages];   // first: nvcc 13.0 compiles no InShared() of what begins with bytes
  uint32_t at[kBulkStages];     // of the copy, what the stage has begins there
  uint32_t bytes[kBulkStages];  // that it has
  uint32_t used;                // stages so far
  alignas(16) uint8_t stage[kBulkStages][kBulkStageBytes];

  // By one thread, when a kernel starts.
  AXCCL_DEVICE void Begin() {
    used = 0;
    for (uint32_t i = 0; i < kBulkStages; ++i) InitGate(&gate[i]);
  }
  static AXCCL_DEVICE uint32_t Index(uint32_t use) { return use % kBulkStages; }
  static AXCCL_DEVICE uint32_t Parity(uint32_t use) { return use / kBulkStages % 2; }
};

}  // namespace axccl::kernels::cuda

#endif
