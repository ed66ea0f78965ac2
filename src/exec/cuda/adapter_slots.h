// Slots between machines in memory of the devices, which network adapters read and write (GPUDirect RDMA).
//
// A rank's own ones are in its block on the device, where plans have them on one machine. Of the slots of each rank on
// another machine there is a mirror on the device: of its scratch for the default channel, and for messages between the
// two. The receiver fetches such a slot, which costs a round trip, so calls with small slots have them in host memory;
// lines always are there.
//
// What this relies on (CUDA driver API, guide to GPUDirect RDMA):
// - An adapter can read and write what cuMemAlloc gives if CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED is 1.
// - It reads what kernels wrote before a release at system scope that the host acquired before it asked the adapter.
// - What it wrote is visible to kernels that acquire a later store of the host, if the device orders such writes for
//   itself (CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING), or cuFlushGPUDirectRDMAWrites came in between. Nobody
//   says that this call does not wait for another thread, whose call of the driver waits for kernels; so it is made
//   only where the user demands it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/exec/cuda/layout.h"
#include "src/exec/cuda/proxy.h"
#include "src/exec/platform/platform.h"

namespace axccl::exec {

class AdapterSlots {
 public:
  // Allocates the mirrors for what comes from `far`. The error says why this rank has no such slots.
  static Result<std::unique_ptr<AdapterSlots>> Make(const device::cuda::Device& device, const RankOptions& options,
                                                    const CudaLayout& layout, std::byte* own_block,
                                                    const std::vector<CudaProxy::Far>& far);
  // Nothing is sent any more.
  ~AdapterSlots();
  AdapterSlots(const AdapterSlots&) = delete;
  AdapterSlots& operator=(const AdapterSlots&) = delete;

  // All ranks have them, and messages from `far` may name them from now on.
  void Use(const std::vector<CudaProxy::Far>& far) const;
  // Where the scratch of a rank of another machine is here.
  std::byte* ScratchOf(int rank, const ChannelLayout& layout) const;

 private:
  class Part;

  AdapterSlots(const device::cuda::Device& device) : device_(device) {}

  const device::cuda::Device& device_;
  CUdeviceptr mirrors_ = 0;
  std::vector<std::shared_ptr<const Part>> parts_;  // by rank; null: on this machine
};

}  // namespace axccl::exec
