// A call and the stream that it is enqueued on: what ncclGroupEnd, or a lone call, passes to the executors.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/device/host/stream.h"
#include "src/exec/call/call.h"
#include "src/exec/channel/channel.h"

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
  bool local = false;  // a copy within the rank (host/local_copy.h), in the order of the channel
  // Found by Platform::Prepare. The id of the capture that makes it part of a graph; 0: none.
  uint64_t capture = 0;
  unsigned long long stream_id = 0;  // outside of captures, of the first call on a device: CUDA's number of its stream
};

// A receive from any rank.
struct AnySource {
  struct Sender {
    Channel* pair;  // of its messages to this rank
    int position;   // what is reported as its rank
  };
  std::vector<Sender> from;
  Call call;
  int tag = 0;
  int* source = nullptr;  // set when the message is there; may be null
};

}  // namespace axccl::exec
