// What the GPUs of this machine lack for a test: options of the software GPU (SOFTGPU_*), or further devices.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace axccl::harness {

// For tests that rest on so many devices. Others set SOFTGPU_DEVICES alone, and ranks take turns where there are fewer.
inline constexpr const char* kNeedsGpus = "AXCCL_TEST_NEEDS_GPUS";

struct GpusHere {
  bool software = true;  // or there is no driver
  int count = 0;         // of real ones

  // The driver that AXCCL_TEST_DEVICE=cuda means. AXCCL_TEST_REAL_GPUS=n: as with n real GPUs, whatever it is.
  static const GpusHere& Get();
  // Why a test with these variables cannot run here; "" if it can.
  std::string Lack(const std::vector<std::pair<std::string, std::string>>& environment) const;
};

}  // namespace axccl::harness
