// From calls to work on streams: what ncclGroupEnd (or a lone call) hands to the scheduler.
//
// A launch is a set of calls that run concurrently (calls on one channel one after the other). It starts when all its streams
// and channels are done with earlier work, and holds later work back until it is done. (The default channel of a communicator
// and its pair channels are one in this.) Channels of a group are launched separately unless they share a stream.
#pragma once

#include <memory>
#include <vector>

#include "src/comm/communicator.h"
#include "src/exec/call.h"

namespace axccl::comm {

struct StreamCall {
  std::shared_ptr<Communicator> comm;
  exec::Channel* channel = nullptr;
  exec::Call call;
  device::host::Stream* stream = nullptr;  // null: the NULL stream of the communicator's device
  std::shared_ptr<device::host::Stream> keep;  // `stream` while the call waits in a group
  std::shared_ptr<exec::Channel> hold = nullptr;  // `channel` while work on it is under way; null where the communicator is enough
  bool local = false;  // a copy within the rank (exec/local_copy.h), in the order of the channel
};

// One call, on the caller's thread as far as it goes without waiting.
void LaunchOne(const std::shared_ptr<Communicator>& comm, exec::Channel* channel, const exec::Call& call,
               device::host::Stream* stream);
void LaunchGroup(std::vector<StreamCall> calls);

}  // namespace axccl::comm
