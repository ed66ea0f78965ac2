// How calls make windows of GPU ranks.
#pragma once

#include <memory>

#include "src/base/status.h"
#include "src/comm/comm_handle.h"
#include "src/comm/control_log.h"

namespace axccl::api {

// Enqueues nothing, but waits for the other ranks: at once, at the end of the open group, or in the background.
Status MakeWindow(const char* call, const std::shared_ptr<comm::CommHandle>& comm, comm::Making what,
                  const exec::OwnShare& share, const comm::CommHandle::TakeWindow& take);

}  // namespace axccl::api
