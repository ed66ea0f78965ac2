// Predicts how long a schedule takes on a machine, as a function of the data size.
//
// The constructor simulates a few turns of the schedule: each operation takes a fixed time and a time per byte of a
// part, and each wait ends when the signal that it names has travelled. The first turn gives the latency; the following
// ones give the cost of a further turn once the pipeline is full. Both are affine in the bytes of a part, so a
// prediction afterwards takes a handful of multiplications. Where ranks outnumber cores, they share the cores evenly
// and every hop waits for a core.
//
// Between machines, a signal is a message that carries the slots it publishes for its reader. It takes longer, costs
// time at both ends, and moves at the speed of the machine's link. All ranks of a machine share that link, so no turn
// is shorter than the time that its data takes on any link in either direction.
//
// Ranks on several GPUs read and write each other's memory at the speed of one block's loads over a link, and no turn
// is shorter than the time that its data takes on the links of a GPU and in its memory. In later turns, lanes are at
// different steps: while some wait for signals, others use the links.
//
// The predictions have the right magnitude and are good enough to order algorithms and sizes; they claim no more.
// Immutable, thread-safe, deterministic in its arguments.
#pragma once

#include <cstdint>

#include "src/cost/machine.h"
#include "src/plan/schedule.h"

namespace axccl::cost {

class Model {
 public:
  // `by_call`: ranks reach the user buffers of others by system call instead of loads and stores. `copies`: models a
  // schedule that has that many times the lanes, all with the same program; the result is the same as for that
  // schedule, at a lower cost. `like`: the schedule holds the program of that rank, and all others do the same
  // (algo::Alike); -1: it holds the programs of all. `sharers`: the most ranks that share cores; 0: those of a machine.
  Model(const plan::Schedule& schedule, const Machine& machine, bool by_call, const plan::Placement& placement = {},
        int copies = 1, int like = -1, int sharers = 0);

  // The time of one operation over blocks of `block_bytes`, in tiles of `tile_bytes` of a block per lane and turn (0 =
  // one turn). Infinite for a schedule that deadlocks.
  double Seconds(uint64_t block_bytes, uint64_t tile_bytes) const;

 private:
  struct Cost {
    double fixed = 0;   // seconds
    double cached = 0;  // seconds per byte of a part, user data in the cache
    double memory = 0;  // the same, user data in memory
  };

  Cost first_;  // the first turn
  Cost next_;   // each further turn
  Cost least_;  // for which a further turn keeps the links and the memory of a GPU busy
  double parts_ = 1;
  double lanes_ = 1;
  double user_blocks_ = 0;  // blocks of input and output of the rank that has most
  double cache_bytes_ = 0;
};

}  // namespace axccl::cost
