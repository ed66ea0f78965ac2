// The interpreter's data in the shared memory of a block: the state of its strands, and the context of the running
// strand.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/box.h"
#include "kernels/cuda/bulk.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/movers.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

enum class Stage : uint8_t {
  kNew,
  kMeeting,  // the members, before the first operation: lane 0 looks for them, the other lanes wait for lane 0
  kBarrier,  // the barrier before the operation: lane 0 runs it, the other lanes wait for lane 0
  kMain,
  kEnded,
};

AXCCL_DEVICE bool IsFirst() { return ThreadIndex() == 0; }

// The point at which a strand continues.
struct Strand {
  uint64_t offset;  // elements of the part that are done
  uint32_t turn;    // of the stage
  uint32_t step;
  uint16_t part;
  Stage stage;
};

inline constexpr uint32_t kStepWindow = 48;

// The context of the running strand, read from device memory once for each of its visits.
struct Context {
  Task task;
  const Program* program;  // of the stage
  const Step* steps;       // of its lane
  uint64_t turns;          // of the stage
  uint64_t sequence;
  uint64_t turn;            // first turn of the stage
  uint64_t barriers;        // value of State::barriers_done from which on the stage kMain may begin; 0: no barrier
  uint64_t divisor;         // for final results
  Factor one;               // changes nothing
  Factor post;              // for final results, if `scales_result`
  Factor own_factor;        // factor of the own input, and in an average of every input
  uint32_t signature;       // of signals
  uint32_t next_signature;  // in a barrier: the signature of the operation that follows it
  uint32_t lane, num_steps;
  uint32_t strands;  // of the task
  uint32_t element;  // bytes of an element
  uint32_t window_begin, window_size;
  bool scales;  // inputs are multiplied as they are read
  bool scales_result;
  Packing packing;  // for slots of the stage
  bool has_steps;   // the program has such a lane
  bool broken;      // the channel was broken before the strand began
  bool unmet;
  bool multicast;  // the program's slots are in Channel::multicast
  bool grown;      // they are in grown scratch
  Step window[kStepWindow];
};

// The data of a step that one move processes.
struct Portion {
  uint64_t turn;
  uint64_t begin, count;  // elements from the start of a block
  uint64_t offset;        // elements from the start of its part
  uint32_t part;
};

struct BlockState {
  alignas(16) Strand strands[kMaxStrands];
  Context context;
  // Used alternately, so that one is filled in while slow threads still read the other. A move of views begins after a
  // barrier and always uses the first one; the memory of the other then serves tiles, which end with a barrier.
  Move moves[2];
#if defined(AXCCL_CUDA_HAS_BULK)
  BulkRing ring;
#endif
  Box box;          // for a move of views
  Portion portion;  // the portion that the box describes
  uint32_t polls;   // polls of a wait
  uint32_t rounds;  // visits to all strands; for the first thread
};
static_assert(offsetof(Move, count) >= kTileBytes);

}  // namespace axccl::kernels::cuda
