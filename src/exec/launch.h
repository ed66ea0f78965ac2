// From calls to work on streams: what ncclGroupEnd (or a lone call, RankDevice::LaunchOne) passes to the executors.
//
// A launch is a set of calls that run concurrently (calls on one channel one after the other). It starts when all its
// streams and channels are done with earlier work, and holds later work back until it is done. (The default channel of
// a communicator and its pair channels count as one here.)
#pragma once

#include <memory>
#include <vector>

#include "src/base/status.h"
#include "src/device/host/stream.h"
#include "src/exec/call.h"
#include "src/exec/channel.h"

namespace axccl::exec {

class RankDevice;

// The stream of a call: of the host device (null for the NULL stream of the rank's device), or, on GPU ranks, of CUDA.
struct StreamRef {
  device::host::Stream* host = nullptr;
  void* cuda = nullptr;
};

struct StreamCall {
  std::shared_ptr<ChannelOwner> owner;
  RankDevice* device = nullptr;  // of the owner
  Channel* channel = nullptr;
  Call call;
  StreamRef stream;
  std::shared_ptr<device::host::Stream> keep;  // `stream.host` while the call waits in a group
  // `channel` while work on it is running; null if the owner is enough.
  std::shared_ptr<Channel> hold = nullptr;
  bool local = false;     // a copy within the rank (host/local_copy.h), in the order of the channel
  bool captured = false;  // into a graph; Platform::Prepare finds out
};

// The calls of a group, of ranks on any devices. Only on GPUs can enqueueing fail at once.
Status LaunchGroup(std::vector<StreamCall> calls);

}  // namespace axccl::exec
