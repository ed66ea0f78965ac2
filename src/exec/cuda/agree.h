// How ranks agree on what all of them can do, while their communicator or a window is made.
#pragma once

#include <cstddef>
#include <string>

#include "src/base/status.h"
#include "src/exec/platform/gather.h"

namespace axccl::exec {

// Collective: returns the error of the first of the ranks that has failed, empty if none has. A rank that has failed
// still takes part, so that no rank waits for it.
Result<std::string> FirstFailure(Gather* gather, size_t ranks, const Status& mine);
// The same as a status, whose text names the rank; ok if none has failed.
Status Agree(Gather* gather, size_t ranks, const Status& mine);

}  // namespace axccl::exec
