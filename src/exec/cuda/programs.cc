#include "src/exec/cuda/programs.h"

#include <vector>

#include "src/exec/cuda/program.h"

namespace axccl::exec {

CudaPrograms::~CudaPrograms() {
  const device::cuda::Scope scope(*device_);
  for (const auto& [program, uploaded] : programs_) device_->Return(uploaded.second);
}

Result<CUdeviceptr> CudaPrograms::OnDevice(const std::shared_ptr<const Program>& program, const Outbound* outbound,
                                           const plan::Placement& placement) {
  const std::pair key(program.get(), placement);
  const auto it = programs_.find(key);
  if (it != programs_.end()) return it->second.second;
  AXCCL_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, MakeCudaProgram(*program, outbound, placement));
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr memory, device_->Take(bytes.size()));
  programs_[key] = {program, memory};
  AXCCL_RETURN_IF_ERROR(device_->Upload(memory, bytes.data(), bytes.size()));
  return memory;
}

}  // namespace axccl::exec
