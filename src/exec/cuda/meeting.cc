// Created channels on GPUs: how their members find each other's areas.
//
// Each rank creates channels by itself, and a call on one must not wait on the host for the other ranks. So a channel's
// first use takes an area of the rank's device and publishes it in the rank's table of channels, where the others find
// it as on the host (src/comm/channels.h). Every thread that enqueues looks for the members, and so does the watchdog.
// Kernels that start earlier wait for that. Those of pipelines also wait until the members have mapped the buffers that
// they will read.
#include <atomic>
#include <new>
#include <vector>

#include "src/exec/cuda/channel.h"
#include "src/exec/cuda/pipeline_buffers.h"

namespace axccl::exec {

namespace cuda = kernels::cuda;

Status CudaChannel::Settle() {
  hold_ = channel_->shared_from_this();
  AXCCL_ASSIGN_OR_RETURN(const int area, channel_->members().TakeArea());
  AXCCL_RETURN_IF_ERROR(parts_.links->ClearArea(area));
  const size_t bytes = sizeof(cuda::Meeting) + static_cast<size_t>(channel_->size()) * sizeof(cuda::Member);
  AXCCL_ASSIGN_OR_RETURN(void* const memory, parts_.device->TakeHost(bytes));
  meeting_ = new (memory) cuda::Meeting;
  met_ = false;
  channel_->members().PublishArea();
  return Status();
}

// The members of a pipeline have exported their buffers before they publish their areas, so this look finds them all,
// and the kernels here, which wait for it, find them mapped. They also wait until all members have mapped those of this
// rank, because a member that cannot must read nothing. A member that has met the others has looked, too, so none waits
// for a look that does not come.
Result<int> CudaChannel::FindMissing() {
  AXCCL_ASSIGN_OR_RETURN(const int missing, channel_->members().Connect());
  CudaBuffers* const buffers = parts_.links->buffers();
  if (missing >= 0 || place_ != CudaPlace::kPipeline || buffers == nullptr) return missing;
  AXCCL_RETURN_IF_ERROR(buffers->Look());
  return buffers_ != nullptr ? buffers_->FindUnmapped(channel_->members()) : -1;
}

Result<int> CudaChannel::Meet() {
  if (met_) return -1;
  AXCCL_ASSIGN_OR_RETURN(const int missing, FindMissing());
  parts_.waits->Misses(wait_, missing);
  if (missing >= 0) return missing;
  const std::vector<Member> members = parts_.links->MembersOf(*channel_, place_);
  for (size_t p = 0; p < members.size(); ++p) meeting_->members()[p] = OnDevice(members[p]);
  __atomic_store_n(&meeting_->met, 1, __ATOMIC_RELEASE);
  met_ = true;
  return -1;
}

Status CudaChannel::CheckMissing(int position) const {
  const Members& members = channel_->members();
  if (members.connector() != nullptr) return members.CheckMissing(position);
  AXCCL_RETURN_IF_ERROR(buffers_->CheckMappable(members, position));
  return members.CheckLeft(position);
}

Status CudaChannel::CheckMeeting() {
  for (int waited_for = -1;;) {
    AXCCL_ASSIGN_OR_RETURN(const int missing, Meet());
    if (missing < 0) return Status();
    // A pipeline that has not been started waits for no member.
    if (channel_->log().next() == 0) return Status();
    Status status = CheckMissing(missing);
    if (status.ok()) status = channel_->members().Check(missing);
    // The member may have done its part and left between the two looks.
    if (status.ok() || status.code() != Code::kRemoteError || missing == waited_for) return status;
    waited_for = missing;
  }
}

bool CudaChannel::released() const {
  if (hold_ == nullptr || hold_.use_count() != 1) return false;
  std::atomic_thread_fence(std::memory_order_acquire);
  return true;
}

}  // namespace axccl::exec
