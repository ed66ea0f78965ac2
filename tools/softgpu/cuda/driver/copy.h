// Copies and fills, from the parameters of the entry points.
#pragma once

#include "tools/softgpu/cuda/driver/entry.h"

namespace softgpu::cuda {

// The sides that must be memory that CUDA knows; the others may be.
struct Sides {
  bool to_known = false, from_known = false;
};

CUresult CheckCopy(const CopyShape& shape, Sides sides);
// Returns CUDA_ERROR_NOT_SUPPORTED for arrays.
CUresult ReadCopy(const CUDA_MEMCPY3D& parameters, CopyShape* shape, Sides* sides);
CUresult CheckFill(const FillShape& shape);

CUresult CopyOn(CUstream stream, const CopyShape& shape, Sides sides);
// Waits for the copy.
CUresult CopyNow(CUstream stream, const CopyShape& shape, Sides sides);
CUresult FillOn(CUstream stream, const FillShape& shape);
// Runs asynchronously, as in CUDA, where fills of device memory do not wait.
CUresult FillNow(CUstream stream, const FillShape& shape);

}  // namespace softgpu::cuda
