// ncclGroupStart, ncclGroupEnd, ncclGroupSimulateEnd.
#include <cstddef>
#include <cstring>

#include "nccl.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/comm/group.h"

using axccl::api::InvalidArgument;
using axccl::api::Report;
using axccl::comm::Group;

AXCCL_API ncclResult_t pncclGroupStart() try {
  if (const axccl::Status status = axccl::api::CheckProcess("ncclGroupStart"); !status.ok()) return Report(status);
  Group::Current().Start();
  return ncclSuccess;
}
AXCCL_TWIN(GroupStart)

AXCCL_API ncclResult_t pncclGroupEnd() try { return Report(Group::Current().End(nullptr)); }
AXCCL_TWIN(GroupEnd)

AXCCL_API ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo) try {
  constexpr unsigned kMagic = 0x74685283;
  // A wrong argument cancels the group like that of any call in it.
  if (Group::Current().open() && simInfo != nullptr &&
      (simInfo->magic != kMagic || simInfo->size < sizeof(ncclSimInfo_t)))
    (void)InvalidArgument(
        "ncclGroupSimulateEnd: argument simInfo is not initialised; start from NCCL_SIM_INFO_INITIALIZER");
  double seconds = 0;
  const axccl::Status status = Group::Current().End(&seconds);
  if (status.ok() && simInfo != nullptr) simInfo->estimatedTime = static_cast<float>(seconds * 1e6);
  return Report(status);
}
AXCCL_TWIN(GroupSimulateEnd)
