// Host data movers: n-ary reduce-copy and multi-destination copy.
//
// Every source is read once and every destination written once per call. Pointers need only the alignment of the
// element. A destination may be identical to a source (in place); any other overlap is undefined. Functions are pure,
// thread-safe, never allocate and never fail.
//
// Arithmetic: integers wrap in their own width. f64 accumulates in f64; f32 in f32; f16, bf16 and fp8 accumulate in f32
// over all sources of the call, in the order of `src`, and round once to nearest even. fp8 is OCP e4m3fn and e5m2;
// results beyond the largest finite value (infinity too) saturate to it and NaN stays NaN, as in CUDA's conversions
// with SATFINITE. min/max: NaN in any source gives NaN, and -0 is less than +0, so both are associative bit for bit. A
// NaN result is the positive quiet one without payload (f32 0x7fc00000, f16 0x7e00, bf16 0x7fc0, fp8 0x7f). Complex
// numbers are added part by part and multiplied as (ac - bd) + (ad + bc)i, with every operation rounded separately;
// each part may be NaN by itself. For bools, sum and max are "or", prod and min are "and". Logical operations, and all
// operations on bools, take any element but 0 as true and give 0 and 1. All this gives the same bits on every
// instruction set and in every floating-point mode of the calling thread, which keeps its mode. Exception: one source
// with neither factors nor divisor is a copy, bit for bit.
//
// One source file is compiled once per instruction set; the first call chooses among them, and ActiveIsa() returns
// which.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/types.h"

namespace axccl::kernels {

struct ReduceRequest {
  void* const* dst;  // num_dst >= 1 destinations, each `count` elements
  int num_dst;
  const void* const* src;  // num_src >= 1 sources, each `count` elements
  int num_src;
  size_t count;   // elements
  DataType type;  // Combines(type, combine)
  Combine combine;
  // The call scales sums only, and never bools.
  const Factor* pre = nullptr;  // num_src factors applied to the sources as they are loaded, or null
  // For floats of 8 and 16 bits: rounds every source to `type` after multiplying it by its factor, as if it had been
  // stored; otherwise only the result is rounded.
  bool round_factored = false;
  uint64_t post_divisor = 0;     // integers only, as factors: divide the result (signed: toward zero); 0 = none
  const Factor* post = nullptr;  // floats: what the result is multiplied by before it is rounded
  bool non_temporal = false;     // write around the cache (for data larger than it)
};

void Reduce(const ReduceRequest& request);
// The same for a request that scales nothing and does not write around the cache; faster for few bytes.
void ReduceUnscaled(const ReduceRequest& request);

// Copies `bytes` bytes from src to every destination.
void Copy(void* const* dst, int num_dst, const void* src, size_t bytes, bool non_temporal);

// Returns "baseline", "avx2" or "avx512": the choice for this machine. AXCCL_ISA forces a lower one (tests).
const char* ActiveIsa();
// Number of instruction sets that can run here; tests call ReduceWithIsa/CopyWithIsa for each index below it.
int NumIsas();
const char* IsaName(int isa);
void ReduceWithIsa(int isa, const ReduceRequest& request);
void CopyWithIsa(int isa, void* const* dst, int num_dst, const void* src, size_t bytes, bool non_temporal);

}  // namespace axccl::kernels
