// PERF_CALL(ncclFoo(...)): ends the run with call, code and the library's last-error text unless it succeeded.
#pragma once

#include "nccl.h"
#include "perf/common/fail.h"

namespace axccl::perf {

inline void CheckCall(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) [[likely]]
    return;
  Fail(kExitFailed, "%s returned %d (%s): %s", call, static_cast<int>(result), ncclGetErrorString(result),
       ncclGetLastError(nullptr));
}

}  // namespace axccl::perf

#define PERF_CALL(call) ::axccl::perf::CheckCall((call), #call)
