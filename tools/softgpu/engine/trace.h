// What warps do that takes a processor time, counted for tests: instructions of PTX, and round trips to memory.
//
// A warp issues its instructions in order. A load from global memory does not hold it up, but the first instruction
// that reads what was loaded does. So the loads that a warp issues until it reads the result of one of them cost one
// round trip together. A warp that leaves a barrier has made as many as the one that has made the most. A generic
// address of a kernel's parameters counts as global memory; ld.param of a fixed place, shared, local and constant
// memory do not. Where the lanes of a warp diverge, their round trips add up. A call or a return waits for all loads.
// What a processor's own compiler changes about that, and what caches save, is not counted.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/softgpu/engine/engine.h"

namespace softgpu::engine {

class Warp;
struct Block;
struct Instr;

// Of one warp. Used by the thread that runs it.
class WarpTrace {
 public:
  explicit WarpTrace(uint64_t columns) : back_(columns) {}

  // Called before each instruction; `lanes` are those that execute it.
  void Before(const Warp& w, const Instr& in, uint32_t lanes);
  void PassBarrier(uint32_t most) { trips_ = most > trips_ ? most : trips_; }
  uint32_t trips() const { return trips_; }
  // Up to the last store to global memory.
  const Effort& effort() const { return effort_; }

 private:
  void Await(int32_t column);

  std::vector<uint32_t> back_;  // by column: the round trip after which its value has been loaded
  uint32_t trips_ = 0;
  uint32_t last_back_ = 0;  // the latest of back_
  uint64_t instructions_ = 0;
  Effort effort_;
};

// Called when a block has ended, from any thread.
void NoteEffort(const Block& block);

}  // namespace softgpu::engine
