// What a block needs to copy in bulk, if the processor supports it (primitives.h): a ring of stages in shared memory
// for each of a few threads, the *issuers*.
//
// The issuers take the data of a copy in turns, a stage each. Each streams its part through a ring of its own: most of
// the stages are being loaded while the data of the others is stored. No thread loads or stores the stages, and no
// other thread uses what belongs to an issuer, so issuers do not wait for each other. Between two copies all stages are
// free. The rings are initialised when a kernel starts, and count their stages from then on, as the gates count how
// often they have opened. A block whose launch has asked for no dynamic shared memory has none (ring.h has the sizes).
//
// Memory order. Threads of the block have acquired or written the data to be copied before a barrier that precedes the
// move; so have they finished reading the places that are now written, and the first thread has initialised the gates.
// An issuer's BulkFence() comes after that barrier, so all of this precedes its loads and stores of the bulk unit. The
// loads of a stage precede the opening of its gate, and the issuer waits for the gate before it starts the stores of
// that stage. Those stores have read a stage before it is loaded again (AwaitBulkRead), and have written when the copy
// ends (AwaitBulkWritten; having read would not be enough): each issuer waits for its own. Then it sees what they
// wrote; so do all threads after the barrier that follows the move, and every thread that acquires the flag that is
// stored with release after that barrier. The loads have also finished by then, so what they read may be overwritten.
#pragma once

#include <cstdint>

#include "kernels/cuda/primitives.h"
#include "kernels/cuda/ring.h"

#if defined(AXCCL_CUDA_HAS_BULK)

namespace axccl::kernels::cuda {

// A small block has one issuer.
AXCCL_DEVICE uint32_t NumBulkIssuers() { return NumThreads() > (kBulkIssuers - 1) * kIssuerThreads ? kBulkIssuers : 1; }
AXCCL_DEVICE bool IsBulkIssuer() {
  return ThreadIndex() % kIssuerThreads == 0 && ThreadIndex() / kIssuerThreads < NumBulkIssuers();
}

// The stages of one issuer.
struct alignas(16) IssuerRing {
  BulkGate gate[kBulkStages];   // first: nvcc 13.0 compiles no InShared() of a struct that begins with bytes
  uint32_t at[kBulkStages];     // offset in the copy of a stage's data
  uint32_t bytes[kBulkStages];  // bytes of a stage's data
  uint32_t used;                // stages so far

  static AXCCL_DEVICE uint32_t Index(uint32_t use) { return use % kBulkStages; }
  static AXCCL_DEVICE uint32_t Parity(uint32_t use) { return use / kBulkStages % 2; }
};

struct alignas(16) BulkRing {
  IssuerRing of_issuer[kBulkIssuers];
  uint8_t* stages;
  uint32_t stage_bytes;  // 0: there is no ring

  // Called by one thread when a kernel starts.
  AXCCL_DEVICE void Begin() {
    stages = DynamicShared();
    stage_bytes = DynamicSharedBytes() / (kBulkIssuers * kBulkStages);
    for (IssuerRing& ring : of_issuer) {
      ring.used = 0;
      for (BulkGate& gate : ring.gate) InitGate(&gate);
    }
  }
  AXCCL_DEVICE uint8_t* Stage(uint32_t issuer, uint32_t index) const {
    return stages + (issuer * kBulkStages + index) * stage_bytes;
  }
};

}  // namespace axccl::kernels::cuda

#endif
