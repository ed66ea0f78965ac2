#include "tools/python/core/channel.h"

#include <algorithm>
#include <utility>

#include "tools/python/core/arguments.h"

namespace axccl::python {
namespace {

void Divide(const char* call, const char* argument, int64_t* size, int axis, int parts) {
  if (*size % parts != 0) {
    RaiseArgument(
        "%s: argument %s is %d, where the array has %lld rows, which do not divide among %d ranks; for uneven "
        "parts there is %s_v",
        call, argument, axis, static_cast<long long>(*size), parts, call);
  }
  *size /= parts;
}

void CheckRoot(const char* call, const char* argument, int root, int size) {
  if (root >= 0 && root < size) return;
  RaiseArgument("%s: argument %s is %d; the channel has ranks 0..%d", call, argument, root, size - 1);
}

// Views with the addresses of `operands` for a call that ignores them elsewhere.
const axcclView_t* Only(bool here, const Operands& operands) { return here ? operands.views() : nullptr; }

}  // namespace

Channel::Channel(std::shared_ptr<Rank> rank)
    : rank_(std::move(rank)), channel_(axcclDefaultChannel(rank_->comm("Channel"))), created_(false) {
  rank_in_group_ = rank_->rank();
  size_ = rank_->size();
}

Channel::Channel(std::shared_ptr<Rank> rank, axcclChannel_t created)
    : rank_(std::move(rank)), channel_(created), created_(true) {
  axcclChannelInfo_t info{};
  info.size = sizeof info;
  RaiseIfFailed(Take(axcclChannelGetInfo(channel_, &info)));
  rank_in_group_ = info.group_rank;
  size_ = info.group_size;
  group_ = info.group;
  id_ = info.channel_id;
}

Channel::~Channel() { CloseChannel(); }

void Channel::CloseChannel() {
  if (created_ && !std::exchange(closed_, true)) (void)axcclChannelDestroy(channel_);
}

void Channel::Check(const char* call) const {
  (void)rank_->comm(call);
  if (closed_) Raise(ncclInvalidUsage, std::string(call) + ": the channel is closed; make a new one");
}

nb::object Channel::AllReduce(nb::handle x, nb::handle op_name, nb::handle out) {
  constexpr const char* kCall = "all_reduce";
  Operands in, results;
  const ncclRedOp_t op = ReadOp(kCall, op_name);
  in.Read({kCall, "x"}, x, false);
  ReadOrMakeOut(kCall, in, out, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclAllReduce(in.count(), in.views(), results.views(), op, channel_, nullptr, stream);
  });
  return results.result();
}

nb::object Channel::AllGather(nb::handle x, int axis, nb::handle out) {
  constexpr const char* kCall = "all_gather";
  Operands in, results;
  in.Read({kCall, "x"}, x, false);
  const auto gathered = [&](int, const axcclView_t& view, int64_t* sizes) {
    int64_t& rows = sizes[ReadAxis(kCall, "axis", view, axis)];
    rows = TimesRanks(kCall, rows, size_);
  };
  ReadOrMakeOut(kCall, in, out, gathered, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclAllGather(in.count(), in.views(), results.views(), axis, channel_, nullptr, stream);
  });
  return results.result();
}

nb::object Channel::ReduceScatter(nb::handle x, nb::handle op_name, int axis, nb::handle out) {
  constexpr const char* kCall = "reduce_scatter";
  Operands in, results;
  const ncclRedOp_t op = ReadOp(kCall, op_name);
  in.Read({kCall, "x"}, x, false);
  Check(kCall);
  const auto part = [&](int, const axcclView_t& view, int64_t* sizes) {
    Divide(kCall, "axis", &sizes[ReadAxis(kCall, "axis", view, axis)], axis, std::max(size_, 1));
  };
  ReadOrMakeOut(kCall, in, out, part, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclReduceScatter(in.count(), in.views(), results.views(), axis, op, channel_, nullptr, stream);
  });
  return results.result();
}

nb::object Channel::AllToAll(nb::handle x, int split_axis, int concat_axis, nb::handle out) {
  constexpr const char* kCall = "all_to_all";
  Operands in, results;
  in.Read({kCall, "x"}, x, false);
  const auto exchanged = [&](int, const axcclView_t& view, int64_t* sizes) {
    Divide(kCall, "split_axis", &sizes[ReadAxis(kCall, "split_axis", view, split_axis)], split_axis,
           std::max(size_, 1));
    int64_t& rows = sizes[ReadAxis(kCall, "concat_axis", view, concat_axis)];
    rows = TimesRanks(kCall, rows, size_);
  };
  ReadOrMakeOut(kCall, in, out, exchanged, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclAllToAll(in.count(), in.views(), results.views(), split_axis, concat_axis, channel_, nullptr, stream);
  });
  return results.result();
}

nb::object Channel::Broadcast(nb::handle x, int root, nb::handle out) {
  constexpr const char* kCall = "broadcast";
  Operands in, results;
  const bool in_place = out.is_none();
  const bool sends = rank_in_group_ == root;
  if (sends || in_place) in.Read({kCall, "x"}, x, in_place && !sends);
  if (!in_place) {
    results.Read({kCall, "out"}, out, true);
    if (sends) CheckCounts(kCall, in, results);
  } else if (in.read_only()) {  // the root's, whose content stays; the library needs a place to write it
    ReadOrMakeOut(kCall, in, out, &results);
  }
  const Operands& written = in_place && !in.read_only() ? in : results;
  Run(kCall, [&](cudaStream_t stream) {
    return axcclBroadcast(written.count(), Only(sends, in), written.views(), root, channel_, nullptr, stream);
  });
  return in_place ? in.result() : results.result();
}

