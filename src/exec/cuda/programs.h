// The programs that a rank has uploaded to its device, where they stay as long as this object lives.
//
// Used by one thread at a time.
#pragma once

#include <map>
#include <memory>

#include "src/base/status.h"
#include "src/device/cuda/device.h"
#include "src/exec/cuda/small.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

class CudaPrograms {
 public:
  explicit CudaPrograms(const device::cuda::Device* device) : device_(device) {}
  ~CudaPrograms();
  CudaPrograms(const CudaPrograms&) = delete;
  CudaPrograms& operator=(const CudaPrograms&) = delete;

  struct Uploaded {
    std::shared_ptr<const Program> program;
    CUdeviceptr memory = 0;  // a kernels::cuda::Program
    LoweredProgram lowered;
    kernels::cuda::Packing packing = kernels::cuda::Packing::kNone;  // with beyond_first as kernels::cuda::Program's
    bool beyond_first = false;

    const kernels::cuda::Program* on_device() const { return reinterpret_cast<const kernels::cuda::Program*>(memory); }
  };

  // Uploads the program the first time. The other arguments are those of MakeCudaProgram; `outbound` is the same for
  // each use of the program with that placement. The result lives as long as this object.
  Result<const Uploaded*> Upload(const std::shared_ptr<const Program>& program, const Outbound* outbound,
                                 const plan::Placement& placement);

 private:
  const device::cuda::Device* const device_;
  std::map<const Program*, std::map<plan::Placement, Uploaded>> programs_;
};

}  // namespace axccl::exec
