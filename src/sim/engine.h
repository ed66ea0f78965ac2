// Runs a program on a fabric, event by event.
//
// Every operation costs its lane `op_seconds`. A copy or reduction then uses all its resources at the same time: the
// memory of its rank and, if it reaches into another rank's memory, the links of both ranks. Each resource serves
// requests in their order, and the operation ends with the slowest. A signal inside a machine is seen `signal_seconds`
// later. A signal to another machine is a message: it queues at the NIC of its rank, travels, queues at the NIC of the
// other rank, and is seen when all of it has arrived. NICs work beside the lanes. Turn t + 1 of a lane follows its turn
// t.
//
// Deterministic: simultaneous events run in an order that looks the same from every machine.
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
  std::vector<double> sent, received;  // [machine]: bytes that its NICs send and receive
  uint64_t operations = 0;
  uint64_t messages = 0;
};

// Runs `turns` turns of a tile whose parts have `part_bytes` bytes. kInvalidUsage, naming rank, lane, operation and
// turn, when a wait never ends.
Result<Outcome> Execute(const Program& program, const Fabric& fabric, double part_bytes, uint64_t turns);

}  // namespace axccl::sim
