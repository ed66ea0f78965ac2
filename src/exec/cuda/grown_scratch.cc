#include "src/exec/cuda/grown_scratch.h"

#include <utility>

#include "kernels/cuda/launch.h"
#include "src/base/log.h"

namespace axccl::exec {

uint32_t GrownScratch::Find(const CudaBuffers& buffers) const {
  if (!place_) return kernels::cuda::kUnmapped;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!buffers.IsMapped(*place_, rank)) return kernels::cuda::kUnmapped;
  }
  return place_->number;
}

// Why this rank does without; ok if nothing keeps it from it.
Status GrownScratch::WhyNot(const CudaBuffers& buffers) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (buffers.Declines(rank)) return MakeStatus(Code::kInvalidUsage, "rank %d has none", rank);
    if (place_ && buffers.IsUnmappable(*place_, rank))
      return MakeStatus(Code::kInvalidUsage, "rank %d cannot map it", rank);
  }
  return Status();
}

bool GrownScratch::IsDue(const CudaBuffers& buffers, uint64_t cramped) const {
  if (declined_) return false;
  return place_ ? !WhyNot(buffers).ok() : cramped >= kPatience;
}

void GrownScratch::Attend(CudaBuffers* buffers) {
  Status status = WhyNot(*buffers);
  if (status.ok() && !place_) status = Take(buffers);
  if (status.ok()) {
    AXCCL_INFO(kInit, "rank %d has %llu bytes of scratch more, because buffers of large calls cannot be mapped", rank_,
               static_cast<unsigned long long>(bytes_));
    return;
  }
  declined_ = true;
  buffers->Decline();
  if (place_) buffers->Release(*std::exchange(place_, std::nullopt));
  Free();
  AXCCL_INFO(kInit, "rank %d does without %llu bytes of scratch more: %.*s", rank_,
             static_cast<unsigned long long>(bytes_), static_cast<int>(status.message().size()),
             status.message().data());
}

Status GrownScratch::Take(CudaBuffers* buffers) {
  AXCCL_ASSIGN_OR_RETURN(memory_, cuda_ipc::AllocateMapped(device_, bytes_));
  AXCCL_ASSIGN_OR_RETURN(place_, buffers->Hold(reinterpret_cast<const void*>(memory_.address), bytes_));
  return Status();
}

void GrownScratch::Free() {
  if (memory_.address != 0) cuda_ipc::Free(device_, std::exchange(memory_, {}));
}

}  // namespace axccl::exec
