// What a device has mapped.
#pragma once

#include "src/device/cuda/device.h"

namespace axccl::cuda_ipc::test {

inline bool IsMapped(const device::cuda::Device& device, CUdeviceptr address) {
  const device::cuda::Scope scope(device);
  CUdeviceptr base = 0;
  return device::cuda::Driver::Loaded().cuMemGetAddressRange(&base, nullptr, address) == CUDA_SUCCESS;
}

}  // namespace axccl::cuda_ipc::test
