// What a rank does with its own memory alone: messages to itself, and zeros for ranks that get nothing.
#pragma once

#include "src/exec/call/call.h"

namespace axccl::exec {

// Fills the output of an operand, which is one block, with zeros.
void FillZeros(const ViewOperand& operand);

// Copies the input of a call to its output; operands of one block. A call on views without an input is filled with
// zeros.
void CopyLocally(const Call& call);

}  // namespace axccl::exec
