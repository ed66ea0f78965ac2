// The channels of a rank on its device: each is there from its first use until its channel is released and what was
// launched on it is done.
//
// Used by one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "src/base/status.h"
#include "src/device/host/timeline.h"
#include "src/exec/channel/channel.h"
#include "src/exec/cuda/channel.h"
#include "src/exec/cuda/orders.h"

namespace axccl::exec {

class CudaChannels {
 public:
  explicit CudaChannels(CudaOrders* orders) : orders_(orders) {}

  // `channel`: the one of the communicator on which calls with others are made, or any of it for kSelf.
  Result<CudaChannel*> Of(const CudaParts& parts, Channel* channel, CudaPlace place);
  // Whether channels have been created, which need blocks of the device beside those of the default channel.
  bool any_created() const { return any_created_; }
  // Created channels: looks for members, and drops channels that were released. An error names a member that will never
  // come.
  Status CheckMeetings();
  // As CallLog::FindMismatch, of all channels.
  Status FindMismatch() const;
  void Clear();

 private:
  void Sweep();
  bool ReleaseOne();

  CudaOrders* const orders_;
  std::map<const Channel*, std::unique_ptr<CudaChannel>> channels_;
  std::map<const device::host::Timeline*, std::unique_ptr<CudaChannel>> selves_;  // kSelf, by order
  bool any_created_ = false;
};

}  // namespace axccl::exec
