#include "src/api/calls.h"

#include "src/comm/group.h"

namespace axccl::api {

using exec::Call;

std::shared_ptr<device::host::Stream> Keep(device::host::Stream* stream) {
  return stream != nullptr ? stream->shared_from_this() : nullptr;
}

void Enqueue(comm::Comm* comm, exec::Channel* channel, const Call& call, device::host::Stream* stream) {
  comm::Group& group = comm::Group::Current();
  if (group.open()) {
    group.Add(comm::StreamCall{comm->core(), channel, call, stream, Keep(stream), channel->weak_from_this().lock()},
              comm->config().blocking);
  } else {
    comm::LaunchOne(comm->core(), channel, call, stream);
  }
}

}  // namespace axccl::api
