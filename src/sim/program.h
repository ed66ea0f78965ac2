// A schedule with everything looked up that a simulation of it needs.
//
// Of all ranks, or of one machine that stands for all. The latter is for schedules that look the same from every
// machine: machine m + 1 does what machine m does with every rank that occurs moved on by one machine, all counted
// round. Then so do the times, for all machines are alike, and it suffices to run one: what it sends to the machine
// `distance` after it, it gets at the same time from the machine `distance` before it. Numbers of blocks, parts, slots
// and endpoints may differ from machine to machine, as they concern no time. Immutable values.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/plan/placement.h"
#include "src/plan/schedule.h"

namespace axccl::sim {

// What ranks have one of each; taken in the order in which it is asked for.
enum Resource : uint32_t { kMemory, kLinkOut, kLinkIn, kNicOut, kNicIn, kNumResources };

// Of a resource, which is number rank * kNumResources + Resource.
struct Share {
  uint32_t resource = 0;
  uint32_t parts = 0;

  friend auto operator<=>(const Share&, const Share&) = default;
};

// A signal's way to a rank that waits for it.
struct Delivery {
  static constexpr uint32_t kNobody = ~0u;

  uint32_t counter = kNobody;
  uint32_t to = 0;        // rank
  uint32_t distance = 0;  // machines
  uint32_t parts = 0;     // that travel with it
  bool far = false;       // to another machine
  bool token = false;     // to the rank itself

  friend bool operator==(const Delivery&, const Delivery&) = default;
};

struct Step {
  plan::OpKind kind = plan::OpKind::kNop;  // kReduce is kCopy here
  bool shared = false;                     // whether it takes what other strands take, too
  uint32_t first = 0;                      // copy: of shares; signal: of deliveries; wait: the counter
  uint32_t count = 0;                      // copy, signal
  uint32_t value = 0;                      // wait

  friend bool operator==(const Step&, const Step&) = default;
};

// What arrives of one endpoint at one lane.
struct Counter {
  uint32_t strand = 0;  // that waits for it
  uint32_t per_turn = 0;

  friend bool operator==(const Counter&, const Counter&) = default;
};

struct Program {
  uint32_t ranks = 0;  // that are simulated
  uint32_t lanes = 0;
  std::vector<uint32_t> machine;  // [rank]
  std::vector<uint32_t> place;    // [rank] among those of its machine
  std::vector<size_t> begin;      // [strand] of its steps, strand = rank * lanes + lane; one more at the end
  std::vector<Step> steps;        // one an operation
  std::vector<Share> shares;
  std::vector<Delivery> deliveries;
  std::vector<Counter> counters;

  friend bool operator==(const Program&, const Program&) = default;
};

// Of all ranks, whose programs are all there. `placement` says where they are: that of the schedule may be flat where
// its algorithm does not mind. kInvalidUsage for a schedule that needs memory in common between machines.
Result<Program> CompileAll(const plan::Schedule& schedule, const plan::Placement& placement);

// Whether machine after machine has equally many ranks, in ascending order, and there are several.
bool AreAlike(const plan::Placement& placement);
// Of one machine, where placements are alike; the programs of its ranks are there. Machines that do the same have equal
// ones. kInvalidUsage where that does not say it all: where what one sends to others is not what such machines wait
// for, for signals to all ranks at once, and for reading in the scratch of other machines.
Result<Program> CompileOne(const plan::Schedule& schedule, const plan::Placement& placement, int machine);

}  // namespace axccl::sim
