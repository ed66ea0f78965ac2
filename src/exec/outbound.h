// Which slots a rank sends with its signals, where the ranks they are for do not share its memory.
//
// Between ranks that share memory a signal says that slots may be read; between others the slots have to travel, and
// they travel with the signal. What goes with which signal follows from the schedule: a slot that another rank reads,
// in the writer's scratch or its own, goes with the first signal to that rank after it is written. Messages between two
// ranks take effect in order, so that is soon enough where the reader waits for that signal or a later one of the
// writer before it reads. A schedule in which it learns of the slot from a third rank alone, or in which two ranks meet
// in the scratch of a third, cannot be run over messages.
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
    uint32_t step = 0;  // of the lane, kNop not counted: the signal it goes with
    uint16_t reader = 0;
    uint16_t slot = 0;
    uint16_t data_part = 0;  // whose length it has
    bool of_reader = false;  // in the reader's scratch; else in the writer's own
  };

  // Of `rank`. kInvalidUsage naming the algorithm where it cannot be done.
  static Result<Outbound> Make(const plan::Schedule& schedule, int rank);

  // Those that go with that step, by reader.
  std::span<const Slot> With(uint32_t lane, uint32_t step) const;
  size_t bytes() const;

 private:
  std::vector<std::vector<Slot>> lanes_;  // by step, then reader
};

}  // namespace axccl::exec
