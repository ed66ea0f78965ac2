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
#include "src/api/view_calls.h"
#include "src/base/log.h"
#include "src/exec/cuda/uneven_parts.h"

namespace axccl::api {
namespace {

using plan::Kind;

// The call of a rank in no group of the channel: its outputs become zeros, as StableHLO defines.
Status Outside(const ViewRequest& r, const ChannelPin& pin, cudaStream_t stream_handle) {
  exec::ViewList list;
  AXCCL_RETURN_IF_ERROR(FindOutsideOperands(r, &list));
  exec::StreamRef stream;
  AXCCL_RETURN_IF_ERROR(pin.comm->core()->device().FindStream(stream_handle, r.name, &stream));
  if (list.operands.empty()) return Status();
  std::vector<exec::Call> calls;
  AXCCL_RETURN_IF_ERROR(MakeCalls(r, std::move(list), &calls));
  for (const exec::Call& call : calls) AXCCL_RETURN_IF_ERROR(EnqueueLocal(pin.comm.get(), pin.channel, call, stream));
  return Status();
}

// Enqueues an uneven call on a GPU, as a group of even ones.
Status EnqueueParts(const char* name, const ChannelPin& pin, const exec::Call& call, exec::StreamRef stream) {
  using Part = exec::UnevenPart;
  AXCCL_ASSIGN_OR_RETURN(const std::vector<Part> parts,
                         Prefixed(name, exec::PartsOfUneven(call, pin.place.rank, pin.place.ranks)));
  return InGroup(name, [&]() -> Status {
    for (const Part& part : parts) {
      exec::Channel* channel = pin.channel;
      if (part.on == Part::On::kSend || part.on == Part::On::kReceive) {
        AXCCL_ASSIGN_OR_RETURN(channel, PairOf(name, pin, part.peer, part.on == Part::On::kSend));
      }
      AXCCL_RETURN_IF_ERROR(part.on == Part::On::kRank ? EnqueueLocal(pin.comm.get(), channel, part.call, stream)
                                                       : Enqueue(pin.comm.get(), channel, part.call, stream));
    }
    return Status();
  });
}

// `find(group_size, position, &list)` reads the operands. `zeros_outside`: a rank in no group is not an error.
template <class Find>
Status OnViews(const ViewRequest& r, ncclRedOp_t op, axcclChannel_t handle, cudaStream_t stream_handle,
               bool zeros_outside, const Find& find) {
  AXCCL_ASSIGN_OR_RETURN(const ChannelPin pin, PinChannel(handle, r.name, zeros_outside));
  if (pin.place.ranks == 0) return Outside(r, pin, stream_handle);
  const CommPin& comm = pin.comm;
  exec::ViewList list;
  AXCCL_RETURN_IF_ERROR(find(pin.place.ranks, pin.place.rank, &list));
  std::vector<exec::Call> calls;
  AXCCL_RETURN_IF_ERROR(MakeCalls(r, std::move(list), &calls));
  for (exec::Call& call : calls) AXCCL_RETURN_IF_ERROR(ResolveOnViews(r, comm.get(), op, &call));
  exec::StreamRef stream;
  AXCCL_RETURN_IF_ERROR(comm->core()->device().FindStream(stream_handle, r.name, &stream));
  for (const exec::Call& call : calls) {
    AXCCL_INFO(kColl, "%s: opCount %llx input %p output %p %s comm %p [nranks=%d] stream %p", r.name + 5,
               static_cast<unsigned long long>(comm->core()->operations()), call.input, call.output,
               exec::DescribeCall(call).c_str(), static_cast<void*>(handle), pin.place.ranks,
               static_cast<void*>(stream_handle));
    const bool in_pieces = call.uneven() && !comm->core()->device().traits().runs_uneven;
    AXCCL_RETURN_IF_ERROR(in_pieces ? EnqueueParts(r.name, pin, call, stream)
                                    : Enqueue(comm.get(), pin.channel, call, stream));
  }
  return Status();
}

Status OnUneven(const ViewRequest& r, const Extents& extents, ncclRedOp_t op, axcclChannel_t channel,
                cudaStream_t stream) {
  return OnViews(r, op, channel, stream, false, [&](int group_size, int position, exec::ViewList* list) {
    return FindUnevenOperands(r, extents, group_size, position, list);
  });
}

}  // namespace

Status OnEven(const ViewRequest& r, ncclRedOp_t op, axcclChannel_t channel, cudaStream_t stream) {
  const bool zeros_outside = r.kind == Kind::kBroadcast || r.kind == Kind::kReduce;
  return OnViews(r, op, channel, stream, zeros_outside, [&](int group_size, int position, exec::ViewList* list) {
    return FindOperands(r, group_size, position, list);
  });
}

Status OnLate(const ViewRequest& r, const exec::LatePieces& late, std::initializer_list<const void*> arrays,
              ncclRedOp_t op, axcclChannel_t channel, cudaStream_t stream) {
  // A wrong count is reported first, because there may be no arrays then.
  for (const void* array : arrays) {
    if (array == nullptr && r.count > 0)
      return InvalidArgument("%s: an array that is read when the call starts is NULL; it must stay valid until then",
                             r.name);
  }
  const bool zeros_outside = late.roots != nullptr;
  return OnViews(r, op, channel, stream, zeros_outside, [&](int group_size, int position, exec::ViewList* list) {
    return FindLateOperands(r, late, group_size, position, list);
  });
}

}  // namespace axccl::api

using axccl::api::Entry;
using axccl::api::kNoReduction;
using axccl::api::OnEven;
using axccl::api::OnLate;
using axccl::api::OnUneven;
using axccl::plan::Kind;

