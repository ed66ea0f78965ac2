// Predicts how long a collective would take on machines that are not available.
//
// A discrete-event simulation (engine.h) of the schedule that would run there, turn by turn. Where all machines do the
// same (program.h), one represents all, so a ring or hierarchical plan of 16384 ranks takes seconds. To find out, the
// programs of all machines are compared. If these have more than two million operations, only the first two, the last,
// and as many between as the limit allows are compared. All other schedules are simulated with all their ranks.
//
// Plans with slices are simulated together with the callers' computation (engine.h); pipeline.h compares that with what
// it takes without slices. They are of one machine.
//
// Sizes and bus bandwidth are those of nccl-tests. All parts of a tile, and all tiles, count as equally long.
// perf/README.md lists what the simulation leaves out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/algo/algo.h"
#include "src/plan/contract.h"
#include "src/plan/placement.h"
#include "src/plan/schedule.h"
#include "src/sim/engine.h"
#include "src/sim/fabric.h"

namespace axccl::sim {

struct Request {
  plan::Contract contract;
  std::string algorithm;                                // as src/algo names it
  int lanes = 1;                                        // not for slices, whose plan has the lanes that it needs
  int slices = 0;                                       // above 0: the plan is one of algo::GenerateChunked
  bool produced = false;                                // with slices: input chunks are awaited
  algo::ChunkOrder order = algo::ChunkOrder::kDefault;  // with slices
  bool in_place = false;                                // all ranks run in place, where the kind has that
  plan::Placement placement;
  // As in nccl-tests: the larger one of a rank's input and output, or all blocks of a gather or scatter.
  uint64_t bytes = 0;
  uint64_t tile_bytes = 0;  // bytes of a block, for each lane and turn; 0: one turn
  Fabric fabric;
  Caller caller;  // with slices
};

struct Report {
  double seconds = 0;
  double bus_bytes_per_second = 0;     // 0 for kinds that move no data
  double limit_bytes_per_second = 0;   // upper limit of the bus bandwidth; see LinkLimit
  std::string busiest;                 // busiest link, NIC or memory: "NIC out of rank 3"
  double busiest_share = 0;            // share of the time for which it is busy
  std::vector<double> sent, received;  // [machine]: bytes over its NICs; [0] only if one machine represents all
  int ranks = 0;                       // simulated ranks
  int lanes = 0;                       // of each
  uint64_t turns = 0;
  uint64_t operations = 0;
  uint64_t messages = 0;
};

// kInvalidArgument for impossible groups and machines; kInvalidUsage for plans that cannot run between machines or are
// too large to be simulated (thousands of ranks on machines that do not all do the same), or that have slices and are
// not of one machine.
Result<Report> Simulate(const Request& request);
// Simulates the given schedule with all its ranks.
Result<Report> SimulateAll(const plan::Schedule& schedule, const Request& request);

// The bus bandwidth that the links allow: no algorithm in which ranks themselves reduce does better. Data that leaves
// or enters machines goes through their NICs, and data that reaches a rank through its NIC and its link.
double LinkLimit(const plan::Contract& contract, const plan::Placement& placement, const Fabric& fabric);

}  // namespace axccl::sim
