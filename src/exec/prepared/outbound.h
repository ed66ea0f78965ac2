// The slots that a rank sends with its signals to ranks that do not share its memory.
//
// Between ranks that share memory, a signal says that slots may be read; between others, the slots travel with the
// signal. The schedule determines what travels with which signal: a slot that another rank reads, in the writer's
// scratch or its own, travels with the first signal to that rank after it is written. Messages between two ranks take
// effect in order, so that is early enough if the reader waits for that signal or a later one of the writer before it
// reads. A schedule in which it learns of the slot only from a third rank, or in which two ranks communicate through
// the scratch of a third, cannot run over messages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::exec {

class Outbound {
 public:
  struct Slot {
    uint32_t step = 0;  // step of the lane (kNop not counted) with which it travels
    uint16_t reader = 0;
    uint16_t slot = 0;
    uint16_t data_part = 0;  // the data part that determines its length
    bool of_reader = false;  // in the reader's scratch; otherwise in the writer's own
  };

  // The slots of `rank`. kInvalidUsage, naming the algorithm, if the schedule cannot run over messages.
  static Result<Outbound> Make(const plan::Schedule& schedule, int rank);

  // The slots that travel with that step, by reader.
  std::span<const Slot> With(uint32_t lane, uint32_t step) const;
  size_t bytes() const;

 private:
  std::vector<std::vector<Slot>> lanes_;  // by step, then reader
};

}  // namespace axccl::exec
