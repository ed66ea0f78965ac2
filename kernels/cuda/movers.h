// The data movers of the device: a block combines several sources into several destinations.
//
// They work as kernels/host/mover.h, with the same bits: every source is read once and every destination written once,
// a destination may be one of the sources, pointers need only the alignment of the element, and an operand has at most
// 2^30 bytes. All threads of the block call these functions with the same arguments, after a barrier that follows
// acquiring or writing the operands. Only a copy by tiles has barriers (within and after it), and storing to slots of
// rows (before each store). Slots of rows require whole warps.
//
// The arithmetic is independent of the pieces' addresses: for strided operands (box.h), only the addresses are computed
// in another way (Pieces).
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
  Factor factor[kMaxOperands];   // for operands: what sources are multiplied by, if `scaled`
  uint64_t count;                // elements
  uint64_t divisor;              // for the result, integers only; 0: none
  Factor post;                   // for the result, if `scales_result`: floats only
  uint64_t flag;                 // flag of the words or rows of packed slots
  uint32_t element;              // bytes of an element
  uint32_t num_dst, num_src;
  DataType type;
  Combine combine;
  bool scaled;
  bool round_factored;  // as ReduceRequest::round_factored
  bool scales_result;
  Packing packing;  // for operands that are slots (packed.h); operands of boxes are not packed
#if defined(AXCCL_CUDA_HAS_BULK)
  BulkRing* ring;  // the owner of the move sets it once
#endif

  AXCCL_DEVICE uint8_t* const* src() const { return place + num_dst; }
  AXCCL_DEVICE const Factor* pre() const { return factor + num_dst; }
  AXCCL_DEVICE uint32_t num_operands() const { return num_dst + num_src; }
  // Whether the move is a copy; independent of the type.
  AXCCL_DEVICE bool IsCopy() const { return num_src == 1 && !scaled && divisor <= 1 && !scales_result; }
};

// Executes a move that is a copy. A destination that equals the source is not written: other ranks may be reading it.
AXCCL_DEVICE_CALL void CopyElements(const Move& move);
// Executes any other move; Combines(type, combine) must be true.
AXCCL_DEVICE_CALL void ReduceElements(const Move& move);
// Reduces `move.num_src` sources of `bytes` bytes that the block keeps in shared memory, at `kept` and in whole pieces
// of 16 bytes, into the first destination.
AXCCL_DEVICE_CALL void ReduceKeptElements(const Move& move, void* kept, uint32_t bytes);
// Scales `num` pieces there as the first source; the combination must be a sum.
AXCCL_DEVICE_CALL void ScaleKeptElements(const Move& move, void* kept, uint32_t num);
// The same for operands with the layout `box`, which must not be a run; at most kMaxBoxPieces.
AXCCL_DEVICE_CALL void CopyBox(const Move& move, const Box& box);
AXCCL_DEVICE_CALL void ReduceBox(const Move& move, const Box& box);
#if defined(AXCCL_CUDA_HAS_BULK)
// A copy by the issuers alone: `pieces` aligned pieces of 16 bytes from byte `head` on; or a box whose words have 16
// bytes.
AXCCL_DEVICE_CALL void CopyRunInBulk(const Move& move, BulkRing* ring, uint32_t pieces, uint32_t head);
AXCCL_DEVICE_CALL void CopyBoxInBulk(const Move& move, BulkRing* ring, const Box& box);
#endif

// Executes the move.
AXCCL_DEVICE void MoveElements(const Move& move) {
  if (move.IsCopy()) {
    CopyElements(move);
  } else {
    ReduceElements(move);
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
