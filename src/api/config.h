// ncclConfig_t as callers of any age pass it, read into comm::Config.
#pragma once

#include "nccl.h"
#include "src/base/status.h"
#include "src/comm/comm.h"

namespace axccl::api {

// Reads `config` (null: `fallback`) by NCCL's rule: no more bytes than the caller's struct has, and no field newer than
// the version it names. `call` is named in errors. NCCL_COMM_BLOCKING, NCCL_MIN_CTAS and NCCL_MAX_CTAS override.
Result<comm::Config> ReadConfig(const char* call, const ncclConfig_t* config, const comm::Config& fallback);

}  // namespace axccl::api
