// The command line of axccl-plan, parsed. Pure; the options own their text.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/plan/contract.h"
#include "src/plan/placement.h"

namespace axccl::tools {

enum class Command { kHelp, kList, kShow, kVerify, kHash };

struct Options {
  Command command = Command::kHelp;
  std::string file;  // "-" = standard input; empty: a generated schedule
  plan::Contract contract;
  bool has_op = false;
  std::string algorithm;
  int lanes = 1;
  plan::Placement placement;
};

// kInvalidArgument tells which argument is wrong and what is accepted.
Result<Options> ParseOptions(const std::vector<std::string>& arguments);

// What --help prints.
const char* HelpText();

}  // namespace axccl::tools
