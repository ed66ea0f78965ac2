// The programs that a rank has uploaded to its device, where they stay as long as this object lives.
//
// Used by one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

class CudaPrograms {
 public:
  explicit CudaPrograms(const device::cuda::Device* device) : device_(device) {}
  ~CudaPrograms();
  CudaPrograms(const CudaPrograms&) = delete;
  CudaPrograms& operator=(const CudaPrograms&) = delete;

  // Returns the program (kernels::cuda::Program) in device memory; uploads it the first time. The other arguments are
  // those of MakeCudaProgram; `outbound` is the same for each use of the program with that placement.
  Result<CUdeviceptr> OnDevice(const std::shared_ptr<const Program>& program, const Outbound* outbound,
                               const plan::Placement& placement);

 private:
  const device::cuda::Device* const device_;
  std::map<std::pair<const Program*, plan::Placement>, std::pair<std::shared_ptr<const Program>, CUdeviceptr>>
      programs_;
};

}  // namespace axccl::exec
