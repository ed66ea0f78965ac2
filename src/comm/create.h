// The ways to create a communicator: from unique ids, all ranks in one call, or from a parent. For shrinks, see
// shrink.h.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "src/base/status.h"
#include "src/boot/boot.h"
#include "src/comm/comm_handle.h"
#include "src/exec/platform/platform.h"

namespace axccl::comm {

// The device of a rank that the calling thread creates: of the kind that AXCCL_DEVICE names, and the device that the
// thread has chosen (cudaSetDevice, axcclHostSetDevice).
Result<exec::DeviceId> CurrentDevice();
// The kind of that device. With AXCCL_DEVICE=auto: GPUs, if there are any and the thread has not chosen a host device.
Result<const exec::Platform*> CurrentPlatform();

// Creates rank `rank` of `ranks`, which meets the others through the ids, usually one.
Result<std::shared_ptr<Communicator>> CreateFromId(std::span<const boot::UniqueId> ids, int rank, int ranks,
                                                   exec::DeviceId device, const Config& config,
                                                   const std::atomic<bool>* abort);

// Creates all ranks of a communicator at once, rank i on devices[i].
std::vector<Result<std::shared_ptr<Communicator>>> CreateAll(const std::vector<exec::DeviceId>& devices,
                                                             const Config& config, const std::atomic<bool>* abort);

// Begins a call on `parent` that all its ranks make. In the order of the program.
Result<std::shared_ptr<MakingCall>> BeginWithAll(const std::shared_ptr<Communicator>& parent, Making what);

// The ranks of the call with equal `color` >= 0 form a communicator, ordered by (key, parent rank). Returns a null
// communicator for color -1.
Result<std::shared_ptr<Communicator>> Split(MakingCall* call, int color, int key, const Config& config,
                                            const std::atomic<bool>* abort);
// What an existing rank of a growing communicator knows of the id by which new ranks join.
enum class GrowId : uint32_t { kNone, kMade, kPassed };
// Existing and new ranks form a communicator of `ranks` in total. The id is one that an existing rank was passed, else
// one that it has made. *disagree: existing ranks differ in `ranks`, which is an error, and the id may be used again.
Result<std::shared_ptr<Communicator>> Grow(MakingCall* call, int ranks, GrowId known, const boot::UniqueId& id,
                                           const Config& config, const std::atomic<bool>* abort, bool* disagree);

}  // namespace axccl::comm
