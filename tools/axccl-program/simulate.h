// The simulation of a program: its model, and what it found.
#pragma once

#include <memory>
#include <string>

#include "src/base/status.h"
#include "src/program/simulate.h"
#include "tools/axccl-program/options.h"

namespace axccl::tools {

// kSystemError or kInvalidArgument, with the name of the file, if the fabric cannot be read.
Result<std::unique_ptr<program::Model>> ModelOf(const Options& o);
// A line for the time and one for each rank; of many ranks alike, one.
std::string ReportOf(const program::Program& program, const program::Simulation& simulation);

}  // namespace axccl::tools
