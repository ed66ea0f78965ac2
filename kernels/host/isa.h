// The seam between the dispatcher and the code that is compiled once per instruction set.
//
// Per instruction set, in its own namespace, mover_isa.cc defines one IsaTable and box_isa.cc the MoveNest in it.
// Nothing else crosses the seam: a shared inline function would be emitted by every compilation, and the linker could
// keep the copy that holds instructions this machine lacks. Tables are constants: readable from any thread at any time,
// also before main.
#pragma once

#include <cstddef>

#include "kernels/host/box_nest.h"
#include "kernels/host/mover.h"

namespace axccl::kernels {

// The addresses that will be read next: `bytes` from each of `num`.
struct Upcoming {
  const char* const* place;
  int num;
  size_t bytes;
};

struct IsaTable {
  void (*reduce)(const ReduceRequest& request);
  void (*reduce_unscaled)(const ReduceRequest& request);  // neither scaled nor around the cache
  void (*copy)(void* const* dst, int num_dst, const void* src, size_t bytes, bool non_temporal);
  void (*move_nest)(const CopyNest& nest);  // in normal form with at least one dimension; streams without a fence
  // Copies around the cache without a fence, and prefetches the upcoming data meanwhile: the stores alone would leave
  // the memory idle, and the loads would have to wait afterwards.
  void (*stream)(char* to, const char* from, size_t bytes, const Upcoming& upcoming);
  // Reduces one of several rows around the cache without a fence. Meanwhile prefetches the sources' next row to the
  // first-level cache, and a later one to the second-level cache; null: there is none.
  void (*reduce_row)(const ReduceRequest& request, const void* const* next_row, const void* const* later_row);
  void (*stream_fence)();  // orders streamed stores before later ones
};

// The table that this machine uses, and the table of an index below NumIsas().
const IsaTable& ActiveTable();
const IsaTable& TableOf(int isa);

// Declared for every instruction set; defined for those this build has (AXCCL_KERNELS_X86 in mover.cc).
namespace baseline {
extern const IsaTable kTable;
void MoveNest(const CopyNest& nest);
}  // namespace baseline
namespace avx2 {
extern const IsaTable kTable;
void MoveNest(const CopyNest& nest);
}  // namespace avx2
namespace avx512 {
extern const IsaTable kTable;
void MoveNest(const CopyNest& nest);
}  // namespace avx512

}  // namespace axccl::kernels
