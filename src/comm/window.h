// Windows of ranks on devices, made in a call of all ranks of a communicator.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "src/base/status.h"
#include "src/comm/control_exchange.h"
#include "src/exec/platform/window.h"

namespace axccl::comm {

// `share`: of this rank. Ends the call (of kind Making::kWindow), which takes as long as
// AXCCL_INIT_TIMEOUT says at most, and ends when *abort is set. All ranks get a window, or all an error.
Result<std::unique_ptr<exec::Window>> MakeWindow(MakingCall* call, const exec::OwnShare& share,
                                                 const std::atomic<bool>* abort);

}  // namespace axccl::comm
