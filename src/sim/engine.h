// Runs a program on a fabric, event by event.
//
// Every operation costs its lane `op_seconds`. A copy or reduction then takes its share of all it touches at once: of
// the memory of its rank, and of the links of both ranks where it reaches into another's memory. Each serves in the
// order in which it is asked, and the operation ends with the slowest. A signal inside a machine is seen
// `signal_seconds` later; one to another machine is a message that takes its turn at the NIC of its rank, travels,
// takes its turn at the NIC of the other, and is seen when it has arrived as a whole. NICs work beside the lanes. Turn
// t + 1 of a lane follows its turn t.
//
// Deterministic: what happens at the same time happens in an order that looks the same from every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/sim/fabric.h"
#include "src/sim/program.h"

namespace axccl::sim {

struct Outcome {
  double seconds = 0;                  // when the last lane ends its last turn
  std::vector<double> busy;            // [resource] seconds
  std::vector<double> sent, received;  // [machine] bytes that its NICs send and take in
  uint64_t operations = 0;
  uint64_t messages = 0;
};

// `turns` of a tile whose parts have so many bytes. kInvalidUsage naming rank, lane, operation and turn when a wait
// never ends.
Result<Outcome> Execute(const Program& program, const Fabric& fabric, double part_bytes, uint64_t turns);

}  // namespace axccl::sim
