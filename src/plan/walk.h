// Follows a schedule from signals to waits without moving data, to find what happens before what, and when.
//
// A *strand* is what one rank does in one lane, in order. It runs until it reaches a wait, and continues when the
// signal that it waits for has been made. The caller decides what a signal carries to the waiting strands: for example
// a time, or what the signalling rank knows. Executors, generators, the cost model and the simulator follow schedules
// with this code; the verifier, which checks their results, has its own. One object belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/plan/schedule.h"

namespace axccl::plan {

// The signals made on a number of counters. Signals of a counter are numbered 1, 2, ...
template <class Carried>
class Signals {
 public:
  explicit Signals(size_t counters) : counters_(counters) {}

  void Make(size_t counter, Carried carried) { counters_[counter].made.push_back(std::move(carried)); }
  // Returns what the signal carries, or null if it has not been made.
  const Carried* Find(size_t counter, uint64_t number) const {
    const Counter& c = counters_[counter];
    if (number > c.forgotten + c.made.size()) return nullptr;
    return &c.made[number > c.forgotten ? number - c.forgotten - 1 : 0];
  }
  // The caller no longer looks for signals before this one; Find may return a later one for them.
  void Forget(size_t counter, uint64_t number) {
    Counter& c = counters_[counter];
    if (c.made.size() < 2 || number < c.forgotten + c.made.size()) return;
    c.forgotten += c.made.size() - 1;
    c.made.erase(c.made.begin(), c.made.end() - 1);
  }

 private:
  struct Counter {
    std::vector<Carried> made;
    uint64_t forgotten = 0;  // number of signals that were made before these
  };

  std::vector<Counter> counters_;
};

// Advances all strands as far as possible: advance(strand) takes the steps that it can, and returns whether it took
// any.
template <class Advance>
void Walk(size_t strands, Advance advance) {
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < strands; ++s) moved |= advance(s);
  }
}

// Numbers the endpoints that strands signal: one counter for each, and one more for all endpoints that no strand
// signals. `strands` [rank * lanes + lane] must outlive this object.
class Counters {
 public:
  Counters(const std::vector<const Lane*>& strands, size_t lanes) : lanes_(lanes), first_(strands.size() + 1) {
    for (size_t s = 0; s < strands.size(); ++s) {
      size_t endpoints = 0;
      for (const Op& op : strands[s]->ops) {
        if (op.kind == OpKind::kSignal) endpoints = std::max<size_t>(endpoints, op.endpoint + 1u);
      }
      first_[s + 1] = first_[s] + endpoints;
    }
  }

  size_t size() const { return first_.back() + 1; }
  size_t OfSignal(size_t strand, const Op& op) const { return first_[strand] + op.endpoint; }
  size_t OfWait(const Op& op) const { return OfWait(op, op.peer); }
  // As if the wait were for `rank`.
  size_t OfWait(const Op& op, int rank) const {
    if (op.from_lane >= lanes_) return first_.back();
    const size_t source = static_cast<size_t>(rank) * lanes_ + op.from_lane, counter = first_[source] + op.endpoint;
    return counter < first_[source + 1] ? counter : first_.back();
  }

 private:
  const size_t lanes_;
  std::vector<size_t> first_;  // [strand]
};

inline std::vector<const Lane*> StrandsOf(const Schedule& schedule) {
  std::vector<const Lane*> strands;
  strands.reserve(schedule.program.size() * schedule.lanes);
  for (const std::vector<Lane>& lanes : schedule.program) {
    for (const Lane& lane : lanes) strands.push_back(&lane);
  }
  return strands;
}

// Follows one turn. The follower has
//   Carried                                 what its signals carry
//   Carried Signal(strand, op)
//   void Pass(strand, op, const Carried&)   a wait for a signal that carried this is over
//   void Move(strand, op)                   a copy or reduction
// FollowTurn calls these in one of the orders that the waits allow. Returns a strand that never ends, or strands.size()
// if all end.
template <class Follower>
size_t FollowTurn(const std::vector<const Lane*>& strands, size_t lanes, Follower* follower) {
  const Counters counters(strands, lanes);
  Signals<typename Follower::Carried> signals(counters.size());
  std::vector<size_t> next(strands.size());
  Walk(strands.size(), [&](size_t s) {
    const std::vector<Op>& ops = strands[s]->ops;
    const size_t first = next[s];
    for (; next[s] < ops.size(); ++next[s]) {
      const Op& op = ops[next[s]];
      if (op.kind == OpKind::kSignal) {
        signals.Make(counters.OfSignal(s, op), follower->Signal(s, op));
      } else if (op.kind == OpKind::kWait) {
        const auto* carried = signals.Find(counters.OfWait(op), op.value);
        if (carried == nullptr) break;
        follower->Pass(s, op, *carried);
      } else if (op.kind == OpKind::kCopy || op.kind == OpKind::kReduce) {
        follower->Move(s, op);
      }
    }
    return next[s] != first;
  });
  for (size_t s = 0; s < strands.size(); ++s) {
    if (next[s] < strands[s]->ops.size()) return s;
  }
  return strands.size();
}

}  // namespace axccl::plan
