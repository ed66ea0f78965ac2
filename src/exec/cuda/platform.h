// The properties of GPUs as a kind of device that do not depend on whether the library was built with a CUDA toolkit.
#pragma once

#include <string>

#include "src/exec/platform/platform.h"

namespace axccl::exec {

class CudaKind : public Platform {
 public:
  uint32_t number() const override { return 1; }
  std::string NameOf(int ordinal) const override { return "CUDA device " + std::to_string(ordinal); }
  const char* log_name() const override { return "cudaDev"; }
  bool shares_devices() const override { return true; }
  bool works_on_host() const override { return false; }
  DeviceId Take(int ordinal) const override { return {ordinal, this, nullptr}; }
  device::host::Device* HostDevice(int) const override { return device::host::Device::Get(0); }
};

}  // namespace axccl::exec
