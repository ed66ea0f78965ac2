// The command line of axccl-program, parsed. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"

namespace axccl::tools {

enum class Command { kHelp, kImport, kCheck, kHash, kReference, kRun };

struct Options {
  Command command = Command::kHelp;
  std::string file;     // the program; "-": standard input
  std::string inputs;   // a file of tensors; empty: random ones
  std::string outputs;  // where to write inputs and outputs; empty: nowhere
  std::string against;  // "reference", or a file of tensors; empty: nothing
  double tolerance = 0;
  uint64_t seed = 1;
  bool processes = false;  // one for each rank, instead of a thread
};

// kInvalidArgument names the argument and what is expected.
Result<Options> ParseOptions(const std::vector<std::string>& arguments);
const char* HelpText();

}  // namespace axccl::tools
