// The turns of a channel: how many there have been, and what must separate two operations. They advance equally on all
// ranks, because all ranks run the same operations.
#pragma once

#include <cstdint>

#include "src/exec/prepared/plan_cache.h"
#include "src/plan/plan.h"

namespace axccl::exec {

class Turns {
 public:
  // `first`: the number of the first turn.
  explicit Turns(uint64_t first = 0) : next_(first) {}

  // The number of the next turn.
  uint64_t next() const { return next_; }

  // Whether a barrier must separate this from what ran before on the channel. Complete plans (plan::Plan::complete) may
  // follow each other freely: a rank that has ended a turn knows that all others have ended the turn before it, and are
  // done with the scratch of the next. Other plans may only follow themselves, with their slots at the same places: the
  // verifier has checked that what touches a slot in a turn comes before what touches it two turns later, and so before
  // all later turns of the same half, one of which is the next to use the same set.
  bool NeedsBarrier(const Prepared& next) const {
    if (last_plan_ == plan::Hash() || last_was_barrier_) return false;
    const plan::Plan& plan = *next.program->plan;
    if (plan.hash == last_plan_ && next.slot_bytes == last_slot_bytes_) return false;
    return !last_complete_ || !plan.complete;
  }
  // Records that it has run on the channel, to its end.
  void NoteEnd(const Prepared& prepared, bool barrier) {
    const plan::Plan& plan = *prepared.program->plan;
    next_ += prepared.turns;
    last_plan_ = plan.hash;
    last_slot_bytes_ = prepared.slot_bytes;
    last_complete_ = plan.complete;
    last_was_barrier_ = barrier;
  }
  // Records that the first exchange of a direct plan has run, and another plan begins instead of the rest: it is a
  // barrier of its own, which took a turn.
  void NotePrologue() {
    ++next_;
    last_plan_ = {};
  }

 private:
  uint64_t next_;
  // The plan that ran last; no plan has the hash 0. It is identified by its hash and not by its address, because plans
  // may be evicted and made again.
  plan::Hash last_plan_;
  uint64_t last_slot_bytes_ = 0;
  bool last_complete_ = true;
  bool last_was_barrier_ = true;
};

}  // namespace axccl::exec
