// OpenBLAS, loaded when a run asks for it: nothing here is linked with it.
#pragma once

#include "src/base/status.h"
#include "src/program/fast/fast.h"

namespace axccl::tools {

// Loads it for the rest of the process; every product is then computed by the thread that asks for it. kSystemError,
// which names the package to install, if it is not there. Sets an environment variable, so the process must have one
// thread when it is first called. Afterwards thread-safe.
Result<program::Products> LoadBlas();

}  // namespace axccl::tools
