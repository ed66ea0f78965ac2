// axcclAllGather and its siblings: collectives on tensor views, from arguments to calls.
#include "axccl/views.h"

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "src/api/calls.h"
#include "src/api/channels.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/api/operands.h"
#include "src/api/uneven_operands.h"
#include "src/api/uneven_parts.h"
#include "src/base/log.h"

namespace axccl::api {
namespace {

using plan::Kind;

// The call of a rank in no group of the channel: zeros, as StableHLO has it.
ncclResult_t Outside(const ViewRequest& r, const ChannelPin& pin, cudaStream_t stream_handle) {
  ncclResult_t result = ncclSuccess;
  exec::ViewList list;
  if (const Status status = FindOutsideOperands(r, &list); !status.ok()) return Report(status);
  comm::StreamRef stream;
  if (!FindStream(*pin.comm, stream_handle, r.name, &stream, &result) || list.operands.empty()) return result;
  std::vector<exec::Call> calls;
  if (const Status status = MakeCalls(r, std::move(list), &calls); !status.ok()) return Report(status);
  for (const exec::Call& call : calls) {
    if (const Status status = EnqueueLocal(pin.comm.get(), pin.channel, call, stream); !status.ok())
      return Report(status);
  }
  return ncclSuccess;
}

// `find(group_size, position, &list)` reads the operands. `zeros_outside`: not an error for a rank in no group.
template <class Find>
ncclResult_t OnViews(const ViewRequest& r, ncclRedOp_t op, axcclChannel_t handle, cudaStream_t stream_handle,
                     bool zeros_outside, const Find& find) {
  ncclResult_t result = ncclSuccess;
  GroupPlace place;
  const ChannelPin pin = PinChannel(handle, r.name, &place, &result, zeros_outside);
  if (!pin) return result;
  if (place.ranks == 0) return Outside(r, pin, stream_handle);
  const CommPin& comm = pin.comm;
  exec::ViewList list;
  if (const Status status = find(place.ranks, place.rank, &list); !status.ok()) return Report(status);
  std::vector<exec::Call> calls;
  if (const Status status = MakeCalls(r, std::move(list), &calls); !status.ok()) return Report(status);
  for (exec::Call& call : calls) {
    if (plan::Reduces(r.kind) && !ResolveReduction(comm.get(), r.name, op, &call, &result)) return result;
    if (call.views->scale != 0 && !(NumberOf(op) == ncclSum && IsFloat(ScalarType(call.type))))
      return InvalidArgument(
          "%s: the options have scale %g, which goes with ncclSum of floats and complex numbers (this is %s); pass 0",
          r.name, call.views->scale, exec::DescribeCall(call).c_str());
  }
  comm::StreamRef stream;
  if (!FindStream(*pin.comm, stream_handle, r.name, &stream, &result)) return result;
  for (const exec::Call& call : calls) {
    AXCCL_INFO(kColl, "%s: opCount %llx input %p output %p %s comm %p [nranks=%d] stream %p", r.name + 5,
               static_cast<unsigned long long>(comm->core()->operations()), call.input, call.output,
               exec::DescribeCall(call).c_str(), static_cast<void*>(handle), place.ranks,
               static_cast<void*>(stream_handle));
    const bool in_pieces = call.uneven() && comm->core()->gpu() != nullptr;
    const Status status =
        in_pieces ? EnqueuePieces(r.name, pin, place, call, stream) : Enqueue(comm.get(), pin.channel, call, stream);
    if (!status.ok()) return Report(status);
  }
  return ncclSuccess;
}

ncclResult_t OnEven(const ViewRequest& r, ncclRedOp_t op, axcclChannel_t channel, cudaStream_t stream) {
  const bool zeros_outside = r.kind == Kind::kBroadcast || r.kind == Kind::kReduce;
  return OnViews(r, op, channel, stream, zeros_outside, [&](int group_size, int position, exec::ViewList* list) {
    return FindOperands(r, group_size, position, list);
  });
}

ncclResult_t OnUneven(const ViewRequest& r, const Extents& extents, ncclRedOp_t op, axcclChannel_t channel,
                      cudaStream_t stream) {
  return OnViews(r, op, channel, stream, false, [&](int group_size, int position, exec::ViewList* list) {
    return FindUnevenOperands(r, extents, group_size, position, list);
  });
}

// `told` are the arguments that are read when the call starts.
ncclResult_t OnLate(const ViewRequest& r, const exec::LatePieces& late, std::initializer_list<const void*> told,
                    ncclRedOp_t op, axcclChannel_t channel, cudaStream_t stream) {
  // A count that cannot be right is told first: there may be no arrays then.
  for (const void* array : told) {
    if (array == nullptr && r.count > 0)
      return InvalidArgument("%s: an array that is read when the call starts is NULL; it must stay valid until then",
                             r.name);
  }
  const bool zeros_outside = late.roots != nullptr;
  return OnViews(r, op, channel, stream, zeros_outside, [&](int group_size, int position, exec::ViewList* list) {
    return FindLateOperands(r, late, group_size, position, list);
  });
}

}  // namespace
}  // namespace axccl::api

