// Decides whether a device's store of a whole row of 128 bytes arrives as a whole at peers (kernels/cuda/launch.h).
// CUDA does not promise that: it holds on processors of compute capability 8.0 and later, within a device and over
// NVLink.
#pragma once

#include <string>
#include <vector>

#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"

namespace axccl::exec {

// Returns why it does not hold between `device` and those of `addresses`, as far as this rank can see; empty if it
// holds. It must hold on all ranks.
std::string WhyNoRows(const device::cuda::Device& device, const std::vector<cuda_ipc::BlockAddress>& addresses);

}  // namespace axccl::exec