nb::object Channel::Reduce(nb::handle x, nb::handle op_name, int root, nb::handle out) {
  constexpr const char* kCall = "reduce";
  Operands in, results;
  const ncclRedOp_t op = ReadOp(kCall, op_name);
  in.Read({kCall, "x"}, x, false);
  if (rank_in_group_ == root || !out.is_none()) ReadOrMakeOut(kCall, in, out, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclReduce(in.count(), in.views(), results.views(), op, root, channel_, nullptr, stream);
  });
  return results.given() ? results.result() : nb::none();
}

nb::object Channel::Gather(nb::handle x, int root, int axis, nb::handle out) {
  constexpr const char* kCall = "gather";
  Operands in, results;
  in.Read({kCall, "x"}, x, false);
  const bool receives = rank_in_group_ == root;
  const auto gathered = [&](int, const axcclView_t& view, int64_t* sizes) {
    int64_t& rows = sizes[ReadAxis(kCall, "axis", view, axis)];
    rows = TimesRanks(kCall, rows, size_);
  };
  if (receives) ReadOrMakeOut(kCall, in, out, gathered, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclGather(in.count(), in.views(), Only(receives, results), axis, root, channel_, nullptr, stream);
  });
  return receives ? results.result() : nb::none();
}

nb::object Channel::Scatter(nb::handle x, int root, int axis, nb::handle out) {
  constexpr const char* kCall = "scatter";
  Operands in, results;
  const bool sends = rank_in_group_ == root;
  Check(kCall);
  CheckRoot(kCall, "root", root, size_);
  if (sends) {
    in.Read({kCall, "x"}, x, false);
    const auto part = [&](int, const axcclView_t& view, int64_t* sizes) {
      Divide(kCall, "axis", &sizes[ReadAxis(kCall, "axis", view, axis)], axis, size_);
    };
    ReadOrMakeOut(kCall, in, out, part, &results);
  } else {
    if (out.is_none())
      RaiseArgument("%s: argument out is None; only the root (rank %d) knows the shape, so pass an array", kCall, root);
    results.Read({kCall, "out"}, out, true);
  }
  Run(kCall, [&](cudaStream_t stream) {
    return axcclScatter(results.count(), Only(sends, in), results.views(), axis, root, channel_, nullptr, stream);
  });
  return results.result();
}

void Channel::Barrier() {
  uint8_t mine = 0, all = 0;
  axcclView_t in = AXCCL_VIEW_INITIALIZER, out = AXCCL_VIEW_INITIALIZER;
  in.data = &mine, out.data = &all;
  in.datatype = out.datatype = ncclUint8;
  Run("barrier", [&](cudaStream_t stream) { return axcclAllReduce(1, &in, &out, ncclMax, channel_, nullptr, stream); });
}

void Channel::Send(nb::handle x, int peer) {
  Operands in;
  in.Read({"send", "x"}, x, false);
  Run("send", [&](cudaStream_t stream) { return axcclSend(in.count(), in.views(), peer, channel_, nullptr, stream); });
}

nb::object Channel::Recv(nb::handle out, int peer) {
  Operands results;
  results.Read({"recv", "out"}, out, true);
  Run("recv", [&](cudaStream_t stream) {
    return axcclRecv(results.count(), results.views(), peer, channel_, nullptr, stream);
  });
  return results.result();
}

nb::object Channel::SendRecv(nb::handle x, int destination, nb::handle out, int source) {
  Operands in, results;
  in.Read({"sendrecv", "x"}, x, false);
  results.Read({"sendrecv", "out"}, out, true);
  Run("sendrecv", [&](cudaStream_t stream) {
    // The first error cancels the group; its text is that of the call.
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return result;
    result = axcclSend(in.count(), in.views(), destination, channel_, nullptr, stream);
    if (result == ncclSuccess) result = axcclRecv(results.count(), results.views(), source, channel_, nullptr, stream);
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
  });
  return results.result();
}

nb::object Channel::Permute(nb::handle x, nb::handle pairs, nb::handle out) {
  constexpr const char* kCall = "permute";
  Operands in, results;
  std::vector<int64_t> numbers;
  for (const nb::handle pair : nb::iter(pairs)) {
    const std::vector<int64_t> both = ReadNumbers(kCall, "pairs", pair);
    if (both.size() != 2)
      RaiseArgument("%s: argument pairs has an entry of %zu numbers; pass pairs (source, target)", kCall, both.size());
    numbers.insert(numbers.end(), both.begin(), both.end());
  }
  in.Read({kCall, "x"}, x, false);
  ReadOrMakeOut(kCall, in, out, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclCollectivePermute(in.count(), in.views(), results.views(), numbers.data(),
                                  static_cast<int>(numbers.size() / 2), channel_, nullptr, stream);
  });
  return results.result();
}

}  // namespace axccl::python