using axccl::api::kNoReduction;
using axccl::api::OnEven;
using axccl::api::OnLate;
using axccl::api::OnUneven;
using axccl::api::ViewRequest;
using axccl::plan::Kind;

AXCCL_API ncclResult_t axcclAllGather(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) try {
  return OnEven(ViewRequest{"axcclAllGather", Kind::kAllGather, count, in, out, options, dim}, kNoReduction, channel,
                stream);
}
AXCCL_CATCH(axcclAllGather)

AXCCL_API ncclResult_t axcclReduceScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                          ncclRedOp_t op, axcclChannel_t channel, const axcclOptions_t* options,
                                          cudaStream_t stream) try {
  return OnEven(ViewRequest{"axcclReduceScatter", Kind::kReduceScatter, count, in, out, options, dim}, op, channel,
                stream);
}
AXCCL_CATCH(axcclReduceScatter)

AXCCL_API ncclResult_t axcclAllReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) try {
  return OnEven(ViewRequest{"axcclAllReduce", Kind::kAllReduce, count, in, out, options}, op, channel, stream);
}
AXCCL_CATCH(axcclAllReduce)

AXCCL_API ncclResult_t axcclAllToAll(int count, const axcclView_t* in, const axcclView_t* out, int split_dim,
                                     int concat_dim, axcclChannel_t channel, const axcclOptions_t* options,
                                     cudaStream_t stream) try {
  return OnEven(ViewRequest{"axcclAllToAll", Kind::kAllToAll, count, in, out, options, split_dim, concat_dim},
                kNoReduction, channel, stream);
}
AXCCL_CATCH(axcclAllToAll)

AXCCL_API ncclResult_t axcclGather(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                   axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) try {
  return OnEven(ViewRequest{"axcclGather", Kind::kGather, count, in, out, options, dim, 0, root}, kNoReduction, channel,
                stream);
}
AXCCL_CATCH(axcclGather)

AXCCL_API ncclResult_t axcclScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                    axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) try {
  return OnEven(ViewRequest{"axcclScatter", Kind::kScatter, count, in, out, options, dim, 0, root}, kNoReduction,
                channel, stream);
}
AXCCL_CATCH(axcclScatter)

AXCCL_API ncclResult_t axcclBroadcast(int count, const axcclView_t* in, const axcclView_t* out, int root,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) try {
  return OnEven(ViewRequest{"axcclBroadcast", Kind::kBroadcast, count, in, out, options, 0, 0, root}, kNoReduction,
                channel, stream);
}
AXCCL_CATCH(axcclBroadcast)

