#include "src/exec/host/rank.h"

#include <algorithm>
#include <utility>

#include "src/base/sizes.h"
#include "src/device/host/current.h"
#include "src/device/host/find_stream.h"
#include "src/exec/host/host_pipeline.h"
#include "transports/shm/heap.h"

namespace axccl::exec {
namespace {

using device::host::Device;

constexpr int kMaxLanes = 8;

class HostPlatform final : public Platform {
 public:
  uint32_t number() const override { return 0; }
  std::string NameOf(int) const override { return "the host"; }
  const char* log_name() const override { return "device"; }
  bool shares_devices() const override { return false; }
  bool works_on_host() const override { return true; }

  Result<int> Count() const override { return device::host::kMaxDevices; }
  Result<DeviceId> Current() const override {
    AXCCL_ASSIGN_OR_RETURN(const int ordinal, device::host::ClaimDevice());
    return Take(ordinal);
  }
  DeviceId Take(int ordinal) const override { return {ordinal, this, Device::Get(ordinal)->Hold()}; }
  Device* HostDevice(int ordinal) const override { return Device::Get(ordinal); }

  Result<Cores> CoresOf(int) const override { return Cores(); }
  Result<Capacity> Measure(int, int ranks, LaneBounds bounds, const cost::Machine* known) const override {
    Capacity capacity{known != nullptr ? *known : cost::MeasureOnce(),
                      static_cast<uint32_t>(std::clamp(bounds.least, 1, kMaxLanes))};
    capacity.machine.ranks = ranks;
    return capacity;
  }
  Status ReadOptions(RankOptions*) const override { return Status(); }
  Result<std::unique_ptr<RankDevice>> Create(const RankOptions& options) const override {
    return std::unique_ptr<RankDevice>(std::make_unique<HostRank>(Device::Get(options.device.ordinal), options.rank));
  }

  Result<void*> Allocate(size_t bytes) const override {
    AXCCL_ASSIGN_OR_RETURN(shm::Heap* const heap, shm::Heap::Get());
    // Windows need the alignment (NCCL_WIN_REQUIRED_ALIGNMENT).
    return heap->Allocate(bytes, kPage, shm::Heap::Pages::kHuge);
  }
  Result<bool> Free(void* memory) const override {
    AXCCL_ASSIGN_OR_RETURN(shm::Heap* const heap, shm::Heap::Get());
    AXCCL_RETURN_IF_ERROR(heap->Free(memory));
    return true;
  }

  Status Prepare(std::vector<StreamCall>*) const override { return Status(); }
  Status Launch(std::vector<StreamCall> calls) const override { return LaunchOnHost(std::move(calls)); }
};

}  // namespace

const Platform& Platform::Host() {
  static const auto* const platform = new HostPlatform;
  return *platform;
}

const RankDevice::Traits& HostRank::traits() const {
  static constexpr Traits traits = {.runs_uneven = true, .stages_in_block = true, .maps_registered = true};
  return traits;
}

Status HostRank::FindStream(void* handle, const char* call, StreamRef* stream) const {
  return device::host::FindStream(handle, call, &stream->host);
}

Status HostRank::CheckMemory(const void* memory, size_t bytes, const char* name) const {
  AXCCL_ASSIGN_OR_RETURN(shm::Heap* const heap, shm::Heap::Get());
  uint64_t offset = 0;
  if (heap->Contains(memory, bytes, &offset)) return Status();
  if (heap->TakenBack(memory, bytes))
    return MakeStatus(Code::kInvalidArgument,
                      "%s has pages that peers cannot map any more, since a call on them was given up while a peer was "
                      "in the middle of it (ncclCommAbort); free it and allocate again",
                      name);
  if (heap->Contains(memory, 1, &offset))
    return MakeStatus(Code::kInvalidArgument,
                      "%s has fewer than %zu bytes behind it; pass at most as many as were allocated", name, bytes);
  return MakeStatus(Code::kInvalidArgument,
                    "%s is not memory from ncclMemAlloc or axcclMalloc; windows need memory that peers can map", name);
}

Result<std::shared_ptr<Pipeline>> HostRank::MakePipeline(Channel* on, std::vector<PipelinePart> parts) {
  return HostPipeline::Make(device_, *on, std::move(parts));
}

const char* HostRank::LinkName(const Member& peer) const { return peer.rank == rank_ ? "self" : peer.reach->Name(); }

}  // namespace axccl::exec
