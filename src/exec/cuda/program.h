// Programs and prepared calls in the form that the CUDA interpreter reads (kernels/cuda/launch.h). Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/launch.h"
#include "src/base/status.h"
#include "src/exec/prepared/plan_cache.h"
#include "src/exec/prepared/program.h"

namespace axccl::exec {

// Returns the bytes of a kernels::cuda::Program and what follows it, for device memory aligned to 16 bytes.
// kInvalidUsage if the interpreter has no room for it: too many lanes, or too many operands of a step.
// For ranks on several machines, `outbound`: what the rank sends to those on others; and where they all are.
Result<std::vector<std::byte>> MakeCudaProgram(const Program& program, const Outbound* outbound = nullptr,
                                               const plan::Placement& placement = {});

// The division of the call's data.
kernels::cuda::Cut MakeCudaCut(const Prepared& prepared, kernels::cuda::Packing packing);

}  // namespace axccl::exec
