// The ways to a new communicator: from unique ids, all ranks in one call, from a parent.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "src/base/status.h"
#include "src/boot/boot.h"
#include "src/comm/comm.h"
#include "src/exec/platform.h"

namespace axccl::comm {

// Where a rank lives that the calling thread creates: on what AXCCL_DEVICE says, and there on the device the thread has
// chosen (cudaSetDevice, axcclHostSetDevice).
Result<exec::DeviceId> CurrentDevice();
// The kind of device that is. With AXCCL_DEVICE=auto GPUs, where there are any and the thread has not chosen a host
// device.
Result<const exec::Platform*> CurrentPlatform();

// Rank `rank` of `ranks`, meeting the others through the ids, usually one.
Result<std::shared_ptr<Communicator>> CreateFromId(std::span<const boot::UniqueId> ids, int rank, int ranks,
                                                   exec::DeviceId device, const Config& config,
                                                   const std::atomic<bool>* abort);

// All ranks of a communicator at once, rank i on devices[i].
std::vector<Result<std::shared_ptr<Communicator>>> CreateAll(const std::vector<exec::DeviceId>& devices,
                                                             const Config& config, const std::atomic<bool>* abort);

// A call on `parent` that all its ranks make, or all but those of `excluded` (ascending). In the order of the program.
Result<std::shared_ptr<MakingCall>> BeginWithAll(const std::shared_ptr<Communicator>& parent, Making what);
Result<std::shared_ptr<MakingCall>> BeginWithout(const std::shared_ptr<Communicator>& parent,
                                                 const std::vector<int>& excluded);

// Of those ranks, the ones with equal `color` >= 0 form a communicator, ordered by (key, parent rank). A null
// communicator for color -1.
Result<std::shared_ptr<Communicator>> Split(MakingCall* call, int color, int key, const Config& config,
                                            const std::atomic<bool>* abort);
// All ranks of the call do, in their order.
Result<std::shared_ptr<Communicator>> Shrink(MakingCall* call, const Config& config, const std::atomic<bool>* abort);
// With new ones, to be `ranks` in all; `id` at one of the present at least.
Result<std::shared_ptr<Communicator>> Grow(MakingCall* call, int ranks, const boot::UniqueId* id, const Config& config,
                                           const std::atomic<bool>* abort);

}  // namespace axccl::comm
