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

void EnqueueLocal(comm::Comm* comm, exec::Channel* channel, const Call& call, device::host::Stream* stream) {
  comm::StreamCall local{comm->core(), channel, call, stream, Keep(stream), channel->weak_from_this().lock(), true};
  comm::Group& group = comm::Group::Current();
  if (group.open()) {
    group.Add(std::move(local), comm->config().blocking);
  } else {
    comm::LaunchGroup({std::move(local)});
  }
}

Status EnqueueSelf(const char* name, comm::Comm* comm, exec::Channel* channel, const Call& call, bool sending,
                   device::host::Stream* stream) {
  comm::Group& group = comm::Group::Current();
  if (!group.open())
    return MakeStatus(Code::kInvalidUsage,
                      "%s: rank %d to itself outside a group would wait for ever; put the send and the receive between "
                      "ncclGroupStart and ncclGroupEnd",
                      name, channel->own().rank);
  group.AddSelf(comm::StreamCall{comm->core(), channel, call, stream, Keep(stream), channel->weak_from_this().lock()},
                sending, comm->config().blocking);
  return Status();
}

}  // namespace axccl::api
