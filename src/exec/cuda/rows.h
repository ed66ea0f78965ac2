// Decides whether a device's store of a whole row of 128 bytes arrives as a whole at peers (kernels/cuda/launch.h).
// CUDA does not promise that: it holds on processors of compute capability 8.0 and later, within a device and over
// NVLink.
#pragma once

#include <string>
#include <vector>

#include "src/device/cuda/device.h"
#include "transports/cuda_ipc/address.h"

namespace axccl::exec {

struct Rows {
  std::string why_not;  // as far as this rank can see; empty: it holds
  bool unseen = false;  // only because devices are not visible to this process (CUDA_VISIBLE_DEVICES)
};
// Between `device` and those of `addresses`. It must hold on all ranks.
Rows RowsBetween(const device::cuda::Device& device, const std::vector<cuda_ipc::BlockAddress>& addresses);

}  // namespace axccl::exec
