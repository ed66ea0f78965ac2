// What the interpreter keeps in the shared memory of a block: where its strands stand, and what the strand that runs
// needs.
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
  kMeeting,  // of the members, before the first operation: lane 0 sees to it, the others wait for that
  kBarrier,  // of the barrier before the operation: lane 0 runs it, the others wait for that
  kMain,
  kEnded,
};

AXCCL_DEVICE bool IsFirst() { return ThreadIndex() == 0; }

// Where a strand goes on.
struct Strand {
  uint64_t offset;  // elements of the part done
  uint32_t turn;    // of the stage
  uint32_t step;
  uint16_t part;
  Stage stage;
};

inline constexpr uint32_t kStepWindow = 48;

// Of the strand that runs, read from device memory once while it does.
struct Context {
  Task task;
  const Program* program;  // of the stage
  const Step* steps;       // of its lane
  uint64_t turns;          // of the stage
  uint64_t sequence;
  uint64_t turn;            // first one of the stage
  uint64_t barriers;        // what State::barriers_done says once the stage kMain may begin; 0: no barrier
  uint64_t divisor;         // of final results
  Factor one;               // changes nothing
  Factor post;              // of final results, where `scales_result`
  Factor own_factor;        // what the own input is multiplied by, and in an average every input
  uint32_t signature;       // of signals
  uint32_t next_signature;  // in a barrier: of what follows it
  uint32_t lane, num_steps;
  uint32_t strands;  // of the task
  uint32_t element;  // bytes
  uint32_t window_begin, window_size;
  bool scales;  // inputs are multiplied as they are read
  bool scales_result;
  Packing packing;  // of slots of the stage
  bool has_steps;   // the program has such a lane
  bool broken;      // the channel was, before the strand began
  bool unmet;
  Step window[kStepWindow];
};

// Of a step, what is moved at a time.
struct Portion {
  uint64_t turn;
  uint64_t begin, count;  // elements from the start of a block
  uint64_t offset;        // elements from the start of its part
  uint32_t part;
};

struct BlockState {
  Strand strands[kMaxStrands];
  Context context;
  // By turns, so that one is filled in while slow threads still look at the other. Moves of views begin behind a
  // barrier and are all the first one; then the other's memory is for tiles, which end with a barrier.
  Move moves[2];
#if defined(AXCCL_CUDA_HAS_BULK)
  BulkRing ring;
#endif
  Box box;          // of a move of views
  Portion portion;  // that the box is of
  uint32_t polls;   // of a wait
  uint32_t rounds;  // of visits to all strands; the first thread's
};
static_assert(offsetof(Move, count) >= kTileBytes);

}  // namespace axccl::kernels::cuda
