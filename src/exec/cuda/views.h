// The operands of calls on views as the CUDA interpreter takes them. Pure functions.
#pragma once

#include <cstddef>

#include "src/base/status.h"
#include "src/exec/call.h"
#include "src/exec/program.h"
#include "src/plan/contract.h"

namespace axccl::exec {

// What peers read of the operands fits into `bytes`.
bool CudaViewsFit(const ViewList& views, uint64_t bytes);
// An error where a step of the program has more strides than a block of the device has room for.
Status CheckCudaViews(const Call& call, const Program& program);

size_t CudaViewTableBytes(const ViewList& views);
// Fills memory of that size with the table of an even call, for the rank at `position`. A barrier on views fills the
// outputs with zeros.
void MakeCudaViewTable(const Call& call, const plan::Contract& contract, int position, void* memory);

}  // namespace axccl::exec
