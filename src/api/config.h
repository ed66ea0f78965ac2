// Reads an ncclConfig_t of any version into comm::Config.
#pragma once

#include "nccl.h"
#include "src/base/status.h"
#include "src/comm/comm_handle.h"

namespace axccl::api {

// Reads `config` (null: `fallback`) by NCCL's rule: no more bytes than the caller's struct has, and no field newer than
// the version that it names. Errors name `call`. NCCL_COMM_BLOCKING, NCCL_CTA_POLICY, NCCL_GRAPH_MIXING_SUPPORT, and
// NCCL_MIN_CTAS and NCCL_MAX_CTAS under these names or their older ones, have precedence; a minimum above the maximum
// is then lowered to it.
Result<comm::Config> ReadConfig(const char* call, const ncclConfig_t* config, const comm::Config& fallback);

}  // namespace axccl::api
