// axcclAllGatherList and its siblings: collectives with a view for every rank, made of calls on views in one launch.
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "axccl/views.h"
#include "src/api/calls.h"
#include "src/api/channels.h"
#include "src/api/export.h"
#include "src/api/operands.h"
#include "src/api/view_calls.h"
#include "src/exec/layout.h"

namespace axccl::api {
namespace {

using plan::Kind;

// The arguments of a call with lists.
struct ListRequest {
  const char* name;
  const axcclView_t* input;
  const axcclView_t* output;
  axcclChannel_t channel;
  const axcclOptions_t* options;
  cudaStream_t stream;
};

Status CheckThere(const ListRequest& r, const axcclView_t* views, const char* argument, const char* what) {
  if (views != nullptr) return Status();
  return InvalidArgument("%s: argument %s is NULL; pass %s", r.name, argument, what);
}

// Reads the input or the output: a view for every rank, or one view, which is the part of rank `self`. `count`: the
// views.
Status ReadSide(const ListRequest& r, bool input, int count, int self, std::vector<ViewPair>* operands) {
  if (count == 0) return Status();
  const ViewRequest side{r.name, Kind::kSendRecv, count, r.input, r.output, nullptr};
  std::vector<ViewPair> views;
  AXCCL_RETURN_IF_ERROR(ReadOperands({side, {Kind::kSendRecv, 2, 0}, input ? 0 : 1}, &views));
  for (int i = 0; i < count; ++i) {
    const ViewPair& view = views[static_cast<size_t>(i)];
    ViewPair& operand = (*operands)[static_cast<size_t>(count == 1 ? self : i)];
    (input ? operand.has_input : operand.has_output) = true;
    (input ? operand.input : operand.output) = input ? view.input : view.output;
  }
  return Status();
}

// Checks that no output overlaps another view, but for the part of the rank itself in place. The sides have `inputs`
// and `outputs` views: none, one or one for every rank.
Status CheckViews(const ListRequest& r, const GroupPlace& place, int inputs, int outputs) {
  std::vector<ViewPair> operands(static_cast<size_t>(place.ranks));
  AXCCL_RETURN_IF_ERROR(ReadSide(r, true, inputs, place.rank, &operands));
  AXCCL_RETURN_IF_ERROR(ReadSide(r, false, outputs, place.rank, &operands));
  const ViewRequest request{r.name, Kind::kSendRecv, place.ranks, r.input, r.output, nullptr};
  const ViewContext context{request, {Kind::kSendRecv, 2, 0}, 0};
  for (int i = 0; i < place.ranks; ++i) {
    const ViewPair& operand = operands[static_cast<size_t>(i)];
    const bool own = i == place.rank;
    AXCCL_RETURN_IF_ERROR(
        CheckInPlace(context, i, operand, own ? &operand.input : nullptr, own ? &operand.output : nullptr));
  }
  return CheckApart(context, operands);
}

// Runs `enqueue`, whose operations check each view by itself, in a group, and checks the views against each other.
template <class Fn>
Status EnqueueList(const ListRequest& r, const GroupPlace& place, int inputs, int outputs, const Fn& enqueue) {
  return InGroup(r.name, [&]() -> Status {
    AXCCL_RETURN_IF_ERROR(enqueue());
    return CheckViews(r, place, inputs, outputs);
  });
}

// The numbers 0, 1, 2, ..., which live as long as the process: operand o of a list belongs to rank o.
const int32_t* OwnersFrom(int first) {
  static const auto* const numbers = [] {
    auto* all = new std::array<int32_t, 1 << 16>;
    std::iota(all->begin(), all->end(), 0);
    return all;
  }();
  return numbers->data() + first;
}

// The words that an operand takes in an announcement, as in operands.cc: its form, and what each rank has of it.
int WordsOfGathered(int ranks) { return 4 + 2 * AXCCL_MAX_DIMS + 2 + 4 * ranks; }

// One operation for as many ranks as an announcement has room for.
Status GatherOnHost(const ListRequest& r, const std::vector<axcclView_t>& inputs, const GroupPlace& place) {
  const int ranks = place.ranks;
  const int together = std::max(1, std::min(64, static_cast<int>(exec::kAnnouncementWords) / WordsOfGathered(ranks)));
  return EnqueueList(r, place, 1, ranks, [&]() -> Status {
    for (int first = 0; first < ranks; first += together) {
      const int32_t* const owners = OwnersFrom(first);
      const ViewRequest part{r.name,         Kind::kAllGather, std::min(together, ranks - first),
                             &inputs[first], r.output + first, r.options};
      AXCCL_RETURN_IF_ERROR(
          OnLate(part, {nullptr, nullptr, nullptr, nullptr, owners}, {owners}, kNoReduction, r.channel, r.stream));
    }
    return Status();
  });
}

Status AllGather(const ListRequest& r) {
  AXCCL_ASSIGN_OR_RETURN(const ChannelPin pin, PinChannel(r.channel, r.name));
  AXCCL_RETURN_IF_ERROR(CheckThere(r, r.input, "in", "this rank's part"));
  AXCCL_RETURN_IF_ERROR(CheckThere(r, r.output, "out", "a view for every rank"));
  const auto ranks = static_cast<size_t>(pin.place.ranks);
  // Of the operands of other ranks, this rank reads no input.
  std::vector<axcclView_t> inputs(r.output, r.output + ranks);
  inputs[static_cast<size_t>(pin.place.rank)] = *r.input;
  if (pin.comm->core()->device().traits().runs_uneven) return GatherOnHost(r, inputs, pin.place);
  return EnqueueList(r, pin.place, 1, pin.place.ranks, [&]() -> Status {
    for (int root = 0; root < pin.place.ranks; ++root) {
      const ViewRequest part{
          r.name, Kind::kBroadcast, 1, &inputs[static_cast<size_t>(root)], r.output + root, r.options, 0, 0, root};
      AXCCL_RETURN_IF_ERROR(OnEven(part, kNoReduction, r.channel, r.stream));
    }
    return Status();
  });
}

Status ReduceScatter(const ListRequest& r, ncclRedOp_t op) {
  AXCCL_ASSIGN_OR_RETURN(const ChannelPin pin, PinChannel(r.channel, r.name));
  AXCCL_RETURN_IF_ERROR(CheckThere(r, r.input, "in", "a view for every rank"));
  AXCCL_RETURN_IF_ERROR(CheckThere(r, r.output, "out", "this rank's part"));
  return EnqueueList(r, pin.place, pin.place.ranks, 1, [&]() -> Status {
    for (int root = 0; root < pin.place.ranks; ++root) {
      const ViewRequest part{
          r.name, Kind::kReduce, 1, r.input + root, root == pin.place.rank ? r.output : nullptr, r.options, 0, 0, root};
      AXCCL_RETURN_IF_ERROR(OnEven(part, op, r.channel, r.stream));
    }
    return Status();
  });
}

// Sends `to[p]` to rank p and receives `from[p]` from it; a null list: nothing to anybody, or from anybody. `only`: the
// rank at the other end; -1: all.
Status Exchange(const ListRequest& r, const axcclView_t* to, int to_only, const axcclView_t* from, int from_only,
                const GroupPlace& place) {
  if (const int tag = Options(r.options).tag; tag != 0)
    return InvalidArgument("%s: the options have tag %d; tags go with axcclSend and axcclRecv, pass 0", r.name, tag);
  const auto views = [&](const axcclView_t* list, int only) {
    return list == nullptr ? 0 : only < 0 ? place.ranks : 1;
  };
  return EnqueueList(r, place, views(to, to_only), views(from, from_only), [&]() -> Status {
    for (int peer = 0; peer < place.ranks; ++peer) {
      if (to != nullptr && (to_only < 0 || to_only == peer))
        AXCCL_RETURN_IF_ERROR(
            Message(r.name, 1, to_only < 0 ? to + peer : to, true, peer, r.channel, r.options, r.stream));
      if (from != nullptr && (from_only < 0 || from_only == peer))
        AXCCL_RETURN_IF_ERROR(
            Message(r.name, 1, from_only < 0 ? from + peer : from, false, peer, r.channel, r.options, r.stream));
    }
    return Status();
  });
}

Status AllToAll(const ListRequest& r) {
  AXCCL_ASSIGN_OR_RETURN(const ChannelPin pin, PinChannel(r.channel, r.name));
  AXCCL_RETURN_IF_ERROR(CheckThere(r, r.input, "in", "a view for every rank"));
  AXCCL_RETURN_IF_ERROR(CheckThere(r, r.output, "out", "a view for every rank"));
  return Exchange(r, r.input, -1, r.output, -1, pin.place);
}

// Gather, or scatter: the root has a view for every rank.
Status Rooted(const ListRequest& r, int root, bool gathers) {
  AXCCL_ASSIGN_OR_RETURN(const ChannelPin pin, PinChannel(r.channel, r.name));
  if (static_cast<unsigned>(root) >= static_cast<unsigned>(pin.place.ranks))
    return InvalidArgument("%s: argument root is %d; pass a rank of the channel's group (0..%d)", r.name, root,
                           pin.place.ranks - 1);
  const bool roots = pin.place.rank == root;
  if (gathers || roots)
    AXCCL_RETURN_IF_ERROR(CheckThere(r, r.input, "in", gathers ? "this rank's part" : "a view for every rank"));
  if (!gathers || roots)
    AXCCL_RETURN_IF_ERROR(CheckThere(r, r.output, "out", gathers ? "a view for every rank" : "this rank's part"));
  if (gathers) return Exchange(r, r.input, root, roots ? r.output : nullptr, -1, pin.place);
  return Exchange(r, roots ? r.input : nullptr, -1, r.output, root, pin.place);
}

}  // namespace
}  // namespace axccl::api

