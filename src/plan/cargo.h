// What the signals of a schedule carry between machines.
//
// Between ranks that share memory a signal says that slots may be read; between others the slots have to travel, and
// they travel with the signal: what a rank has written and ranks of other machines read, their slots or its own, goes
// with its next signal to them (Carriers). CargoFinder says how much that is, from the programs of the ranks that send
// alone: a slot of a rank elsewhere is taken to be written for it to read. Which slots they are the executor finds out
// from what every rank reads (src/exec/outbound.h), and refuses schedules that need memory in common.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "src/plan/placement.h"
#include "src/plan/schedule.h"

namespace axccl::plan {

// The signals of one strand, by the rank that they reach.
class Carriers {
 public:
  static constexpr uint32_t kNone = ~0u;

  explicit Carriers(const Lane& lane);
  // With which operation travels what `op` has written for `reader`: the first signal to it from then on.
  uint32_t After(uint32_t op, int reader) const;

 private:
  std::vector<std::pair<int, uint32_t>> signals_;  // peer or kAllPeers, operation; ascending
};

// A signal that reaches a rank of another machine: one message.
struct Cargo {
  uint32_t op = 0;     // which of the lane's
  int reader = 0;      // the rank it reaches
  uint32_t parts = 0;  // that go with it; 0 = nothing but the signal

  friend bool operator==(const Cargo&, const Cargo&) = default;
};

// Finds the cargo of one rank and lane after the other. The arguments outlive it; not thread-safe.
class CargoFinder {
 public:
  CargoFinder(const Schedule& schedule, const Placement& placement);

  // In the order of operations, then readers. Valid until the next call.
  const std::vector<Cargo>& Of(int rank, int lane);

 private:
  struct Read {  // of a slot by a rank of another machine than its owner
    uint16_t lane, owner, slot, reader;

    friend auto operator<=>(const Read&, const Read&) = default;
  };

  void AddSignals(int rank, const std::vector<Op>& ops);
  void Load(const Carriers& carriers, uint32_t op, int reader, uint32_t parts);

  const Schedule& schedule_;
  const Placement& placement_;
  std::vector<Read> reads_;  // ascending, each once
  std::vector<Cargo> found_;
};

}  // namespace axccl::plan
