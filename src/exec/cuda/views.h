// The operands of calls on views in the form of the CUDA interpreter. Pure functions.
#pragma once

#include <cstddef>

#include "src/base/status.h"
#include "src/exec/call/call.h"
#include "src/exec/prepared/program.h"
#include "src/plan/contract.h"

namespace axccl::exec {

// Whether the data about the operands that peers read fits into `bytes`.
bool CudaViewsFit(const ViewList& views, uint64_t bytes);
// Returns an error if a step of the program has more strides than a block of the device has room for.
Status CheckCudaViews(const Call& call, const Program& program);

// If the results of a call of that type are scaled, says so as a task does.
void ScaleResults(const ViewList& views, DataType type, Scaling* scaling, uint64_t* scalar);

size_t CudaViewTableBytes(const ViewList& views);
// Fills memory of that size with the table of an even call, for the rank at `position`. A barrier on views fills the
// outputs with zeros.
void MakeCudaViewTable(const Call& call, const plan::Contract& contract, int position, void* memory);

}  // namespace axccl::exec
