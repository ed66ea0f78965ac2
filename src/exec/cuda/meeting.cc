// Created channels on GPUs: how their members find each other's areas, and when a channel's area is freed.
//
// Each rank creates channels by itself, and a call on one must not wait on the host for the other ranks. So a channel's
// first use takes an area of the rank's device and publishes it in the rank's table of channels, where the others find
// it as on the host (src/comm/channels.h). Every thread that enqueues looks for the members, and so does the watchdog.
// Kernels that start earlier wait for that.
#include <algorithm>
#include <atomic>
#include <new>

#include "src/exec/cuda/rank.h"

namespace axccl::exec {

using device::cuda::Scope;
namespace cuda = kernels::cuda;

Status CudaChannel::Settle() {
  hold_ = on_host_->shared_from_this();
  AXCCL_ASSIGN_OR_RETURN(const int area, on_host_->members().TakeArea());
  AXCCL_RETURN_IF_ERROR(rank_->ClearArea(area));
  const size_t bytes = sizeof(cuda::Meeting) + static_cast<size_t>(on_host_->size()) * sizeof(cuda::Member);
  AXCCL_ASSIGN_OR_RETURN(void* const memory, rank_->device()->AllocateHost(bytes));
  meeting_ = new (memory) cuda::Meeting;
  met_ = false;
  on_host_->members().PublishArea();
  return Status();
}

Result<int> CudaChannel::Meet() {
  if (met_) return -1;
  AXCCL_ASSIGN_OR_RETURN(const int missing, on_host_->members().Connect());
  rank_->waits().Misses(wait_, missing);
  if (missing >= 0) return missing;
  const std::vector<Member> members = rank_->MembersOf(*on_host_, place_);
  for (size_t p = 0; p < members.size(); ++p) meeting_->members()[p] = OnDevice(members[p]);
  __atomic_store_n(&meeting_->met, 1, __ATOMIC_RELEASE);
  met_ = true;
  return -1;
}

Status CudaChannel::CheckMeeting() {
  for (int waited_for = -1;;) {
    AXCCL_ASSIGN_OR_RETURN(const int missing, Meet());
    if (missing < 0) return Status();
    Status status = on_host_->members().CheckMissing(missing);
    if (status.ok()) status = on_host_->members().Check(missing);
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

Status CudaRank::ClearArea(int area) {
  const ChannelLayout layout = layout_.Area(static_cast<uint32_t>(area));
  const CUdeviceptr block = blocks_.of(static_cast<size_t>(options_.rank)).address();
  return device_->Clear(block + layout.lines, layout.announcements - layout.lines);
}

// Threads that enqueue meanwhile also look for the members, so there is nothing to wait for.
Status CudaRank::CheckMeetings() {
  const std::unique_lock lock(launching_, std::try_to_lock);
  if (!lock.owns_lock() || !creates_channels_) return Status();
  for (const auto& [on_host, channel] : channels_) AXCCL_RETURN_IF_ERROR(channel->CheckMeeting());
  Sweep();
  return Status();
}

// The message channels of a channel are released together with it, so the next round may find more.
void CudaRank::Sweep() {
  const Scope scope(*device_);
  while (ReleaseOne()) continue;
}

bool CudaRank::ReleaseOne() {
  for (auto it = channels_.begin(); it != channels_.end(); ++it) {
    if (!it->second->released()) continue;
    const device::host::TimelinePtr timeline = it->second->order();
    const auto order =
        std::find_if(orders_.begin(), orders_.end(), [&](const auto& o) { return o->of == timeline.get(); });
    if (order != orders_.end() && !IsDone(**order)) continue;
    channels_.erase(it);
    const bool last = std::none_of(channels_.begin(), channels_.end(),
                                   [&](const auto& other) { return other.second->order() == timeline; });
    if (!last) return true;
    selves_.erase(timeline.get());
    if (order != orders_.end()) (*order)->of = nullptr;
    return true;
  }
  return false;
}

void CudaRank::ReleaseChannels() {
  std::lock_guard lock(launching_);
  channels_.clear();
  selves_.clear();
}

}  // namespace axccl::exec
