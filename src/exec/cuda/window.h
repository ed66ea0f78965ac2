// How the ranks of a communicator on GPUs make a window (exec/platform/window.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/exec/channel/members.h"
#include "src/exec/platform/rank_device.h"
#include "src/exec/platform/window.h"
#include "transports/cuda_ipc/multicast_space.h"

namespace axccl::exec {

// Collective over `members`, which are all ranks: what each registers becomes its share. All of them get a window, or
// all an error that names the first rank that has failed, unless the exchange itself fails. `ready`: an error says why
// this rank can have none. `space`: where kernels of the device reach all ranks of windows at once; null if there is
// nothing of the kind, on any rank.
Result<std::unique_ptr<Window>> MakeCudaWindow(Gather* gather, const device::cuda::Device& device,
                                               const std::vector<Member>& members, int rank, const Status& ready,
                                               const OwnShare& share,
                                               const std::shared_ptr<cuda_ipc::MulticastSpace>& space);

}  // namespace axccl::exec
