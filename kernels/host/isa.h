// The seam between the dispatcher and the code that is compiled once per instruction set.
//
// mover_isa.cc defines exactly one IsaTable per compilation, in its own namespace. Nothing else crosses the seam: a
// shared inline function would be emitted by every compilation, and the linker could keep the copy that holds
// instructions this machine lacks. Tables are constants: readable from any thread at any time, also before main.
#pragma once

#include <cstddef>

#include "kernels/host/mover.h"

namespace axccl::kernels {

struct IsaTable {
  void (*reduce)(const ReduceRequest& request);
  void (*copy)(void* const* dst, int num_dst, const void* src, size_t bytes, bool non_temporal);
};

// Declared for every instruction set; defined for those this build has (AXCCL_KERNELS_X86 in mover.cc).
namespace baseline {
extern const IsaTable kTable;
}
namespace avx2 {
extern const IsaTable kTable;
}
namespace avx512 {
extern const IsaTable kTable;
}

}  // namespace axccl::kernels
