#include "perf/overlap/steps.h"

#include <algorithm>

#include "perf/common/calls.h"

namespace axccl::perf::overlap {

axcclView_t Side::Slices(int64_t first, const int64_t* view_sizes) const {
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.data = data + first * strides[0] * element;
  view.datatype = datatype;
  view.num_dims = 4;
  view.sizes = view_sizes;
  view.strides = strides;
  return view;
}

StepLayout::StepLayout(const OverlapOptions& o, int rank_of_layout)
    : options(o),
      rank(rank_of_layout),
      gathers(Gathers(o.pattern)),
      slice_rows(o.m / o.slices / (o.pattern == Pattern::kMatmulAr ? 1 : o.ranks)),
      own_k(gathers ? o.k : o.k / o.ranks),
      a_count(o.m * own_k),
      b_count(own_k * o.n),
      c_count(o.m * o.n),
      other_count(gathers ? o.m / o.ranks * o.k : slice_rows * o.slices * o.n),
      own_rows(gathers ? o.m / o.ranks : o.m),
      result_rows(gathers ? o.m : slice_rows * o.slices) {}

void StepLayout::Place(ncclDataType_t datatype, int64_t element, void* a, void* c, void* other) {
  const int64_t columns = gathers ? options.k : options.n;
  const int64_t blocks = options.pattern == Pattern::kMatmulAr ? 1 : options.ranks;
  const int64_t chunk = slice_rows * columns;
  const auto place = [&](void* data, int64_t side_blocks, int64_t slice_stride, int64_t block_stride) {
    return Side{static_cast<char*>(data),
                datatype,
                element,
                {options.slices, side_blocks, slice_rows, columns},
                {slice_stride, block_stride, columns, 1}};
  };
  const Side one = place(other, 1, chunk, chunk);
  const Side all = options.pattern == Pattern::kAgMatmulOwn ? place(a, blocks, chunk, chunk * options.slices)
                                                            : place(gathers ? a : c, blocks, chunk * blocks, chunk);
  in = gathers ? one : all;
  out = gathers ? all : one;
}

int64_t StepLayout::GlobalRow(int64_t own_row) const {
  if (options.pattern == Pattern::kMatmulAr) return own_row;
  if (options.pattern == Pattern::kAgMatmulOwn) return rank * (options.m / options.ranks) + own_row;
  return (own_row / slice_rows * options.ranks + rank) * slice_rows + own_row % slice_rows;
}

axcclPipelineSpec_t StepLayout::Spec() const {
  axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
  spec.kind = gathers                                 ? axcclPipelineAllGather
              : options.pattern == Pattern::kMatmulAr ? axcclPipelineAllReduce
                                                      : axcclPipelineReduceScatter;
  spec.in = in.View(), spec.out = out.View();
  spec.dim = 1;
  spec.slice_dim = 0, spec.slices = options.slices;
  if (options.pattern == Pattern::kAgMatmulOwn) spec.order = axcclOwnFirst;
  if (!gathers) spec.flags = axcclProducer;
  return spec;
}

void StepLayout::Collective(int64_t slice, int64_t slices, ncclComm_t comm, cudaStream_t stream) const {
  int64_t in_sizes[4], out_sizes[4];
  std::copy_n(in.sizes, 4, in_sizes);
  std::copy_n(out.sizes, 4, out_sizes);
  in_sizes[0] = out_sizes[0] = slices;
  const axcclView_t from = in.Slices(slice, in_sizes), to = out.Slices(slice, out_sizes);
  const axcclChannel_t channel = axcclDefaultChannel(comm);
  if (gathers) {
    PERF_CALL(axcclAllGather(1, &from, &to, 1, channel, nullptr, stream));
  } else if (options.pattern == Pattern::kMatmulAr) {
    PERF_CALL(axcclAllReduce(1, &from, &to, ncclSum, channel, nullptr, stream));
  } else {
    PERF_CALL(axcclReduceScatter(1, &from, &to, 1, ncclSum, channel, nullptr, stream));
  }
}

}  // namespace axccl::perf::overlap
