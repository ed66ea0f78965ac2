#include "src/api/calls.h"

#include "src/comm/group.h"

namespace axccl::api {

using exec::Call;

bool ResolveReduction(comm::Comm* comm, const char* name, ncclRedOp_t op, Call* call, ncclResult_t* result) {
  switch (op) {
    case ncclSum: call->combine = Combine::kSum; return true;
    case ncclProd: call->combine = Combine::kProd; return true;
    case ncclMax: call->combine = Combine::kMax; return true;
    case ncclMin: call->combine = Combine::kMin; return true;
    case ncclAvg:
      call->combine = Combine::kSum;
      call->scaling = exec::Scaling::kAverage;
      return true;
    default: break;
  }
  comm::PreMultiply own;
  const auto code = static_cast<uint32_t>(op) - ncclNumOps;
  if (static_cast<int>(op) < ncclNumOps || code >> 12 != comm->salt() ||
      !comm->FindReduction(static_cast<int>(code & 0xfff), &own)) {
    *result = InvalidArgument("%s: argument op is %d: neither built in (0..%d) nor a live operator of this communicator", name,
                              static_cast<int>(op), ncclNumOps - 1);
    return false;
  }
  if (static_cast<int>(own.type) != static_cast<int>(call->type)) {
    *result = InvalidArgument("%s: argument op was made for datatype %s, the call has %s", name, DataTypeName(own.type),
                              DataTypeName(call->type));
    return false;
  }
  call->combine = Combine::kSum;
  call->scaling = exec::Scaling::kPreMultiply;
  call->scalar_pointer = own.pointer;
  call->scalar_bytes = own.bytes;
  return true;
}

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
