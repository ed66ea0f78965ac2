// axccl-plan explain: what the library would choose for an operation, from which candidates, and why.
#pragma once

#include <string>

#include "src/base/status.h"
#include "tools/axccl-plan/options.h"

namespace axccl::tools {

// Returns the text to print. Measures this machine if that has not been done, as the first communicator would. An error
// names the file or setting that cannot be used.
Result<std::string> Explain(const Options& options);

}  // namespace axccl::tools
