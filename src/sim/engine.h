// Runs a program on a fabric, event by event.
//
// Every operation costs its lane `op_seconds`. A copy or reduction then uses all its resources at the same time: the
// memory of its rank and, if it reaches into another rank's memory, the links of both ranks. Each resource serves
// requests in their order, and the operation ends with the slowest; it takes no less than its lane needs for what it
// moves. A signal inside a machine is seen `signal_seconds`
// later. A signal to another machine is a message: it queues at the NIC of its rank, travels, queues at the NIC of the
// other rank, and is seen when all of it has arrived. NICs work beside the lanes. Turn t + 1 of a lane follows its turn
// t.
//
// In a program with chunks, each rank has one more strand, its caller. It first computes the input chunks that the rank
// awaits, for `produce_seconds` each, one after the other in the order that program.h gives; an await ends when its
// chunk is computed. Then it takes the output chunks in the order in which they come, whichever they are, and
// computes for `consume_seconds` with each. A chunk comes when its notify ends or, if
// another rank notifies, `signal_seconds` later. Input chunks come first because other ranks wait for them. A caller
// computes beside its lanes and takes nothing from them.
//
// Deterministic: simultaneous events run in an order that looks the same from every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/sim/fabric.h"
#include "src/sim/program.h"

namespace axccl::sim {

// What the user of a rank computes, for each chunk. Ignored by programs without chunks.
struct Caller {
  double produce_seconds = 0;  // input chunks that are awaited
  double consume_seconds = 0;  // output chunks
};

struct Outcome {
  double seconds = 0;                  // when the last lane has ended its last turn, and all callers have computed
  std::vector<double> busy;            // [resource] seconds
  std::vector<double> sent, received;  // [machine]: bytes that its NICs send and receive
  uint64_t operations = 0;
  uint64_t messages = 0;
};

// Runs `turns` turns of a tile whose parts have `part_bytes` bytes; a program with chunks has one. kInvalidUsage,
// naming rank, lane, operation and turn, when a wait never ends, or naming rank and chunk when no operation
// notifies an output chunk. kInvalidArgument for impossible figures.
Result<Outcome> Execute(const Program& program, const Fabric& fabric, double part_bytes, uint64_t turns,
                        const Caller& caller = {});

}  // namespace axccl::sim
