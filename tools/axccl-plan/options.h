// The command line of axccl-plan, parsed. Pure; the options own their text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/algo/algo.h"
#include "src/base/status.h"
#include "src/base/types.h"
#include "src/plan/contract.h"
#include "src/plan/placement.h"
#include "src/sim/engine.h"
#include "src/sim/fabric.h"
#include "src/tune/tune.h"

namespace axccl::tools {

enum class Command { kHelp, kVersion, kList, kShow, kVerify, kHash, kSimulate, kExplain };

struct Options {
  Command command = Command::kHelp;
  bool json = false;  // of list, verify, simulate and explain
  bool svg = false;   // of show
  std::string file;   // "-" = standard input; empty: a generated schedule
  plan::Contract contract;
  bool has_op = false;
  std::string algorithm;
  int lanes = 1;
  bool chunked = false;  // a schedule with slices
  algo::Chunking chunking;
  plan::Placement placement;
  uint64_t bytes = 0;  // in the definition of nccl-tests; for simulate and explain

  // For simulate.
  uint64_t tile_bytes = 0;
  sim::Fabric fabric;
  sim::Caller caller;
  bool in_place = false;

  // For explain.
  DataType type = DataType::kFloat32;
  std::string machine_file;  // empty: this machine's
  std::string network_file;  // empty: the last measured; "fixed": no measured figures
  std::optional<tune::Access> access;
  int max_lanes = 0;                            // 0: as many as a communicator has
  int cores = 0;                                // 0: this machine's
  int gpus = 0;                                 // above 0: the ranks are on so many
  bool nvls = false;                            // with NVLink SHARP
  bool short_runs = false, split_rows = false;  // as in tune::Query
};

// Returns kInvalidArgument, with the wrong argument and what is accepted.
Result<Options> ParseOptions(const std::vector<std::string>& arguments);

// The text that --help prints.
const char* HelpText();

}  // namespace axccl::tools
