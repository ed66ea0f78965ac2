// A copy as nested loops, from one source to one destination, which the box movers pass to the code that is compiled
// once per instruction set. Plain data without functions, see isa.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace axccl::kernels {

inline constexpr int kMaxNestDims = 8;

struct NestDim {
  uint64_t count;
  int64_t dst;  // bytes from one step to the next
  int64_t src;
};

// Copies `run` bytes at every point of the dimensions. Normal form (see NormalizeNest): strides of the destination are
// positive and descending, counts are above 1, no two dimensions could be merged, and none could be part of the run.
struct CopyNest {
  char* dst;
  const char* src;
  size_t run;
  bool non_temporal;
  int num_dims;
  NestDim dim[kMaxNestDims];
};

struct IsaTable;

// Brings a nest into its normal form. The set of bytes copied stays the same, but their order changes.
void NormalizeNest(CopyNest* nest);

// Normalizes and copies; does nothing if both sides are the same memory. Streamed stores are not fenced.
void RunNest(const IsaTable& isa, CopyNest* nest);

}  // namespace axccl::kernels
