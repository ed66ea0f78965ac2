// What the signals of a schedule carry between machines.
//
// Between ranks that share memory a signal says that slots may be read; between others the slots have to travel, and
// they travel with the signal: what a rank has written and ranks of other machines read, their slots or its own, goes
// with its next signal to them. This is how much that is; which slots they are is the executor's concern
// (src/exec/outbound.h), which also refuses schedules that need memory in common. A slot of a rank elsewhere is taken
// to be written for it to read.
#pragma once

#include <cstdint>
#include <vector>

#include "src/plan/placement.h"
#include "src/plan/schedule.h"

namespace axccl::plan {

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

  void Write(int rank, int lane, const Operand& dst);
  void WaitForSignal(int reader);
  void Load(uint32_t op, int rank, int peer);

  const Schedule& schedule_;
  const Placement& placement_;
  std::vector<Read> reads_;        // ascending, each once
  std::vector<uint32_t> waiting_;  // [reader]: parts
  std::vector<int> touched_;       // readers that anything waited for
  std::vector<Cargo> found_;
};

}  // namespace axccl::plan
