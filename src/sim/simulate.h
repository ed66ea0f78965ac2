// How long a collective would take on machines that are not at hand.
//
// A discrete-event simulation (engine.h) of the schedule that would run there, turn by turn. Where all machines do the
// same (program.h) one stands for all, so that a ring or hierarchical plan of 16384 ranks takes seconds. Whether they
// do is found out by comparing the programs of all machines; where these are more than two million operations, of the
// first two, the last and as many between as that allows. All other schedules are simulated with all their ranks.
//
// Sizes and bus bandwidth are those of nccl-tests. Parts of a tile, and tiles, are taken to be of one length. What the
// simulation leaves out is listed in perf/README.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/plan/contract.h"
#include "src/plan/placement.h"
#include "src/plan/schedule.h"
#include "src/sim/engine.h"
#include "src/sim/fabric.h"

namespace axccl::sim {

struct Request {
  plan::Contract contract;
  std::string algorithm;  // as src/algo names it
  int lanes = 1;
  plan::Placement placement;
  // As nccl-tests counts it: of a rank's input or output, whichever is larger, and of all blocks of a gather or
  // scatter.
  uint64_t bytes = 0;
  uint64_t tile_bytes = 0;  // of a block, for each lane and turn; 0: one turn
  Fabric fabric;
};

struct Report {
  double seconds = 0;
  double bus_bytes_per_second = 0;     // 0 where the kind moves nothing
  double limit_bytes_per_second = 0;   // of that; see LinkLimit
  std::string busiest;                 // of links, NICs and memories: "NIC out of rank 3"
  double busiest_share = 0;            // of the time
  std::vector<double> sent, received;  // bytes over the NICs, [machine]; of one that stands for all, [0]
  int ranks = 0;                       // that were simulated
  uint64_t turns = 0;
  uint64_t operations = 0;
  uint64_t messages = 0;
};

// kInvalidArgument for what no group can be asked for or no machine has, kInvalidUsage for plans that cannot be run
// between machines or are too large to be simulated (machines that do not do the same, thousands of ranks).
Result<Report> Simulate(const Request& request);
// The same of a schedule at hand, with all its ranks.
Result<Report> SimulateAll(const plan::Schedule& schedule, const Request& request);

// What the links leave of the bus bandwidth: no algorithm whose ranks themselves reduce does better. What has to leave
// or enter machines goes through their NICs, and what has to reach a rank through its NIC and its link.
double LinkLimit(const plan::Contract& contract, const plan::Placement& placement, const Fabric& fabric);

}  // namespace axccl::sim
