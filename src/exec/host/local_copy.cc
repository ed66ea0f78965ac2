#include "src/exec/host/local_copy.h"

#include <cstring>

#include "kernels/host/box.h"

namespace axccl::exec {
namespace {

void CopyBlock(const ViewOperand& operand, const kernels::BoxOperand& from) {
  const tensor::Shape& shape = operand.form.shape;
  const kernels::BoxOperand to{operand.output, operand.output_strides};
  const uint64_t size = ElementSize(operand.type);
  kernels::CopyBox({shape.dims, shape.sizes, 0, operand.block_bytes / size}, &to, 1, from, size, false);
}

}  // namespace

void FillZeros(const ViewOperand& operand) {
  static constexpr std::byte kZero[16] = {};
  static constexpr int64_t kNoStrides[tensor::kMaxDims] = {};
  CopyBlock(operand, {const_cast<std::byte*>(kZero), kNoStrides});
}

void CopyLocally(const Call& call) {
  if (call.views == nullptr) {
    if (call.output != call.input && call.count != 0)
      std::memmove(call.output, call.input, call.count * ElementSize(call.type));
    return;
  }
  for (const ViewOperand& operand : call.views->operands) {
    if (operand.output == nullptr) continue;
    if (operand.input == nullptr) {
      FillZeros(operand);
    } else {
      CopyBlock(operand, {const_cast<void*>(operand.input), operand.input_strides});
    }
  }
}

}  // namespace axccl::exec
