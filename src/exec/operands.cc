#include "src/exec/operands.h"

#include <algorithm>
#include <bit>

#include "src/exec/layout.h"

namespace axccl::exec {

bool BlockForm::Unpack(uint64_t packed) {
  shape.dims = static_cast<int8_t>(packed);
  split = static_cast<int8_t>(packed >> 8);
  concat = static_cast<int8_t>(packed >> 16);
  auto is_dim = [&](int dim) { return dim >= -1 && dim < shape.dims; };
  return packed >> 24 == 0 && shape.dims >= 0 && shape.dims <= plan::kMaxDims && is_dim(split) && is_dim(concat);
}

plan::Shape BlockForm::OperandShape(int dim, int blocks) const {
  plan::Shape operand = shape;
  // Too many elements to count are as good as any number that no memory has.
  if (dim >= 0 && __builtin_mul_overflow(shape.sizes[dim], int64_t{blocks}, &operand.sizes[dim]))
    operand.sizes[dim] = INT64_MAX;
  return operand;
}

uint32_t ViewList::Hash() const {
  uint64_t h = 0x9e3779b97f4a7c15ull;
  auto add = [&h](uint64_t word) {
    h = (h ^ word) * 0xff51afd7ed558ccdull;
    h ^= h >> 32;
  };
  for (const ViewOperand& operand : operands) {
    add(operand.form.Packed() | uint64_t(operand.type) << 32);
    for (int d = 0; d < operand.form.shape.dims; ++d) add(static_cast<uint64_t>(operand.form.shape.sizes[d]));
  }
  if (scale != 0) add(std::bit_cast<uint64_t>(scale));
  return static_cast<uint32_t>(h * 0xc4ceb9fe1a85ec53ull >> 32) | 1;
}

DataType ViewList::CommonType() const {
  const DataType first = operands[0].type;
  const bool all = std::all_of(operands.begin(), operands.end(), [&](const ViewOperand& o) { return o.type == first; });
  return all ? first : DataType::kUint8;
}

uint64_t ViewList::BlockCount() const {
  uint64_t bytes = 0;
  for (const ViewOperand& operand : operands) bytes = RoundUp(bytes, kOperandAlignment) + operand.block_bytes;
  return bytes / ElementSize(CommonType());
}

bool ViewList::ShortRuns() const {
  constexpr uint64_t kLineBytes = 64, kShort = 4 * kLineBytes;
  if (uneven) return false;
  uint64_t bytes = 0, in_short_runs = 0;
  for (const ViewOperand& operand : operands) {
    if (operand.block_bytes == 0) continue;
    bytes += operand.block_bytes;
    uint64_t runs = 1;
    for (int d = 0; d < operand.form.concat; ++d) runs *= static_cast<uint64_t>(operand.form.shape.sizes[d]);
    const uint64_t run = operand.block_bytes / runs;
    if (runs > 1 && run < kShort && run % kLineBytes != 0) in_short_runs += operand.block_bytes;
  }
  return in_short_runs > bytes / 2;
}

std::string Text(const BlockForm& form, DataType type) {
  std::string text = plan::Text(form.shape) + " " + DataTypeName(type);
  if (form.split >= 0) text += " split along dimension " + std::to_string(form.split);
  if (form.concat >= 0) text += " concatenated along dimension " + std::to_string(form.concat);
  return text;
}

}  // namespace axccl::exec
