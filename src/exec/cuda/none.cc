// Stands in for GPUs where the library was built without a CUDA toolkit.
#include "src/device/host/stream.h"
#include "src/exec/rank_device.h"

namespace axccl::exec {
namespace {

class NoPlatform final : public Platform {
 public:
  uint32_t number() const override { return 1; }
  std::string NameOf(int ordinal) const override { return "CUDA device " + std::to_string(ordinal); }
  const char* log_name() const override { return "cudaDev"; }
  bool shares_devices() const override { return true; }
  bool crosses_machines() const override { return false; }
  bool works_on_host() const override { return false; }
  Result<int> Count() const override { return None(); }
  Result<DeviceId> Current() const override { return None(); }
  DeviceId Take(int ordinal) const override { return {ordinal, this, nullptr}; }
  device::host::Device* HostDevice(int) const override { return device::host::Device::Get(0); }
  Result<Capacity> Measure(int, int, int, const cost::Machine*) const override { return None(); }
  Status ReadOptions(RankOptions*) const override { return None(); }
  Result<std::unique_ptr<RankDevice>> Create(const RankOptions&) const override { return None(); }
  Result<void*> Allocate(size_t) const override { return None(); }
  Result<bool> Free(void*) const override { return false; }
  Status Prepare(std::vector<StreamCall>*) const override { return None(); }
  Status Launch(std::vector<StreamCall>) const override { return None(); }

 private:
  static Status None() {
    return MakeStatus(Code::kInvalidUsage,
                      "this build of AxCCL has no CUDA device: configure where nvcc and cuda.h are found, or set "
                      "AXCCL_DEVICE=host");
  }
};

}  // namespace

const Platform& Platform::Cuda() {
  static const auto* const platform = new NoPlatform;
  return *platform;
}

}  // namespace axccl::exec
