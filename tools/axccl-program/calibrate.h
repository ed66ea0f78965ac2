// Measures this machine for simulations.
#pragma once

#include <string>

#include "src/base/status.h"
#include "tools/axccl-program/run_options.h"

namespace axccl::tools {

// The text of a fabric (src/program/simulate/machines.h): what that many ranks need, as threads that run local
// operations by `how.local` at the same time. Takes some seconds for each two ranks. Errors are those of a run.
Result<std::string> Calibrate(int ranks, const RunOptions& how);

}  // namespace axccl::tools
