// A schedule with everything looked up that a simulation of it needs.
//
// A program covers all ranks, or one machine that represents all. The latter is for schedules that look the same from
// every machine: machine m + 1 does what machine m does, with every rank in it replaced by the corresponding rank of
// the next machine, modulo the number of machines. Because all machines are alike, the times are then the same as well,
// and running one machine is enough: what it sends to the machine `distance` after it, it receives at the same time
// from the machine `distance` before it. Numbers of blocks, parts, slots and endpoints may differ from machine to
// machine, as no time depends on them.
//
// A schedule with slices, which is of one machine, has chunks besides: those of its input that a rank awaits, numbered
// in the order in which its caller computes them, and those of its output. A part is then a part of a whole block,
// because lanes do not divide blocks. Immutable values.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/plan/placement.h"
#include "src/plan/schedule.h"

namespace axccl::sim {

// Each rank has one of each resource. Operations acquire them in the order of their requests.
enum Resource : uint32_t { kMemory, kLinkOut, kLinkIn, kNicOut, kNicIn, kNumResources };

// The use of a resource, whose number is rank * kNumResources + Resource.
struct Share {
  uint32_t resource = 0;
  uint32_t parts = 0;
  uint32_t multicast = 0;  // parts that go over a link to all ranks, or come from all

  friend auto operator<=>(const Share&, const Share&) = default;
};

// A signal's path to a rank that waits for it.
struct Delivery {
  static constexpr uint32_t kNoCounter = ~0u;

  uint32_t counter = kNoCounter;
  uint32_t to = 0;        // rank
  uint32_t distance = 0;  // machines
  uint32_t parts = 0;     // that travel with the signal
  bool far = false;       // to another machine
  bool token = false;     // to the rank itself

  friend bool operator==(const Delivery&, const Delivery&) = default;
};

struct Step {
  plan::OpKind kind = plan::OpKind::kNop;  // kReduce becomes kCopy
  bool shared = false;                     // whether it uses resources that other strands use, too
  bool token = false;                      // notify: of an output of the rank itself
  uint32_t first = 0;  // copy: first share; signal: first delivery; wait: the counter; notify: the output chunk
  uint32_t count = 0;  // copy, signal
  uint32_t value = 0;  // wait; await: number of the input chunk, from 1
  // Copy: the parts that the lane itself reads and writes in its rank's memory, and that it moves over links.
  uint32_t in_memory = 0, over_links = 0;

  friend bool operator==(const Step&, const Step&) = default;
};

// The signals of one endpoint that arrive at one lane.
struct Counter {
  uint32_t strand = 0;  // the strand that waits for it
  uint32_t per_turn = 0;

  friend bool operator==(const Counter&, const Counter&) = default;
};

struct Program {
  uint32_t ranks = 0;  // simulated ranks
  uint32_t lanes = 0;
  std::vector<uint32_t> machine;  // [rank]
  std::vector<uint32_t> place;    // [rank]: index among the ranks of its machine
  std::vector<size_t> begin;      // [strand]: its first step, strand = rank * lanes + lane; one more entry at the end
  std::vector<Step> steps;        // one for each operation
  std::vector<Share> shares;
  std::vector<Delivery> deliveries;
  std::vector<Counter> counters;
  std::vector<uint32_t> awaited;  // [rank]: the input chunks that it awaits; 0 without slices
  std::vector<uint32_t> outputs;  // [rank]: its first output chunk in the program; one more entry at the end

  friend bool operator==(const Program&, const Program&) = default;
};

// Compiles all ranks; the schedule must have all their programs. `placement` gives the machines, because the schedule's
// own may be flat if its algorithm does not depend on it. `in_place`: all ranks run in place, so copies of a block onto
// itself do nothing (contract.h). kInvalidUsage for a schedule that needs shared memory between machines, or names a
// chunk that does not exist.
Result<Program> CompileAll(const plan::Schedule& schedule, const plan::Placement& placement, bool in_place = false);

// Whether all machines have equally many ranks, numbered machine by machine, and there are several machines.
bool AreAlike(const plan::Placement& placement);
// Compiles one machine, for placements that are alike; the schedule must have the programs of its ranks. Machines that
// do the same have equal programs. kInvalidUsage where one machine cannot represent all: the signals it sends to others
// are not the ones that such machines wait for, or it signals all ranks at once, or reads the scratch of other
// machines.
Result<Program> CompileOne(const plan::Schedule& schedule, const plan::Placement& placement, int machine,
                           bool in_place = false);

}  // namespace axccl::sim
