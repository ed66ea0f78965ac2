// How long a schedule takes on a machine, as a function of the data size.
//
// The schedule is run once on paper, for a few turns: each operation takes a fixed time and a time per byte of a
// part, each wait ends when the signal it names has travelled. From the first turn comes the latency, from the
// following ones what a further turn costs once the pipeline is full. Both are affine in the bytes of a part, so that
// a prediction afterwards is a handful of multiplications. Where ranks outnumber cores they share them evenly and
// every hop waits for its core.
//
// Between machines a signal is a message that carries the slots it publishes for its reader. It takes longer, costs
// both ends something, and goes at the speed of the machine's link; and as all ranks of a machine share that, no turn
// is shorter than what crosses any link in it, each way, takes in all.
//
// Good enough to order algorithms and sizes, and an honest figure in the right magnitude; no claim beyond that.
// Immutable, thread-safe, deterministic in its arguments.
#pragma once

#include <cstdint>

#include "src/cost/machine.h"
#include "src/plan/schedule.h"

namespace axccl::cost {

class Model {
 public:
  // `by_call`: user buffers of other ranks are reached by system call instead of loads and stores. `copies`: of a
  // schedule with as many times the lanes, all of which do the same; cheaper than to ask for that one, and no
  // different.
  Model(const plan::Schedule& schedule, const Machine& machine, bool by_call, const plan::Placement& placement = {},
        int copies = 1);

  // One operation over blocks of `block_bytes`, in tiles of `tile_bytes` of a block per lane and turn (0 = one turn).
  // Infinite for a schedule that deadlocks.
  double Seconds(uint64_t block_bytes, uint64_t tile_bytes) const;

 private:
  struct Cost {
    double fixed = 0;   // seconds
    double cached = 0;  // seconds per byte of a part, user data in the cache
    double memory = 0;  // the same, user data in memory
  };

  Cost first_;  // the first turn
  Cost next_;   // each further one
  double parts_ = 1;
  double lanes_ = 1;
  double user_blocks_ = 0;  // of input and output of the rank that has most
  double cache_bytes_ = 0;
};

}  // namespace axccl::cost
