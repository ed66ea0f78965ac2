#include "src/exec/call/operands.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "src/base/hash.h"
#include "src/base/sizes.h"

namespace axccl::exec {

bool BlockForm::Unpack(uint64_t packed) {
  shape.dims = static_cast<int8_t>(packed);
  split = static_cast<int8_t>(packed >> 8);
  concat = static_cast<int8_t>(packed >> 16);
  auto is_dim = [&](int dim) { return dim >= -1 && dim < shape.dims; };
  return packed >> 24 == 0 && shape.dims >= 0 && shape.dims <= tensor::kMaxDims && is_dim(split) && is_dim(concat);
}

tensor::Shape BlockForm::OperandShape(int dim, int blocks) const {
  tensor::Shape operand = shape;
  // If the elements cannot be counted, any number that no memory has will do.
  if (dim >= 0 && __builtin_mul_overflow(shape.sizes[dim], int64_t{blocks}, &operand.sizes[dim]))
    operand.sizes[dim] = INT64_MAX;
  return operand;
}

BlockForm BlockForm::WithFirst(int dim) const {
  BlockForm form = *this;
  std::rotate(form.shape.sizes, form.shape.sizes + dim, form.shape.sizes + dim + 1);
  const auto moved = [dim](int d) { return d == dim ? 0 : d + (d >= 0 && d < dim); };
  form.split = moved(split);
  form.concat = moved(concat);
  return form;
}

BlockForm BlockForm::WithFirstAt(int dim) const {
  BlockForm form = *this;
  std::rotate(form.shape.sizes, form.shape.sizes + 1, form.shape.sizes + dim + 1);
  const auto moved = [dim](int d) { return d == 0 ? dim : d - (d > 0 && d <= dim); };
  form.split = moved(split);
  form.concat = moved(concat);
  return form;
}

int64_t BlockStep(const ViewOperand& operand, int dim, int blocks, const int64_t* strides) {
  if (blocks < 2 || operand.block_bytes == 0) return 0;
  return strides[dim] * operand.form.shape.sizes[dim] * static_cast<int64_t>(ElementSize(operand.type));
}

tensor::View WholeView(const ViewOperand& operand, int dim, int blocks, const int64_t* strides) {
  tensor::View view;
  view.element_size = static_cast<uint32_t>(ElementSize(operand.type));
  view.shape = operand.form.OperandShape(dim, blocks);
  std::copy_n(strides, tensor::kMaxDims, view.strides);
  return view;
}

uint64_t Slices::Packed() const {
  if (slices == 0) return 0;
  return static_cast<uint64_t>(slices) << 32 | uint64_t{produced} << 16 | uint64_t{order} << 8 | uint8_t(dim);
}

Slices Slices::Unpack(uint64_t packed) {
  Slices unpacked;
  unpacked.slices = static_cast<int64_t>(packed >> 32);
  unpacked.produced = (packed >> 16 & 1) != 0;
  unpacked.order = static_cast<uint8_t>(packed >> 8);
  unpacked.dim = static_cast<int8_t>(packed);
  return unpacked;
}

uint32_t ViewList::Hash() const {
  uint64_t hash = kHashSeed;
  auto add = [&hash](uint64_t word) { hash = Mix(hash, word); };
  for (const ViewOperand& operand : operands) {
    add(operand.form.Packed() | uint64_t(operand.type) << 32);
    for (int d = 0; d < operand.form.shape.dims; ++d) add(static_cast<uint64_t>(operand.form.shape.sizes[d]));
  }
  if (scale != 0) add(std::bit_cast<uint64_t>(scale));
  if (pairs != 0) add(pairs);
  if (slices.slices != 0) add(slices.Packed());
  return static_cast<uint32_t>(hash >> 32) | 1;
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

namespace {

// The separate runs of a block in an operand whose blocks follow each other along `dim`.
uint64_t Runs(const ViewOperand& operand, int dim) {
  uint64_t runs = 1;
  for (int d = 0; d < dim; ++d) runs *= static_cast<uint64_t>(operand.form.shape.sizes[d]);
  return runs;
}

}  // namespace

// Whether is(operand) holds for most of the data of even calls.
template <class Is>
bool ViewList::Mostly(const Is& is) const {
  uint64_t bytes = 0, that_are = 0;
  for (const ViewOperand& operand : operands) {
    bytes += operand.block_bytes;
    if (operand.block_bytes != 0 && is(operand)) that_are += operand.block_bytes;
  }
  return !uneven && that_are > bytes / 2;
}

bool ViewList::ShortRuns() const {
  constexpr uint64_t kShort = 4 * kCacheLine;
  return Mostly([](const ViewOperand& operand) {
    const uint64_t runs = Runs(operand, operand.form.concat), run = operand.block_bytes / runs;
    return runs > 1 && run < kShort && run % kCacheLine != 0;
  });
}

bool ViewList::SplitRows() const {
  constexpr uint64_t kLeast = 1024, kMost = 32768;
  return Mostly([](const ViewOperand& operand) {
    const uint64_t rows = Runs(operand, operand.form.split), row = operand.block_bytes / rows;
    return row >= kLeast && row <= kMost && Runs(operand, operand.form.concat) < rows;
  });
}

std::string Text(const BlockForm& form, DataType type) {
  std::string text = tensor::Text(form.shape) + " " + DataTypeName(type);
  if (form.split >= 0) text += " split along dimension " + std::to_string(form.split);
  if (form.concat >= 0) text += " concatenated along dimension " + std::to_string(form.concat);
  return text;
}

std::string Text(const Slices& slices) {
  if (slices.slices == 0) return "";
  constexpr const char* kOrders[] = {"", ", own first", ", own last", ", by rank"};
  std::string text = ", in " + std::to_string(slices.slices) + (slices.slices == 1 ? " slice" : " slices") +
                     " along dimension " + std::to_string(slices.dim);
  text += slices.order < std::size(kOrders) ? kOrders[slices.order] : ", in an unreadable order";
  return text + (slices.produced ? ", produced" : "");
}

}  // namespace axccl::exec
