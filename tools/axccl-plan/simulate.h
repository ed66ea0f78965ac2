// The command simulate of axccl-plan.
#pragma once

#include <string>

#include "src/base/status.h"
#include "tools/axccl-plan/options.h"

namespace axccl::tools {

// Returns the text to print, or the errors of sim::Simulate.
Result<std::string> SimulationReport(const Options& options);

}  // namespace axccl::tools
