// What the calls on buffers and the calls on views share on the way from arguments to work.
#pragma once

#include <memory>

#include "axccl/types.h"
#include "nccl.h"
#include "src/api/context.h"
#include "src/comm/call_group.h"
#include "src/exec/platform/stream_call.h"

namespace axccl::api {

// Stands for "no reduction" in calls that only move data.
inline constexpr ncclRedOp_t kNoReduction = ncclMaxRedOp;

// Finds the type with that number, NCCL's or one of axccl/types.h; returns false if there is none. C programs may pass
// any number as an enumeration; gcc and clang keep it unless -fstrict-enums is given, so it is cast here and checked.
inline bool FindDatatype(unsigned number, DataType* type) {
  constexpr unsigned kFirst = axcclInt16;
  if (number < ncclNumTypes) {
    *type = static_cast<DataType>(number);
  } else if (number >= kFirst && number <= axcclComplex128) {
    *type = static_cast<DataType>(static_cast<unsigned>(DataType::kInt16) + number - kFirst);
  } else if (number >= axcclBits(1) && number <= axcclBits(kMaxOpaqueBytes)) {
    *type = OpaqueType(static_cast<int>(number - axcclBits(0)));
  } else {
    return false;
  }
  return true;
}

// The remedy in messages about a wrong datatype.
#define AXCCL_DATATYPES "one of ncclDataType_t (0..11) or of axccl/types.h"

// Whether the operator is built in: not one of a communicator, which may be destroyed.
bool IsBuiltIn(ncclRedOp_t op);
// Puts the reduction named by `op`, built in or the communicator's own, into `call`, whose type must be set. Returns an
// error of the call `name` if there is no such reduction for that type.
Status ResolveReduction(comm::CommHandle* comm, const char* name, ncclRedOp_t op, exec::Call* call);

// Adds the call to the open group.
Status AddToGroup(comm::CommHandle* comm, exec::Channel* channel, const exec::Call& call, exec::StreamRef stream);
// Launches the call, or adds it to the open group.
inline Status Enqueue(comm::CommHandle* comm, exec::Channel* channel, const exec::Call& call, exec::StreamRef stream) {
  if (comm::CallGroup::IsOpen()) return AddToGroup(comm, channel, call, stream);
  return comm->core()->device().LaunchOne(comm->core().get(), channel, call, stream);
}
// As Enqueue, for a call that concerns no other rank: a copy, or zeros (exec/host/local_copy.h).
Status EnqueueLocal(comm::CommHandle* comm, exec::Channel* channel, const exec::Call& call, exec::StreamRef stream);
// Adds a message of this rank to itself to the open group. Returns an error if no group is open, because the message
// would never end.
Status EnqueueSelf(const char* name, comm::CommHandle* comm, exec::Channel* channel, const exec::Call& call,
                   bool sending, exec::StreamRef stream);

// Runs `enqueue`, from () to Status, in a group of its own, or as part of the open one. An error of it cancels the
// group.
template <class Fn>
Status InGroup(const char* name, const Fn& enqueue) {
  comm::CallGroup& group = comm::CallGroup::Current();
  group.Start();
  const Status status = CatchAll(name, enqueue);
  if (!status.ok()) comm::CallGroup::Keep(status);
  const Status end = group.End(name);
  return status.ok() ? end : status;
}

}  // namespace axccl::api
