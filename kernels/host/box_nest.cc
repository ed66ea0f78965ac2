#include "kernels/host/box_nest.h"

#include "kernels/host/isa.h"

namespace axccl::kernels {
namespace {

// Offsets wrap: the strides of dimensions that are never stepped along may have any value.
int64_t Times(uint64_t count, int64_t stride) { return static_cast<int64_t>(count * static_cast<uint64_t>(stride)); }

// Walks the dimension backwards if that makes the destination's stride positive, because runs only grow upwards.
void Flip(CopyNest* nest, NestDim* dim) {
  nest->dst += Times(dim->count - 1, dim->dst);
  nest->src += Times(dim->count - 1, dim->src);
  dim->dst = -dim->dst;
  dim->src = -dim->src;
}

bool InPlace(const CopyNest& nest) {
  if (nest.dst != nest.src) return false;
  for (int i = 0; i < nest.num_dims; ++i) {
    if (nest.dim[i].dst != nest.dim[i].src) return false;
  }
  return true;
}

}  // namespace

void NormalizeNest(CopyNest* nest) {
  int num = 0;
  for (int i = 0; i < nest->num_dims; ++i) {
    NestDim dim = nest->dim[i];
    if (dim.count == 1) continue;
    if (dim.dst < 0) Flip(nest, &dim);
    int at = num++;
    for (; at > 0 && nest->dim[at - 1].dst < dim.dst; --at) nest->dim[at] = nest->dim[at - 1];
    nest->dim[at] = dim;
  }
  int last = -1;
  for (int i = 0; i < num; ++i) {
    const NestDim dim = nest->dim[i];
    if (last >= 0 && nest->dim[last].dst == Times(dim.count, dim.dst) &&
        nest->dim[last].src == Times(dim.count, dim.src)) {
      nest->dim[last] = {nest->dim[last].count * dim.count, dim.dst, dim.src};
    } else {
      nest->dim[++last] = dim;
    }
  }
  nest->num_dims = last + 1;
  if (last < 0) return;
  const int64_t run = static_cast<int64_t>(nest->run);
  if (nest->dim[last].dst == run && nest->dim[last].src == run) {
    nest->run *= nest->dim[last].count;
    nest->num_dims = last;
  }
}

void RunNest(const IsaTable& isa, CopyNest* nest) {
  NormalizeNest(nest);
  if (InPlace(*nest)) return;
  if (nest->num_dims == 0) {
    // Makes a nest of one run, so that there is one way to stream.
    nest->num_dims = 1;
    nest->dim[0] = {1, 0, 0};
  }
  isa.move_nest(*nest);
}

}  // namespace axccl::kernels
