#include "src/api/calls.h"

#include "src/comm/group.h"

namespace axccl::api {

using exec::Call;

namespace {

// A call that waits in a group keeps its stream and its channel alive.
comm::StreamCall Kept(comm::Comm* comm, exec::Channel* channel, const Call& call, comm::StreamRef stream) {
  return {comm->core(),
          channel,
          call,
          stream,
          stream.host != nullptr ? stream.host->shared_from_this() : nullptr,
          channel->weak_from_this().lock()};
}

// Whether the rank's device serves the call. `here`: on the default channel, with other ranks.
Status CheckDevice(const comm::Comm* comm, const Call& call, bool here) {
  const exec::GpuRank* const gpu = comm->core()->gpu();
  if (gpu == nullptr) return Status();
  AXCCL_RETURN_IF_ERROR(gpu->CheckCall(call));
  if (call.views == nullptr || here) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "%s: created channels on CUDA devices are not served yet; use axcclDefaultChannel, or host ranks",
                    exec::DescribeCall(call).c_str());
}

}  // namespace

Status Enqueue(comm::Comm* comm, exec::Channel* channel, const Call& call, comm::StreamRef stream) {
  AXCCL_RETURN_IF_ERROR(CheckDevice(comm, call, channel == comm->core()->channel()));
  comm::Group& group = comm::Group::Current();
  if (!group.open()) return comm::LaunchOne(comm->core(), channel, call, stream);
  group.Add(Kept(comm, channel, call, stream), comm->config().blocking);
  return Status();
}

Status EnqueueLocal(comm::Comm* comm, exec::Channel* channel, const Call& call, comm::StreamRef stream) {
  AXCCL_RETURN_IF_ERROR(CheckDevice(comm, call, false));
  comm::StreamCall local = Kept(comm, channel, call, stream);
  local.local = true;
  comm::Group& group = comm::Group::Current();
  if (!group.open()) return comm::LaunchGroup({std::move(local)});
  group.Add(std::move(local), comm->config().blocking);
  return Status();
}

Status EnqueueSelf(const char* name, comm::Comm* comm, exec::Channel* channel, const Call& call, bool sending,
                   comm::StreamRef stream) {
  if (const exec::GpuRank* gpu = comm->core()->gpu(); gpu != nullptr) AXCCL_RETURN_IF_ERROR(gpu->CheckCall(call));
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