using axccl::api::Entry;
using axccl::api::ListRequest;

AXCCL_API ncclResult_t axcclAllGatherList(const axcclView_t* in, const axcclView_t* out, axcclChannel_t channel,
                                          const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclAllGatherList", [&](const char* call) {
    return axccl::api::AllGather({call, in, out, channel, options, stream});
  });
}

AXCCL_API ncclResult_t axcclReduceScatterList(const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                                              axcclChannel_t channel, const axcclOptions_t* options,
                                              cudaStream_t stream) {
  return Entry("axcclReduceScatterList", [&](const char* call) {
    return axccl::api::ReduceScatter({call, in, out, channel, options, stream}, op);
  });
}

AXCCL_API ncclResult_t axcclAllToAllList(const axcclView_t* in, const axcclView_t* out, axcclChannel_t channel,
                                         const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclAllToAllList", [&](const char* call) {
    return axccl::api::AllToAll({call, in, out, channel, options, stream});
  });
}

AXCCL_API ncclResult_t axcclGatherList(const axcclView_t* in, const axcclView_t* out, int root, axcclChannel_t channel,
                                       const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclGatherList", [&](const char* call) {
    return axccl::api::Rooted({call, in, out, channel, options, stream}, root, true);
  });
}

AXCCL_API ncclResult_t axcclScatterList(const axcclView_t* in, const axcclView_t* out, int root, axcclChannel_t channel,
                                        const axcclOptions_t* options, cudaStream_t stream) {
  return Entry("axcclScatterList", [&](const char* call) {
    return axccl::api::Rooted({call, in, out, channel, options, stream}, root, false);
  });
}
