#include "src/exec/cuda/channels.h"

#include <algorithm>

namespace axccl::exec {

Result<CudaChannel*> CudaChannels::Of(const CudaParts& parts, Channel* channel, CudaPlace place) {
  if (place == CudaPlace::kSelf) {
    std::unique_ptr<CudaChannel>& self = selves_[channel->order().get()];
    if (self == nullptr) {
      AXCCL_ASSIGN_OR_RETURN(self, CudaChannel::Create(parts, channel, place));
    }
    return self.get();
  }
  const auto it = channels_.find(channel);
  if (it != channels_.end()) return it->second.get();
  if (IsInArea(place)) {
    any_created_ = true;
    Sweep();
  }
  AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<CudaChannel> on_device, CudaChannel::Create(parts, channel, place));
  return channels_.emplace(channel, std::move(on_device)).first->second.get();
}

Status CudaChannels::CheckMeetings() {
  if (!any_created_) return Status();
  for (const auto& [channel, on_device] : channels_) AXCCL_RETURN_IF_ERROR(on_device->CheckMeeting());
  Sweep();
  return Status();
}

Status CudaChannels::FindMismatch() const {
  for (const auto& [channel, on_device] : channels_) AXCCL_RETURN_IF_ERROR(channel->log().FindMismatch());
  return Status();
}

// The message channels of a channel are released together with it, so the next round may find more.
void CudaChannels::Sweep() {
  const device::cuda::Scope scope(*orders_->device());
  while (ReleaseOne()) continue;
}

bool CudaChannels::ReleaseOne() {
  for (auto it = channels_.begin(); it != channels_.end(); ++it) {
    if (!it->second->released()) continue;
    const device::host::TimelinePtr timeline = it->second->order();
    if (!orders_->IsDone(timeline.get())) continue;
    channels_.erase(it);
    const bool last = std::none_of(channels_.begin(), channels_.end(),
                                   [&](const auto& other) { return other.second->order() == timeline; });
    if (!last) return true;
    selves_.erase(timeline.get());
    orders_->Forget(timeline.get());
    return true;
  }
  return false;
}

void CudaChannels::Clear() {
  channels_.clear();
  selves_.clear();
}

}  // namespace axccl::exec
