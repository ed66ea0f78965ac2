// The commands that make, transform and search training steps.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"

namespace axccl::tools {

// Whether the command is one of these: make, transform, search.
bool IsOfTraining(const std::string& command);

// Returns what the command prints. `arguments`: without the command. kInvalidUsage: wrong use, or a file that cannot be
// read or written; kInvalidArgument: the program cannot be transformed so.
Result<std::string> RunTraining(const std::string& command, const std::vector<std::string>& arguments);

const char* TrainingHelp();

}  // namespace axccl::tools
