// ncclGroupStart, ncclGroupEnd, ncclGroupSimulateEnd.
#include <cstddef>
#include <cstring>

#include "nccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/comm/call_group.h"

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT
using comm::CallGroup;

AXCCL_API ncclResult_t pncclGroupStart() {
  return Entry("ncclGroupStart", [&](const char*) -> Status {
    CallGroup::Current().Start();
    return Status();
  });
}
AXCCL_TWIN(GroupStart)

AXCCL_API ncclResult_t pncclGroupEnd() {
  return Entry("ncclGroupEnd", [&](const char* call) { return CallGroup::Current().End(call); });
}
AXCCL_TWIN(GroupEnd)

AXCCL_API ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  return Entry("ncclGroupSimulateEnd", [&](const char* call) -> Status {
    constexpr unsigned kMagic = 0x74685283;
    // A wrong argument cancels the group, as an error of any call in it does.
    if (simInfo != nullptr && (simInfo->magic != kMagic || simInfo->size < sizeof(ncclSimInfo_t)))
      CallGroup::Keep(
          InvalidArgument("%s: argument simInfo is not initialised; start from NCCL_SIM_INFO_INITIALIZER", call));
    double seconds = -1;  // the end of an inner group leaves it
    AXCCL_RETURN_IF_ERROR(CallGroup::Current().End(call, &seconds));
    if (simInfo != nullptr && seconds >= 0) simInfo->estimatedTime = static_cast<float>(seconds * 1e6);
    return Status();
  });
}
AXCCL_TWIN(GroupSimulateEnd)
