#include "src/exec/cuda/platform.h"

#include <algorithm>
#include <cstring>

#include "src/base/param.h"
#include "src/base/service_fd.h"
#include "src/exec/cuda/rank.h"

namespace axccl::exec {
namespace {

using device::cuda::Device;

constexpr int kMaxLanes = kernels::cuda::kMaxLanes;

void ReadAdapters(RankOptions* options) {
  using Adapters = RankOptions::Adapters;
  const std::string own = param::Get("AXCCL_GPUDIRECT");
  options->adapter_distance = ParsePciDistance(param::Get("NCCL_NET_GDR_LEVEL")).value_or(options->adapter_distance);
  options->adapter_bytes = static_cast<uint64_t>(param::GetInt("AXCCL_GPUDIRECT_BYTES"));
  options->adapters = own == "always"                                  ? Adapters::kAlways
                      : own == "never"                                 ? Adapters::kNever
                      : options->adapter_distance == PciDistance::kLoc ? Adapters::kNever
                                                                       : Adapters::kAuto;
}

class CudaPlatform final : public CudaKind {
 public:
  Result<int> Count() const override { return Device::Count(); }
  Result<DeviceId> Current() const override {
    AXCCL_ASSIGN_OR_RETURN(const int ordinal, Device::Current());
    AXCCL_ASSIGN_OR_RETURN(const Device* const device, Device::Get(ordinal));
    AXCCL_RETURN_IF_ERROR(device->CheckCurrent());
    return Take(ordinal);
  }

  Result<Cores> CoresOf(int ordinal) const override {
    AXCCL_ASSIGN_OR_RETURN(const Device* const device, Device::Get(ordinal));
    Cores cores{{}, device->multiprocessors()};
    std::memcpy(cores.device.data(), device->uuid().bytes, cores.device.size());
    return cores;
  }
  // Fixed figures. A device without other ranks of the communicator; how many there are is known later (comm/setup.cc).
  Result<Capacity> Measure(int ordinal, int, LaneBounds bounds, const cost::Machine*) const override {
    AXCCL_ASSIGN_OR_RETURN(const Cores cores, CoresOf(ordinal));
    const auto most = static_cast<uint32_t>(std::clamp(bounds.most, 1, kMaxLanes));
    return Capacity{cost::GpuMachine(cores.count, 1), most, std::min(most, static_cast<uint32_t>(bounds.least))};
  }
  Status ReadOptions(RankOptions* options) const override {
    AXCCL_ASSIGN_OR_RETURN(options->protocols, Protocols::Parse(param::Get("NCCL_PROTO")));
    options->copy_bytes = static_cast<uint64_t>(param::GetInt("AXCCL_COPY_BYTES"));
    options->direct = param::GetInt("NCCL_P2P_DISABLE") == 0;
    options->addresses = param::GetInt("NCCL_P2P_DIRECT_DISABLE") == 0;
    options->nvls = static_cast<RankOptions::Nvls>(param::GetInt("NCCL_NVLS_ENABLE"));
    options->nvls_bytes = static_cast<uint64_t>(param::GetInt("AXCCL_NVLS_BYTES"));
    ReadAdapters(options);
    return Status();
  }
  Result<std::unique_ptr<RankDevice>> Create(const RankOptions& options) const override {
    AXCCL_ASSIGN_OR_RETURN(Device* const device, Device::Get(options.device.ordinal));
    auto rank = std::make_unique<CudaRank>(options, device);
    AXCCL_RETURN_IF_ERROR(rank->Allocate());
    return std::unique_ptr<RankDevice>(std::move(rank));
  }

  Result<void*> Allocate(size_t bytes) const override {
    service::BindToProcess();
    return AllocateOnGpu(bytes);
  }
  Result<bool> Free(void* memory) const override { return FreeOnGpu(memory); }

  // A peer that has left is the call's own error; a kernel would wait for it.
  Status Prepare(std::vector<StreamCall>* calls) const override {
    for (const StreamCall& call : *calls) {
      const Status status = call.channel->members().Check(-1);
      if (!status.ok()) call.owner->Fail(status);
      AXCCL_RETURN_IF_ERROR(status);
    }
    return PrepareOnGpus(calls);
  }
  Status Launch(std::vector<StreamCall> calls) const override {
    for (const StreamCall& call : calls) call.owner->CountOperation();
    const Status status = LaunchOnGpus(calls);
    for (const StreamCall& call : calls) {
      if (!status.ok()) call.owner->Fail(status);
    }
    return status;
  }
};

}  // namespace

const Platform& Platform::Cuda() {
  static const auto* const platform = new CudaPlatform;
  return *platform;
}

}  // namespace axccl::exec
