// What a block needs to copy in bulk, if the processor supports it (primitives.h): a ring of stages in shared memory.
// Only the first thread uses it; no other thread loads or stores the stages.
//
// A copy streams through the ring: most of the stages are being loaded while the data of the others is stored. Between
// two copies all stages are free. The ring is initialised when a kernel starts, and counts its stages from then on, as
// the gates count how often they have opened.
//
// Memory order. Threads of the block have acquired or written the data to be copied before a barrier that precedes the
// move; so have they finished reading the places that are now written. The first thread's BulkFence() comes after that
// barrier, so all of this precedes the loads and stores of the bulk unit. The loads of a stage precede the opening of
// its gate, and the thread waits for the gate before it starts the stores of that stage. Those stores have read a stage
// before it is loaded again (AwaitBulkRead), and have written when the copy ends (AwaitBulkWritten; having read would
// not be enough). Then the thread sees what they wrote; so do all threads after the barrier that follows the move, and
// every thread that acquires the flag that is stored with release after that barrier. The loads have also finished by
// then, so what they read may be overwritten.
#pragma once

#include <cstdint>

#include "kernels/cuda/primitives.h"

#if defined(AXCCL_CUDA_HAS_BULK)

namespace axccl::kernels::cuda {

// Stages that are being loaded. When all other stages but one are, the stores may still read that one.
inline constexpr uint32_t kBulkAhead = kBulkStages - 2;

struct alignas(16) BulkRing {
  BulkGate gate[kBulkStages];   // first: nvcc 13.0 compiles no InShared() of a struct that begins with bytes
  uint32_t at[kBulkStages];     // offset in the copy of a stage's data
  uint32_t bytes[kBulkStages];  // bytes of a stage's data
  uint32_t used;                // stages so far
  alignas(16) uint8_t stage[kBulkStages][kBulkStageBytes];

  // Called by one thread when a kernel starts.
  AXCCL_DEVICE void Begin() {
    used = 0;
    for (uint32_t i = 0; i < kBulkStages; ++i) InitGate(&gate[i]);
  }
  static AXCCL_DEVICE uint32_t Index(uint32_t use) { return use % kBulkStages; }
  static AXCCL_DEVICE uint32_t Parity(uint32_t use) { return use / kBulkStages % 2; }
};

}  // namespace axccl::kernels::cuda

#endif
