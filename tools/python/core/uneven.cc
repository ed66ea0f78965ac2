// The methods of Channel for parts of different sizes.
#include "tools/python/core/arguments.h"
#include "tools/python/core/channel.h"

namespace axccl::python {
namespace {

// The rows that operand `index` has in all.
int64_t Total(const char* call, const char* argument, const std::vector<int64_t>& extents, int index, int ranks) {
  int64_t total = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (__builtin_add_overflow(total, extents[static_cast<size_t>(index * ranks + rank)], &total))
      RaiseArgument("%s: argument %s has rows whose sum has more than 63 bits; pass fewer", call, argument);
  }
  return total;
}

int64_t Own(const std::vector<int64_t>& extents, int index, int ranks, int rank) {
  return rank < 0 ? 0 : extents[static_cast<size_t>(index * ranks + rank)];
}

}  // namespace

nb::object Channel::AllGatherV(nb::handle x, nb::handle extents_argument, int axis, nb::handle out) {
  constexpr const char* kCall = "all_gather_v";
  Operands in, results;
  in.Read({kCall, "x"}, x, false);
  const std::vector<int64_t> extents = ReadExtents(kCall, "extents", extents_argument, size_, in.count());
  const auto gathered = [&](int i, const axcclView_t& view, int64_t* sizes) {
    sizes[ReadAxis(kCall, "axis", view, axis)] = Total(kCall, "extents", extents, i, size_);
  };
  ReadOrMakeOut(kCall, in, out, gathered, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclAllGatherV(in.count(), in.views(), results.views(), axis, extents.data(), channel_, nullptr, stream);
  });
  return results.result();
}

nb::object Channel::ReduceScatterV(nb::handle x, nb::handle extents_argument, nb::handle op_name, int axis,
                                   nb::handle out) {
  constexpr const char* kCall = "reduce_scatter_v";
  Operands in, results;
  const ncclRedOp_t op = ReadOp(kCall, op_name);
  in.Read({kCall, "x"}, x, false);
  const std::vector<int64_t> extents = ReadExtents(kCall, "extents", extents_argument, size_, in.count());
  const auto part = [&](int i, const axcclView_t& view, int64_t* sizes) {
    sizes[ReadAxis(kCall, "axis", view, axis)] = Own(extents, i, size_, rank_in_group_);
  };
  ReadOrMakeOut(kCall, in, out, part, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclReduceScatterV(in.count(), in.views(), results.views(), axis, op, extents.data(), channel_, nullptr,
                               stream);
  });
  return results.result();
}

nb::object Channel::GatherV(nb::handle x, nb::handle extents_argument, int root, int axis, nb::handle out) {
  constexpr const char* kCall = "gather_v";
  Operands in, results;
  in.Read({kCall, "x"}, x, false);
  const bool receives = rank_in_group_ == root;
  const std::vector<int64_t> extents = ReadExtents(kCall, "extents", extents_argument, size_, in.count());
  const auto gathered = [&](int i, const axcclView_t& view, int64_t* sizes) {
    sizes[ReadAxis(kCall, "axis", view, axis)] = Total(kCall, "extents", extents, i, size_);
  };
  if (receives) ReadOrMakeOut(kCall, in, out, gathered, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclGatherV(in.count(), in.views(), results.views(), axis, root, extents.data(), channel_, nullptr, stream);
  });
  return receives ? results.result() : nb::none();
}

nb::object Channel::ScatterV(nb::handle x, nb::handle extents_argument, int root, int axis, nb::handle out) {
  constexpr const char* kCall = "scatter_v";
  Operands in, results;
  const bool sends = rank_in_group_ == root;
  if (sends) {
    in.Read({kCall, "x"}, x, false);
  } else {
    if (out.is_none())
      RaiseArgument("%s: argument out is None; only the root (rank %d) knows the shape, so pass an array", kCall, root);
    results.Read({kCall, "out"}, out, true);
  }
  const int count = sends ? in.count() : results.count();
  const std::vector<int64_t> extents = ReadExtents(kCall, "extents", extents_argument, size_, count);
  const auto part = [&](int i, const axcclView_t& view, int64_t* sizes) {
    sizes[ReadAxis(kCall, "axis", view, axis)] = Own(extents, i, size_, rank_in_group_);
  };
  if (sends) ReadOrMakeOut(kCall, in, out, part, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclScatterV(count, in.views(), results.views(), axis, root, extents.data(), channel_, nullptr, stream);
  });
  return results.result();
}

nb::object Channel::AllToAllV(nb::handle x, nb::handle send_argument, nb::handle receive_argument, int axis,
                              nb::handle out) {
  constexpr const char* kCall = "all_to_all_v";
  Operands in, results;
  in.Read({kCall, "x"}, x, false);
  const std::vector<int64_t> sent = ReadExtents(kCall, "send_extents", send_argument, size_, in.count());
  const std::vector<int64_t> received = ReadExtents(kCall, "receive_extents", receive_argument, size_, in.count());
  const auto exchanged = [&](int i, const axcclView_t& view, int64_t* sizes) {
    sizes[ReadAxis(kCall, "axis", view, axis)] = Total(kCall, "receive_extents", received, i, size_);
  };
  ReadOrMakeOut(kCall, in, out, exchanged, &results);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclAllToAllV(in.count(), in.views(), results.views(), axis, sent.data(), received.data(), channel_,
                          nullptr, stream);
  });
  return results.result();
}

nb::object Channel::RaggedAllToAll(nb::handle x, nb::handle out, nb::handle input_offsets_argument,
                                   nb::handle send_argument, nb::handle output_offsets_argument,
                                   nb::handle receive_argument, int axis) {
  constexpr const char* kCall = "ragged_all_to_all";
  Operands in, results;
  in.Read({kCall, "x"}, x, false);
  results.Read({kCall, "out"}, out, true);
  CheckCounts(kCall, in, results);
  const auto from = ReadExtents(kCall, "input_offsets", input_offsets_argument, size_, 1);
  const auto sent = ReadExtents(kCall, "send_extents", send_argument, size_, 1);
  const auto to = ReadExtents(kCall, "output_offsets", output_offsets_argument, size_, 1);
  const auto received = ReadExtents(kCall, "receive_extents", receive_argument, size_, 1);
  Run(kCall, [&](cudaStream_t stream) {
    return axcclRaggedAllToAll(in.count(), in.views(), results.views(), axis, from.data(), sent.data(), to.data(),
                               received.data(), channel_, nullptr, stream);
  });
  return results.result();
}

}  // namespace axccl::python
