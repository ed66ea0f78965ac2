// All ranks of this process on GPUs, for what may only be done while none of their kernels is under way. Thread-safe.
#pragma once

#include <functional>

namespace axccl::exec {

class CudaRank;

// From the first to the second, the rank counts.
void EnterCudaRank(CudaRank* rank);
void LeaveCudaRank(CudaRank* rank);

// Runs `action` if all ranks are idle (CudaRank::idle), and launch nothing before it has returned. Otherwise does
// nothing; waits for no rank. The caller holds the launching() of `caller`.
void IfRanksAreIdle(const CudaRank* caller, const std::function<void()>& action);

}  // namespace axccl::exec
