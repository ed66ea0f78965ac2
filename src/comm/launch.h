// From calls to work on streams: what ncclGroupEnd (or a lone call) hands to the scheduler.
//
// A launch is a set of calls that run concurrently (calls on one channel one after the other). It starts when all its
// streams and channels are done with earlier work, and holds later work back until it is done. (The default channel of
// a communicator and its pair channels are one in this.) Channels of a group are launched separately unless they share
// a stream, or one is on the NULL stream and another on a blocking stream of the same device.
#pragma once

#include <memory>
#include <vector>

#include "src/comm/communicator.h"
#include "src/exec/call.h"

namespace axccl::comm {

// Where a call is enqueued: on a stream of the host device, null for the NULL stream of the communicator's, or, on GPU
// ranks, on one of CUDA's.
struct StreamRef {
  device::host::Stream* host = nullptr;
  void* cuda = nullptr;
};

struct StreamCall {
  std::shared_ptr<Communicator> comm;
  exec::Channel* channel = nullptr;
  exec::Call call;
  StreamRef stream;
  std::shared_ptr<device::host::Stream> keep;  // `stream.host` while the call waits in a group
  std::shared_ptr<exec::Channel> hold =
      nullptr;         // `channel` while work on it is under way; null where the communicator is enough
  bool local = false;  // a copy within the rank (exec/local_copy.h), in the order of the channel
};

// One call, on the caller's thread as far as it goes without waiting. Only on GPUs can what is enqueued fail at once;
// the communicator then has failed.
Status LaunchOne(const std::shared_ptr<Communicator>& comm, exec::Channel* channel, const exec::Call& call,
                 StreamRef stream);
Status LaunchGroup(std::vector<StreamCall> calls);

}  // namespace axccl::comm