AXCCL_API ncclResult_t axcclAllGather(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclAllGather", [&](const char* call) {
    return OnEven({call, Kind::kAllGather, count, in, out, options, dim}, kNoReduction, channel, stream);
  });
}

AXCCL_API ncclResult_t axcclReduceScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                          ncclRedOp_t op, axcclChannel_t channel, const axcclOptions_t* options,
                                          cudaStream_t stream) {
  return Entry("axcclReduceScatter", [&](const char* call) {
    return OnEven({call, Kind::kReduceScatter, count, in, out, options, dim}, op, channel, stream);
  });
}

AXCCL_API ncclResult_t axcclAllReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclAllReduce", [&](const char* call) {
    return OnEven({call, Kind::kAllReduce, count, in, out, options}, op, channel, stream);
  });
}

AXCCL_API ncclResult_t axcclAllToAll(int count, const axcclView_t* in, const axcclView_t* out, int split_dim,
                                     int concat_dim, axcclChannel_t channel, const axcclOptions_t* options,
                                     cudaStream_t stream) {
  return Entry("axcclAllToAll", [&](const char* call) {
    return OnEven({call, Kind::kAllToAll, count, in, out, options, split_dim, concat_dim}, kNoReduction, channel,
                  stream);
  });
}

AXCCL_API ncclResult_t axcclGather(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                   axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclGather", [&](const char* call) {
    return OnEven({call, Kind::kGather, count, in, out, options, dim, 0, root}, kNoReduction, channel, stream);
  });
}

AXCCL_API ncclResult_t axcclScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                    axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclScatter", [&](const char* call) {
    return OnEven({call, Kind::kScatter, count, in, out, options, dim, 0, root}, kNoReduction, channel, stream);
  });
}

AXCCL_API ncclResult_t axcclBroadcast(int count, const axcclView_t* in, const axcclView_t* out, int root,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclBroadcast", [&](const char* call) {
    return OnEven({call, Kind::kBroadcast, count, in, out, options, 0, 0, root}, kNoReduction, channel, stream);
  });
}

AXCCL_API ncclResult_t axcclReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op, int root,
                                   axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclReduce", [&](const char* call) {
    return OnEven({call, Kind::kReduce, count, in, out, options, 0, 0, root}, op, channel, stream);
  });
}

AXCCL_API ncclResult_t axcclAllGatherV(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                       const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                                       cudaStream_t stream) {
  return Entry("axcclAllGatherV", [&](const char* call) {
    return OnUneven({call, Kind::kAllGather, count, in, out, options, dim}, {extents, nullptr}, kNoReduction, channel,
                    stream);
  });
}

AXCCL_API ncclResult_t axcclReduceScatterV(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                           ncclRedOp_t op, const int64_t* extents, axcclChannel_t channel,
                                           const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclReduceScatterV", [&](const char* call) {
    return OnUneven({call, Kind::kReduceScatter, count, in, out, options, dim}, {extents, nullptr}, op, channel,
                    stream);
  });
}

AXCCL_API ncclResult_t axcclGatherV(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                    const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                                    cudaStream_t stream) {
  return Entry("axcclGatherV", [&](const char* call) {
    return OnUneven({call, Kind::kGather, count, in, out, options, dim, 0, root}, {extents, nullptr}, kNoReduction,
                    channel, stream);
  });
}

AXCCL_API ncclResult_t axcclScatterV(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                     const int64_t* extents, axcclChannel_t channel, const axcclOptions_t* options,
                                     cudaStream_t stream) {
  return Entry("axcclScatterV", [&](const char* call) {
    return OnUneven({call, Kind::kScatter, count, in, out, options, dim, 0, root}, {extents, nullptr}, kNoReduction,
                    channel, stream);
  });
}

AXCCL_API ncclResult_t axcclAllToAllV(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                      const int64_t* send_extents, const int64_t* receive_extents,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclAllToAllV", [&](const char* call) {
    return OnUneven({call, Kind::kAllToAll, count, in, out, options, dim}, {send_extents, receive_extents},
                    kNoReduction, channel, stream);
  });
}

AXCCL_API ncclResult_t axcclRaggedAllToAll(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                           const int64_t* input_offsets, const int64_t* send_extents,
                                           const int64_t* output_offsets, const int64_t* receive_extents,
                                           axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclRaggedAllToAll", [&](const char* call) {
    return OnLate({call, Kind::kAllToAll, count, in, out, options, dim},
                  {input_offsets, send_extents, output_offsets, receive_extents, nullptr},
                  {input_offsets, send_extents, output_offsets, receive_extents}, kNoReduction, channel, stream);
  });
}

AXCCL_API ncclResult_t axcclBroadcastFrom(int count, const axcclView_t* in, const axcclView_t* out,
                                          const int32_t* roots, axcclChannel_t channel, const axcclOptions_t* options,
                                          cudaStream_t stream) {
  return Entry("axcclBroadcastFrom", [&](const char* call) {
    return OnLate({call, Kind::kAllGather, count, in, out, options}, {nullptr, nullptr, nullptr, nullptr, roots},
                  {roots}, kNoReduction, channel, stream);
  });
}

AXCCL_API ncclResult_t axcclReduceTo(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                                     const int32_t* roots, axcclChannel_t channel, const axcclOptions_t* options,
                                     cudaStream_t stream) {
  return Entry("axcclReduceTo", [&](const char* call) {
    return OnLate({call, Kind::kReduceScatter, count, in, out, options}, {nullptr, nullptr, nullptr, nullptr, roots},
                  {roots}, op, channel, stream);
  });
}
