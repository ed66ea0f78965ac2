#include "src/api/calls.h"

namespace axccl::api {

using exec::Call;

namespace {

// A call that waits in a group keeps its stream and its channel alive.
comm::StreamCall Kept(comm::Comm* comm, exec::Channel* channel, const Call& call, comm::StreamRef stream) {
  return {comm->core(),   channel, call, stream, stream.host != nullptr ? stream.host->shared_from_this() : nullptr,
          channel->Hold()};
}

Status CheckDevice(const comm::Comm* comm, const Call& call) {
  const exec::GpuRank* const gpu = comm->core()->gpu();
  return gpu != nullptr ? gpu->CheckCall(call) : Status();
}

}  // namespace

Status Enqueue(comm::Comm* comm, exec::Channel* channel, const Call& call, comm::StreamRef stream) {
  AXCCL_RETURN_IF_ERROR(CheckDevice(comm, call));
  comm::Group& group = comm::Group::Current();
  if (!group.open()) return comm::LaunchOne(comm->core(), channel, call, stream);
  group.Add(Kept(comm, channel, call, stream), comm->config().blocking);
  return Status();
}

Status EnqueueLocal(comm::Comm* comm, exec::Channel* channel, const Call& call, comm::StreamRef stream) {
  AXCCL_RETURN_IF_ERROR(CheckDevice(comm, call));
  comm::StreamCall local = Kept(comm, channel, call, stream);
  local.local = true;
  comm::Group& group = comm::Group::Current();
  if (!group.open()) return comm::LaunchGroup({std::move(local)});
  group.Add(std::move(local), comm->config().blocking);
  return Status();
}

Status EnqueueSelf(const char* name, comm::Comm* comm, exec::Channel* channel, const Call& call, bool sending,
                   comm::StreamRef stream) {
  AXCCL_RETURN_IF_ERROR(CheckDevice(comm, call));
  comm::Group& group = comm::Group::Current();
  if (!group.open())
    return MakeStatus(Code::kInvalidUsage,
                      "%s: rank %d to itself outside a group would wait for ever; put the send and the receive between "
                      "ncclGroupStart and ncclGroupEnd",
                      name, channel->own().rank);
  group.AddSelf(Kept(comm, channel, call, stream), sending, comm->config().blocking);
  return Status();
}

}  // namespace axccl::api
