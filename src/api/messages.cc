// axcclSend, axcclRecv and axcclCollectivePermute: views from one rank to another.
#include <memory>
#include <utility>
#include <vector>

#include "axccl/views.h"
#include "src/api/calls.h"
#include "src/api/channels.h"
#include "src/api/export.h"
#include "src/api/operands.h"
#include "src/api/permutation.h"
#include "src/api/view_calls.h"
#include "src/base/log.h"

namespace axccl::api {
namespace {

using plan::Kind;

Status EnqueueMessage(const char* name, const ChannelPin& pin, int peer, bool sending, int tag,
                      const std::vector<exec::Call>& calls, exec::StreamRef stream) {
  AXCCL_ASSIGN_OR_RETURN(exec::Channel * pair, PairOf(name, pin, peer, sending, tag));
  for (exec::Call call : calls) {
    call.second_name = !sending;
    AXCCL_RETURN_IF_ERROR(Enqueue(pin.comm.get(), pair, call, stream));
  }
  return Status();
}

// Receives from the rank whose message is there first.
Status ReceiveAny(const ViewRequest& r, const ChannelPin& pin, const std::vector<exec::Call>& calls,
                  exec::StreamRef stream) {
  if (comm::CallGroup::IsOpen())
    return MakeStatus(Code::kInvalidUsage,
                      "%s: argument peer is AXCCL_ANY_SOURCE inside a group, whose calls are matched by their ranks; "
                      "make the call outside, on a stream of its own",
                      r.name);
  if (calls.size() != 1)
    return InvalidArgument(
        "%s: argument peer is AXCCL_ANY_SOURCE, and the options cut the operands into %zu messages, "
        "which could come from different ranks; pass fewer operands, and bucket_bytes 0",
        r.name, calls.size());
  exec::AnySource any{{}, calls[0], r.options.tag, r.options.source};
  any.call.second_name = true;
  for (int peer = 0; peer < pin.place.ranks; ++peer) {
    if (peer == pin.place.rank) continue;
    AXCCL_ASSIGN_OR_RETURN(exec::Channel * pair, PairOf(r.name, pin, peer, false, r.options.tag));
    any.from.push_back({pair, peer});
  }
  if (any.from.empty())
    return InvalidArgument("%s: argument peer is AXCCL_ANY_SOURCE, and the channel has no other rank", r.name);
  const auto& core = pin.comm->core();
  return Prefixed(r.name, core->device().ReceiveAny(core.get(), std::move(any), stream));
}

// ---- collective_permute ----

Status EnqueuePermuted(const ViewRequest& r, const ChannelPin& pin, const Neighbours& neighbours,
                       const exec::ViewList& list, exec::StreamRef stream) {
  const bool to_self = neighbours.target == pin.place.rank;
  std::vector<exec::Call> sent, received;
  if (neighbours.target >= 0 && !to_self) AXCCL_RETURN_IF_ERROR(MakeCalls(r, OneSide(list, true), &sent));
  AXCCL_RETURN_IF_ERROR(MakeCalls(r, to_self ? list : OneSide(list, false), &received));
  for (exec::Call& call : sent) call.permutes = true;
  for (exec::Call& call : received) call.permutes = true;
  if (!sent.empty()) AXCCL_RETURN_IF_ERROR(EnqueueMessage(r.name, pin, neighbours.target, true, 0, sent, stream));
  if (neighbours.source >= 0 && !to_self)
    return EnqueueMessage(r.name, pin, neighbours.source, false, 0, received, stream);
  for (const exec::Call& call : received)
    AXCCL_RETURN_IF_ERROR(EnqueueLocal(pin.comm.get(), pin.channel, call, stream));
  return Status();
}

Status Permute(const ViewRequest& r, const int64_t* pairs, int num_pairs, axcclChannel_t channel,
               cudaStream_t stream_handle) {
  AXCCL_ASSIGN_OR_RETURN(const ChannelPin pin, PinChannel(channel, r.name, true));
  Neighbours neighbours;
  if (pin.place.ranks != 0) AXCCL_RETURN_IF_ERROR(FindNeighbours(r.name, pairs, num_pairs, pin.place, &neighbours));
  exec::ViewList list;
  AXCCL_RETURN_IF_ERROR(FindPermuted(r, neighbours.target >= 0, &list));
  list.pairs = pin.place.ranks != 0 ? HashOfPairs(pairs, num_pairs) : 0;
  exec::StreamRef stream;
  AXCCL_RETURN_IF_ERROR(pin.comm->core()->device().FindStream(stream_handle, r.name, &stream));
  AXCCL_INFO(kColl, "%s: %d operands to %d from %d of [nranks=%d] stream %p", r.name + 5, r.count, neighbours.target,
             neighbours.source, pin.place.ranks, static_cast<void*>(stream_handle));
  // Both directions at once, so the order in which other ranks reach theirs does not matter.
  return InGroup(r.name, [&] { return EnqueuePermuted(r, pin, neighbours, list, stream); });
}

}  // namespace

Status Message(const char* name, int count, const axcclView_t* view, bool sending, int peer, axcclChannel_t channel,
               const axcclOptions_t* options, cudaStream_t stream_handle) {
  AXCCL_ASSIGN_OR_RETURN(const ChannelPin pin, PinChannel(channel, name));
  const bool any = !sending && peer == AXCCL_ANY_SOURCE;
  if (!any && static_cast<unsigned>(peer) >= static_cast<unsigned>(pin.place.ranks))
    return InvalidArgument("%s: argument peer is %d; pass a rank of the channel's group (0..%d)%s", name, peer,
                           pin.place.ranks - 1, sending ? "" : ", or AXCCL_ANY_SOURCE");
  const ViewRequest request{
      name, Kind::kSendRecv, count, sending ? view : nullptr, sending ? nullptr : view, options, 0, 0, 0, true};
  exec::ViewList list;
  AXCCL_RETURN_IF_ERROR(FindOperands(request, 2, sending ? 0 : 1, &list));
  std::vector<exec::Call> calls;
  AXCCL_RETURN_IF_ERROR(MakeCalls(request, std::move(list), &calls));
  exec::StreamRef stream;
  AXCCL_RETURN_IF_ERROR(pin.comm->core()->device().FindStream(stream_handle, name, &stream));
  const int tag = request.options.tag;
  if (peer == AXCCL_ANY_SOURCE) return ReceiveAny(request, pin, calls, stream);
  if (request.options.source != nullptr) *request.options.source = peer;
  if (peer != pin.place.rank) return EnqueueMessage(name, pin, peer, sending, tag, calls, stream);
  AXCCL_ASSIGN_OR_RETURN(exec::Channel * order, OrderOf(name, pin, tag));
  for (exec::Call& call : calls) {
    call.second_name = !sending;
    AXCCL_RETURN_IF_ERROR(EnqueueSelf(name, pin.comm.get(), order, call, sending, stream));
  }
  return Status();
}

}  // namespace axccl::api

using axccl::api::Entry;
using axccl::api::Message;
using axccl::api::Permute;
using axccl::plan::Kind;

AXCCL_API ncclResult_t axcclSend(int count, const axcclView_t* in, int peer, axcclChannel_t channel,
                                 const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclSend",
               [&](const char* call) { return Message(call, count, in, true, peer, channel, options, stream); });
}

AXCCL_API ncclResult_t axcclRecv(int count, const axcclView_t* out, int peer, axcclChannel_t channel,
                                 const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclRecv",
               [&](const char* call) { return Message(call, count, out, false, peer, channel, options, stream); });
}

AXCCL_API ncclResult_t axcclCollectivePermute(int count, const axcclView_t* in, const axcclView_t* out,
                                              const int64_t* pairs, int num_pairs, axcclChannel_t channel,
                                              const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclCollectivePermute", [&](const char* call) {
    return Permute({call, Kind::kSendRecv, count, in, out, options}, pairs, num_pairs, channel, stream);
  });
}
