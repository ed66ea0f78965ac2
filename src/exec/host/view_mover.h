// Moves the operands of calls on views: a chunk of a block contains parts of one or more operands, and each of these is
// a box for the movers of kernels/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/box.h"
#include "src/exec/host/view_operands.h"

namespace axccl::exec {

class ViewMover {
 public:
  // For `together` steps that run as one, from `steps` on. All arguments must outlive this object.
  ViewMover(const Binding& binding, const ViewOperands& operands, const Step* steps, uint32_t together)
      : binding_(binding), operands_(operands), steps_(steps), together_(together) {}

  void Move(const Chunk& chunk) const;

 private:
  // The part of one operand in a chunk.
  struct OperandSpan {
    size_t operand;
    uint64_t in_chunk;  // bytes from the start of the chunk
    uint64_t begin;     // elements of the operand's block
    uint64_t count;
  };

  kernels::BoxOperand Box(uint32_t operand, const Chunk& chunk, const OperandSpan& span) const;
  // The same, packed if it has no gaps.
  kernels::BoxOperand PackedBox(uint32_t operand, const Chunk& chunk, const OperandSpan& span) const;
  kernels::BoxReduceRequest Reduction(const Step& step, const kernels::BoxRange& range, bool scaled) const;
  void MoveOne(const Step& step, const Chunk& chunk, const OperandSpan& span) const;
  void CopyTogether(const Chunk& chunk, const OperandSpan& span) const;
  void ReduceTogether(const Chunk& chunk, const OperandSpan& span) const;

  const Binding& binding_;
  const ViewOperands& operands_;
  const Step* const steps_;
  const uint32_t together_;
};

}  // namespace axccl::exec