AXCCL_API ncclResult_t axcclReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op, int root,
                                   axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) try {
  return OnEven(ViewRequest{"axcclReduce", Kind::kReduce, count, in, out, options, 0, 0, root}, op, channel, stream);
}
AXCCL_CATCH(axcclReduce)

AXCCL_API ncclResult_t axcclAllGatherV(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                       const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                                       cudaStream_t stream) try {
  return OnUneven(ViewRequest{"axcclAllGatherV", Kind::kAllGather, count, in, out, options, dim}, {extents, nullptr},
                  kNoReduction, channel, stream);
}
AXCCL_CATCH(axcclAllGatherV)

AXCCL_API ncclResult_t axcclReduceScatterV(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                           ncclRedOp_t op, const int64_t* extents, axcclChannel_t channel,
                                           const axcclOptions_t* options, cudaStream_t stream) try {
  return OnUneven(ViewRequest{"axcclReduceScatterV", Kind::kReduceScatter, count, in, out, options, dim},
                  {extents, nullptr}, op, channel, stream);
}
AXCCL_CATCH(axcclReduceScatterV)

AXCCL_API ncclResult_t axcclGatherV(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                    const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                                    cudaStream_t stream) try {
  return OnUneven(ViewRequest{"axcclGatherV", Kind::kGather, count, in, out, options, dim, 0, root}, {extents, nullptr},
                  kNoReduction, channel, stream);
}
AXCCL_CATCH(axcclGatherV)

AXCCL_API ncclResult_t axcclScatterV(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                     const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                                     cudaStream_t stream) try {
  return OnUneven(ViewRequest{"axcclScatterV", Kind::kScatter, count, in, out, options, dim, 0, root},
                  {extents, nullptr}, kNoReduction, channel, stream);
}
AXCCL_CATCH(axcclScatterV)

AXCCL_API ncclResult_t axcclAllToAllV(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                      const int64_t* send_extents, const int64_t* receive_extents,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) try {
  return OnUneven(ViewRequest{"axcclAllToAllV", Kind::kAllToAll, count, in, out, options, dim},
                  {send_extents, receive_extents}, kNoReduction, channel, stream);
}
AXCCL_CATCH(axcclAllToAllV)

AXCCL_API ncclResult_t axcclRaggedAllToAll(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                           const int64_t* input_offsets, const int64_t* send_extents,
                                           const int64_t* output_offsets, const int64_t* receive_extents,
                                           axcclChannel_t channel, const axcclOptions_t* options,
                                           cudaStream_t stream) try {
  return OnLate(ViewRequest{"axcclRaggedAllToAll", Kind::kAllToAll, count, in, out, options, dim},
                {input_offsets, send_extents, output_offsets, receive_extents, nullptr},
                {input_offsets, send_extents, output_offsets, receive_extents}, kNoReduction, channel, stream);
}
AXCCL_CATCH(axcclRaggedAllToAll)

AXCCL_API ncclResult_t axcclBroadcastFrom(int count, const axcclView_t* in, const axcclView_t* out,
                                          const int32_t* roots, axcclChannel_t channel, const axcclOptions_t* options,
                                          cudaStream_t stream) try {
  return OnLate(ViewRequest{"axcclBroadcastFrom", Kind::kAllGather, count, in, out, options},
                {nullptr, nullptr, nullptr, nullptr, roots}, {roots}, kNoReduction, channel, stream);
}
AXCCL_CATCH(axcclBroadcastFrom)

AXCCL_API ncclResult_t axcclReduceTo(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                                     const int32_t* roots, axcclChannel_t channel, const axcclOptions_t* options,
                                     cudaStream_t stream) try {
  return OnLate(ViewRequest{"axcclReduceTo", Kind::kReduceScatter, count, in, out, options},
                {nullptr, nullptr, nullptr, nullptr, roots}, {roots}, op, channel, stream);
}
AXCCL_CATCH(axcclReduceTo)
