// axccl-plan explain: what the library would choose for an operation, between what, and why.
#pragma once

#include <string>

#include "src/base/status.h"
#include "tools/axccl-plan/options.h"

namespace axccl::tools {

// What is printed. Measures this machine where that has not been done, as the first communicator would. An error names
// the file or setting that cannot be used.
Result<std::string> Explain(const Options& options);

}  // namespace axccl::tools
