// How a communicator is set up by ranks that have one already.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/comm/comm_handle.h"
#include "src/comm/control_exchange.h"
#include "src/comm/setup.h"

namespace axccl::comm {

// Until when a call of all ranks that begins now may wait (AXCCL_INIT_TIMEOUT).
std::chrono::steady_clock::time_point SetupDeadline();

// The options of rank `rank` of `ranks`, which may take as long as AXCCL_INIT_TIMEOUT says from now on.
SetupOptions MakeOptions(int rank, int ranks, exec::DeviceId device, const Config& config,
                         const std::atomic<bool>* abort);

int PositionOf(int rank, const std::vector<int>& group);

// Sets up the communicator of the call's ranks, in the order of `members`. The caller finishes the call.
Result<std::shared_ptr<Communicator>> SetupAmong(MakingCall* call, const std::vector<int>& members,
                                                 SetupOptions options);

}  // namespace axccl::comm
