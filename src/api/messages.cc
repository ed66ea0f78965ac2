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
#include "src/base/log.h"

namespace axccl::api {
namespace {

using plan::Kind;

Status EnqueueMessage(const char* name, const ChannelPin& pin, int peer, bool sending,
                      const std::vector<exec::Call>& calls, exec::StreamRef stream) {
  AXCCL_ASSIGN_OR_RETURN(exec::Channel * pair, PairOf(name, pin, peer, sending));
  for (exec::Call call : calls) {
    call.second_name = !sending;
    AXCCL_RETURN_IF_ERROR(Enqueue(pin.comm.get(), pair, call, stream));
  }
  return Status();
}

Status Message(const char* name, int count, const axcclView_t* view, bool sending, int peer, axcclChannel_t channel,
               const axcclOptions_t* options, cudaStream_t stream_handle) {
  AXCCL_ASSIGN_OR_RETURN(const ChannelPin pin, PinChannel(channel, name));
  if (static_cast<unsigned>(peer) >= static_cast<unsigned>(pin.place.ranks))
    return InvalidArgument("%s: argument peer is %d; pass a rank of the channel's group (0..%d)", name, peer,
                           pin.place.ranks - 1);
  const ViewRequest request{name, Kind::kSendRecv, count, sending ? view : nullptr, sending ? nullptr : view, options};
  exec::ViewList list;
  AXCCL_RETURN_IF_ERROR(FindOperands(request, 2, sending ? 0 : 1, &list));
  std::vector<exec::Call> calls;
  AXCCL_RETURN_IF_ERROR(MakeCalls(request, std::move(list), &calls));
  exec::StreamRef stream;
  AXCCL_RETURN_IF_ERROR(pin.comm->core()->device().FindStream(stream_handle, name, &stream));
  if (peer != pin.place.rank) return EnqueueMessage(name, pin, peer, sending, calls, stream);
  for (exec::Call& call : calls) {
    call.second_name = !sending;
    AXCCL_RETURN_IF_ERROR(EnqueueSelf(name, pin.comm.get(), pin.channel, call, sending, stream));
  }
  return Status();
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
  if (!sent.empty()) AXCCL_RETURN_IF_ERROR(EnqueueMessage(r.name, pin, neighbours.target, true, sent, stream));
  if (neighbours.source >= 0 && !to_self)
    return EnqueueMessage(r.name, pin, neighbours.source, false, received, stream);
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
