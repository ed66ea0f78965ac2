// Replaces the GPU code if the library is built without a CUDA toolkit.
#include "src/exec/cuda/platform.h"
#include "src/exec/platform/rank_device.h"

namespace axccl::exec {
namespace {

class NoPlatform final : public CudaKind {
 public:
  Result<int> Count() const override { return None(); }
  Result<DeviceId> Current() const override { return None(); }
  Result<Cores> CoresOf(int) const override { return None(); }
  Result<Capacity> Measure(int, int, LaneBounds, const cost::Machine*) const override { return None(); }
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
