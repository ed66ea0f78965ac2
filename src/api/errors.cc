// Versions and error texts.
#include "axccl/axccl.h"
#include "nccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/base/log.h"

using axccl::api::InvalidArgument;

AXCCL_API ncclResult_t pncclGetVersion(int* version) try {
  if (version == nullptr) return InvalidArgument("ncclGetVersion: argument version is NULL");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
AXCCL_TWIN(GetVersion)

AXCCL_API ncclResult_t axcclGetVersion(int* version) try {
  if (version == nullptr) return InvalidArgument("axcclGetVersion: argument version is NULL");
  *version = AXCCL_VERSION_CODE;
  return ncclSuccess;
}
AXCCL_CATCH(axcclGetVersion)

// Programs match these texts: they are NCCL's, word by word.
AXCCL_API const char* pncclGetErrorString(ncclResult_t result) try {
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
AXCCL_TWIN_ELSE(GetErrorString, "unknown result code")

AXCCL_API const char* pncclGetLastError(ncclComm_t comm) try { return axccl::api::LastError(comm); }
AXCCL_TWIN_ELSE(GetLastError, "out of memory")

AXCCL_API void pncclResetDebugInit() try { axccl::log::Reset(); }
AXCCL_TWIN_ELSE(ResetDebugInit, )
