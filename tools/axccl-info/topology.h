// The picture of a machine that axccl-info draws.
#pragma once

#include "tools/axccl-info/options.h"

namespace axccl_info {

// Draws the picture; reports failures on standard error. Returns the exit status.
int ShowTopology(const Options& options);

}  // namespace axccl_info
