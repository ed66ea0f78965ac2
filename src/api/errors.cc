// Versions and error texts.
#include "axccl/axccl.h"
#include "nccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/base/log.h"

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

namespace {

Status GiveVersion(const char* call, int code, int* version) {
  if (version == nullptr) return InvalidArgument("%s: argument version is NULL", call);
  *version = code;
  return Status();
}

// Programs compare these texts, so they equal NCCL's word by word.
const char* TextOf(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    case ncclTimeout:
      return "timeout";
    default:
      return "unknown result code";
  }
}

}  // namespace

AXCCL_API ncclResult_t pncclGetVersion(int* version) {
  return EntryInAnyProcess("ncclGetVersion",
                           [&](const char* call) { return GiveVersion(call, NCCL_VERSION_CODE, version); });
}
AXCCL_TWIN(GetVersion)

AXCCL_API ncclResult_t axcclGetVersion(int* version) {
  return EntryInAnyProcess("axcclGetVersion",
                           [&](const char* call) { return GiveVersion(call, AXCCL_VERSION_CODE, version); });
}

AXCCL_API const char* pncclGetErrorString(ncclResult_t result) {
  return EntryOr("ncclGetErrorString", "unknown result code",
                 [&](const char*) -> Result<const char*> { return TextOf(result); });
}
AXCCL_TWIN(GetErrorString)

AXCCL_API const char* pncclGetLastError(ncclComm_t comm) {
  return EntryOr("ncclGetLastError", "out of memory",
                 [&](const char*) -> Result<const char*> { return LastError(comm); });
}
AXCCL_TWIN(GetLastError)

AXCCL_API void pncclResetDebugInit() {
  (void)EntryInAnyProcess("ncclResetDebugInit", [&](const char*) { return log::Reset(), Status(); });
}
AXCCL_TWIN(ResetDebugInit)
