// axcclSend, axcclRecv and axcclCollectivePermute: views from one rank to another.
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "axccl/views.h"
#include "src/api/calls.h"
#include "src/api/channels.h"
#include "src/api/export.h"
#include "src/api/operands.h"
#include "src/base/hash.h"
#include "src/base/log.h"
#include "src/tensor/replica_groups.h"

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

// A rank's part in a permutation, as positions in the group; -1: none.
struct Neighbours {
  int target = -1, source = -1;
};

Status FindNeighbours(const char* name, const int64_t* pairs, int num_pairs, const GroupPlace& place,
                      Neighbours* neighbours) {
  if (num_pairs < 0 || (num_pairs > 0 && pairs == nullptr))
    return MakeStatus(Code::kInvalidArgument, "%s: argument num_pairs is %d and pairs is %p; pass num_pairs pairs",
                      name, num_pairs, static_cast<const void*>(pairs));
  for (int i = 0; i < 2 * num_pairs; ++i) {
    if (pairs[i] < 0 || pairs[i] >= place.ranks)
      return MakeStatus(
          Code::kInvalidArgument,
          "%s: argument pairs: the %s of pair %d is %lld, out of range; pass ranks of the channel's group (0..%d) "
          "[StableHLO collective_permute (C4)]",
          name, i % 2 == 0 ? "source" : "target", i / 2, static_cast<long long>(pairs[i]), place.ranks - 1);
  }
  tensor::PairRequest request;
  request.call = name;
  request.grid = {1, place.ranks};
  request.pairs = tensor::IdLists::Rectangular(std::span(pairs, 2 * static_cast<size_t>(num_pairs)), 2);
  AXCCL_ASSIGN_OR_RETURN(const tensor::PermutePairs permutation, tensor::PermutePairs::Make(request));
  *neighbours = {permutation.TargetOf(place.rank), permutation.SourceOf(place.rank)};
  return Status();
}

// Finds the operands of a permutation: input and output have one shape and do not overlap. Without `sends`, reads only
// the outputs.
Status FindPermuted(const ViewRequest& r, bool sends, exec::ViewList* list) {
  const plan::Contract both{Kind::kAllReduce, 1, 0}, output_only{Kind::kScatter, 2, 0};
  const ViewContext context{r, sends ? both : output_only, sends ? 0 : 1};
  std::vector<ViewPair> operands;
  AXCCL_RETURN_IF_ERROR(ReadOperands(context, &operands));
  for (int i = 0; i < r.count; ++i) {
    const ViewPair& operand = operands[static_cast<size_t>(i)];
    tensor::Blocks blocks;
    AXCCL_RETURN_IF_ERROR(CheckOperand(context, i, operand, &blocks));
    AXCCL_RETURN_IF_ERROR(CheckInPlace(context, i, operand, nullptr, nullptr));
    AXCCL_RETURN_IF_ERROR(ConvertBlocks(context, i, operand, blocks, &list->operands.emplace_back()));
  }
  return r.count > 1 ? CheckApart(context, operands) : Status();
}

// A hash of the pairs, on which ranks must agree: all of them, in any order.
uint64_t HashOf(const int64_t* pairs, int num_pairs) {
  uint64_t sum = kHashSeed;
  for (int i = 0; i < num_pairs; ++i)
    sum += Mix(Mix(kHashSeed, static_cast<uint64_t>(pairs[2 * i])), static_cast<uint64_t>(pairs[2 * i + 1]));
  return sum | 1;
}

// The part of a message, or of zeros, that is sent from the inputs or arrives in the outputs.
exec::ViewList OneSide(exec::ViewList list, bool inputs) {
  for (exec::ViewOperand& operand : list.operands) {
    if (inputs) {
      operand.output = nullptr;
    } else {
      operand.input = nullptr;
    }
  }
  return list;
}

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
  list.pairs = pin.place.ranks != 0 ? HashOf(pairs, num_pairs) : 0;
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
