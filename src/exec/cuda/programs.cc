#include "src/exec/cuda/programs.h"

#include <vector>

#include "src/exec/cuda/program.h"

namespace axccl::exec {

CudaPrograms::~CudaPrograms() {
  const device::cuda::Scope scope(*device_);
  for (const auto& [program, placed] : programs_) {
    for (const auto& [placement, uploaded] : placed) device_->Return(uploaded.memory);
  }
}

Result<const CudaPrograms::Uploaded*> CudaPrograms::Upload(const std::shared_ptr<const Program>& program,
                                                           const Outbound* outbound, const plan::Placement& placement) {
  std::map<plan::Placement, Uploaded>& placed = programs_[program.get()];
  const auto it = placed.find(placement);
  if (it != placed.end()) return &it->second;
  AXCCL_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, MakeCudaProgram(*program, outbound, placement));
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr memory, device_->Take(bytes.size()));
  const auto& header = *reinterpret_cast<const kernels::cuda::Program*>(bytes.data());
  const Uploaded& uploaded =
      placed[placement] = {program, memory, LowerProgram(*program), header.packing, header.beyond_first != 0};
  AXCCL_RETURN_IF_ERROR(device_->Upload(memory, bytes.data(), bytes.size()));
  return &uploaded;
}

}  // namespace axccl::exec
