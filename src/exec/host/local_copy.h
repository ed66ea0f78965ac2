// What a rank does with its own memory alone: messages to itself, and the zeros of those who get nothing.
#pragma once

#include "src/exec/call.h"

namespace axccl::exec {

// Fills the output of an operand, which is one block, with zeros.
void FillZeros(const ViewOperand& operand);

// From the input of a call to its output; operands of one block. Of a call on views without an input: zeros.
void CopyLocally(const Call& call);

}  // namespace axccl::exec
