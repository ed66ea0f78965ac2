// The data movers of the device: what a block does together to combine several sources into several destinations.
//
// As kernels/host/mover.h, to the bit: every source is read once and every destination written once, a destination may
// be one of the sources, pointers need only the alignment of the element. All threads of the block call these functions
// with the same arguments; there is no barrier in them, before or after.
//
// Addresses are a list, and the arithmetic does not know where pieces lie: movers of strided boxes will differ from
// these in how they find the places of a piece (Pieces), nothing else.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.h"
#include "src/base/types.h"

namespace axccl::kernels::cuda {

// One move, in the block's shared memory.
struct Move {
  uint8_t* place[kMaxOperands];  // destinations, then sources
  Factor factor[kMaxOperands];   // of operands: what sources are multiplied by, where `scaled`
  uint64_t count;                // elements
  uint64_t divisor;              // of the result, integers only; 0: none
  uint32_t element;              // bytes of one
  uint32_t num_dst, num_src;
  DataType type;
  Combine combine;
  bool scaled;
  bool round_factored;  // as ReduceRequest::round_factored

  AXCCL_DEVICE uint8_t* const* src() const { return place + num_dst; }
  AXCCL_DEVICE const Factor* pre() const { return factor + num_dst; }
  AXCCL_DEVICE uint32_t num_operands() const { return num_dst + num_src; }
  // Whether it is a copy, whatever the type.
  AXCCL_DEVICE bool IsCopy() const { return num_src == 1 && !scaled && divisor <= 1; }
};

// Of a move that is a copy. A destination that is the source itself is left alone: others may be reading it.
AXCCL_DEVICE_CALL void CopyElements(const Move& move);
// Of any other; Combines(type, combine).
AXCCL_DEVICE_CALL void ReduceElements(const Move& move);

}  // namespace axccl::kernels::cuda
