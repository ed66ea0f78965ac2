// The data movers of the device: what a block does together to combine several sources into several destinations.
//
// As kernels/host/mover.h, to the bit: every source is read once and every destination written once, a destination may
// be one of the sources, pointers need only the alignment of the element, and an operand has at most 2^30 bytes. All
// threads of the block call these functions with the same arguments, behind a barrier after what the operands are of
// was acquired or written. Only a copy by tiles has barriers, within and after it, and what is stored to packed slots
// of rows, before that. Those want whole warps.
//
// The arithmetic does not know where pieces lie: of strided operands (box.h) only the places of a piece are found in
// another way (Pieces).
#pragma once

#include <cstdint>

#include "kernels/cuda/box.h"
#include "kernels/cuda/bulk.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.h"
#include "src/base/types.h"

namespace axccl::kernels::cuda {

// One move, in the block's shared memory.
struct alignas(16) Move {
  uint8_t* place[kMaxOperands];  // destinations, then sources
  Factor factor[kMaxOperands];   // of operands: what sources are multiplied by, where `scaled`
  uint64_t count;                // elements
  uint64_t divisor;              // of the result, integers only; 0: none
  Factor post;                   // of the result, where `scales_result`: floats only
  uint64_t flag;                 // of their words or rows, where slots are packed
  uint32_t element;              // bytes of one
  uint32_t num_dst, num_src;
  DataType type;
  Combine combine;
  bool scaled;
  bool round_factored;  // as ReduceRequest::round_factored
  bool scales_result;
  Packing packing;  // of operands that are slots (packed.h); those of boxes are not packed
#if defined(AXCCL_CUDA_HAS_BULK)
  BulkRing* ring;  // who has the move sets it once
#endif

  AXCCL_DEVICE uint8_t* const* src() const { return place + num_dst; }
  AXCCL_DEVICE const Factor* pre() const { return factor + num_dst; }
  AXCCL_DEVICE uint32_t num_operands() const { return num_dst + num_src; }
  // Whether it is a copy, whatever the type.
  AXCCL_DEVICE bool IsCopy() const { return num_src == 1 && !scaled && divisor <= 1 && !scales_result; }
};

// Of a move that is a copy. A destination that is the source itself is left alone: others may be reading it.
AXCCL_DEVICE_CALL void CopyElements(const Move& move);
// Of any other; Combines(type, combine). Destinations that are slots of rows have the pieces then, but not their flags.
AXCCL_DEVICE_CALL void ReduceElements(const Move& move);
// After that: makes rows of what the block has stored at their places.
AXCCL_DEVICE_CALL void SealRows(const Move& move);
// The same of operands that lie as `box` says, which is no run; at most kMaxBoxPieces.
AXCCL_DEVICE_CALL void CopyBox(const Move& move, const Box& box);
AXCCL_DEVICE_CALL void ReduceBox(const Move& move, const Box& box);
#if defined(AXCCL_CUDA_HAS_BULK)
// Of a copy, by the first thread alone: `pieces` pieces of 16 bytes from byte `head` on, which are aligned; or a box
// whose words are 16 bytes.
AXCCL_DEVICE_CALL void CopyRunInBulk(const Move& move, BulkRing* ring, uint32_t pieces, uint32_t head);
AXCCL_DEVICE_CALL void CopyBoxInBulk(const Move& move, BulkRing* ring, const Box& box);
#endif

// What the move asks for.
AXCCL_DEVICE void MoveElements(const Move& move) {
  if (move.IsCopy()) {
    CopyElements(move);
  } else {
    ReduceElements(move);
    if (move.packing == Packing::kRows) SealRows(move);
  }
}
AXCCL_DEVICE void MoveBox(const Move& move, const Box& box) {
  if (box.is_run) {
    MoveElements(move);
  } else if (move.IsCopy()) {
    CopyBox(move, box);
  } else {
    ReduceBox(move, box);
  }
}

}  // namespace axccl::kernels::cuda
