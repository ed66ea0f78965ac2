#include "src/api/calls.h"

#include "src/exec/platform/platform.h"

namespace axccl::api {

using exec::Call;

namespace {

// A call that waits in a group keeps its stream and its channel alive.
exec::StreamCall Kept(comm::CommHandle* comm, exec::Channel* channel, const Call& call, exec::StreamRef stream) {
  return {comm->core(),   &comm->core()->device(),
          channel,        call,
          stream,         stream.host != nullptr ? stream.host->shared_from_this() : nullptr,
          channel->Hold()};
}

}  // namespace

Status AddToGroup(comm::CommHandle* comm, exec::Channel* channel, const Call& call, exec::StreamRef stream) {
  AXCCL_RETURN_IF_ERROR(comm->core()->device().CheckCall(call));
  comm::CallGroup::Current().Add(Kept(comm, channel, call, stream), comm->config().blocking);
  return Status();
}

Status EnqueueLocal(comm::CommHandle* comm, exec::Channel* channel, const Call& call, exec::StreamRef stream) {
  AXCCL_RETURN_IF_ERROR(comm->core()->device().CheckCall(call));
  exec::StreamCall local = Kept(comm, channel, call, stream);
  local.local = true;
  comm::CallGroup& group = comm::CallGroup::Current();
  if (!group.open()) return exec::LaunchGroup({std::move(local)});
  group.Add(std::move(local), comm->config().blocking);
  return Status();
}

Status EnqueueSelf(const char* name, comm::CommHandle* comm, exec::Channel* channel, const Call& call, bool sending,
                   exec::StreamRef stream) {
  AXCCL_RETURN_IF_ERROR(comm->core()->device().CheckCall(call));
  comm::CallGroup& group = comm::CallGroup::Current();
  if (!group.open())
    return MakeStatus(Code::kInvalidUsage,
                      "%s: rank %d to itself outside a group would wait forever; put the send and the receive between "
                      "ncclGroupStart and ncclGroupEnd",
                      name, channel->own().rank);
  group.AddSelf(Kept(comm, channel, call, stream), sending, comm->config().blocking);
  return Status();
}

}  // namespace axccl::api
