// The turns of a channel: how many there have been, and what must separate two operations. They advance equally on all
// ranks, because all ranks run the same operations.
#pragma once

#include <cstdint>

#include "src/exec/prepared/plan_cache.h"
#include "src/plan/plan.h"
#include "src/plan/turns.h"

namespace axccl::exec {

class Turns {
 public:
  // `first`: the number of the first turn.
  explicit Turns(uint64_t first = 0) : next_(first) {}

  // The number of the next turn.
  uint64_t next() const { return next_; }

  // Whether a barrier must separate this from what ran before on the channel.
  bool NeedsBarrier(const Prepared& next) const { return plan::NeedsBarrier(last_, next.run); }
  // Records that it has run on the channel, to its end.
  void NoteEnd(const Prepared& prepared) {
    next_ += prepared.turns;
    last_ = prepared.run;
  }
  // Records that the first exchange of a direct plan has run, and another plan begins instead of the rest: it is a
  // barrier of its own, which took a turn.
  void NotePrologue() {
    ++next_;
    last_ = {};
  }

 private:
  uint64_t next_;
  plan::Run last_;
};

}  // namespace axccl::exec
