// What the signals of a schedule carry between machines.
//
// Between ranks that share memory, a signal only says that slots may be read. Between machines, the content of the
// slots travels with the signal. What a rank has written and ranks of other machines read, from its slots or from their
// own, travels with its next signal to them (Carriers). CargoFinder counts these parts. A slot that a rank writes at a
// rank of another machine counts as written for that rank to read; a slot of the writer's own counts for the readers
// whose programs name it. The executor derives which slots they are from what every rank reads
// (src/exec/prepared/outbound.h), and refuses schedules that need shared memory.
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
  // The operation that carries what `op` has written for `reader`: the first signal to that rank from `op` on.
  uint32_t After(uint32_t op, int reader) const;

 private:
  std::vector<std::pair<int, uint32_t>> signals_;  // peer or kAllPeers, operation; ascending
};

// A signal that reaches a rank of another machine: one message.
struct Cargo {
  uint32_t op = 0;     // index in the lane
  int reader = 0;      // the rank it reaches
  uint32_t parts = 0;  // number of parts in the message; 0: the signal alone

  friend bool operator==(const Cargo&, const Cargo&) = default;
};

// Finds the cargo of one rank and lane after another. The arguments must outlive it; not thread-safe.
class CargoFinder {
 public:
  CargoFinder(const Schedule& schedule, const Placement& placement);

  // Sorted by operation, then reader. Valid until the next call.
  const std::vector<Cargo>& Of(int rank, int lane);

 private:
  struct Read {  // a slot that a rank of another machine than its owner's reads
    uint16_t lane, owner, slot, reader;

    friend auto operator<=>(const Read&, const Read&) = default;
  };

  void AddSignals(int rank, const std::vector<Op>& ops);
  void Load(const Carriers& carriers, uint32_t op, int reader, uint32_t parts);

  const Schedule& schedule_;
  const Placement& placement_;
  std::vector<Read> reads_;  // ascending, without duplicates
  std::vector<Cargo> found_;
};

}  // namespace axccl::plan
