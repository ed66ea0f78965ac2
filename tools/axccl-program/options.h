// The command line of axccl-program, parsed. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace axccl::tools {

enum class Command { kHelp, kVersion, kImport, kCheck, kHash, kReference, kReplay, kRun, kSimulate, kCalibrate };

struct Options {
  Command command = Command::kHelp;
  std::string file;     // the program; "-": standard input
  std::string inputs;   // a file of tensors; empty: random ones
  std::string outputs;  // where to write inputs and outputs; empty: nowhere
  std::string against;  // "reference", or a file of tensors; empty: nothing
  double tolerance = 0;
  uint64_t seed = 1;
  bool processes = false;  // one for each rank, instead of a thread
  bool report = false;     // what each rank allocated
  bool blas = false;       // fast local operations, products by OpenBLAS
  int repeat = 0;          // measured rounds of a replay or run; 0: not given
  int ranks = 0;           // of a calibration; 0: one for each core
  // Of a simulation; the trace also of a run, trips and branch also of a replay.
  std::string fabric;  // a file; empty: the default
  bool distir = false;
  std::optional<int64_t> trips;
  std::optional<int> branch;  // 0: then, 1: else
  std::string trace;          // a file; empty: none
  std::string svg;            // likewise
};

// kInvalidArgument names the argument and what is expected.
Result<Options> ParseOptions(const std::vector<std::string>& arguments);
const char* HelpText();

}  // namespace axccl::tools
