// Whether a store of a whole row of 128 bytes by a device arrives as a whole at peers (kernels/cuda/launch.h). That is
// no promise of CUDA: it is so on processors of compute capability 8.0 and later, within a device and over NVLink.
#pragma once

#include <string>
#include <vector>

#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"

namespace axccl::exec {

// Why it is not so between `device` and those of `addresses`, as far as can be seen here; empty where it is. All ranks
// must find it so.
std::string WhyNoRows(const device::cuda::Device& device, const std::vector<cuda_ipc::BlockAddress>& addresses);

}  // namespace axccl::exec
