#include "src/exec/cuda/flat_call.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "src/base/sizes.h"
#include "src/exec/cuda/views.h"

namespace axccl::exec {
namespace {

const ViewOperand& ViewOf(const Call& call) { return call.views->operands[0]; }

// A view of the blocks: their number is its first dimension.
struct Blocks {
  tensor::Shape shape;
  int64_t strides[tensor::kMaxDims] = {};
  tensor::View dense;  // the same without gaps

  Blocks(const ViewOperand& view, int dim, int blocks, const int64_t* of_view) {
    const auto element = static_cast<uint32_t>(ElementSize(view.type));
    const tensor::Shape& block = view.form.shape;
    shape.dims = block.dims + 1;
    shape.sizes[0] = blocks;
    std::copy_n(block.sizes, block.dims, shape.sizes + 1);
    strides[0] = BlockStep(view, dim, blocks, of_view) / element;
    std::copy_n(of_view, block.dims, strides + 1);
    dense = tensor::DenseView(nullptr, element, shape);
  }
  bool IsDense() const {
    for (int d = 0; d < shape.dims; ++d) {
      if (shape.sizes[d] != 1 && strides[d] != dense.strides[d]) return false;
    }
    return true;
  }
};

// The bytes of a copy of these blocks, 0 if they need none.
size_t BytesOfCopy(const ViewOperand& view, int dim, int blocks, const int64_t* strides) {
  if (blocks == 0 || Blocks(view, dim, blocks, strides).IsDense()) return 0;
  return RoundUp(static_cast<uint64_t>(blocks) * view.block_bytes, kCacheLine);
}

// Of a list of one operand, which is one block.
Call LocalCall(const ViewOperand& operand) {
  ViewList list;
  list.zeros = operand.input == nullptr;
  list.operands.push_back(operand);
  Call call;
  call.kind = plan::Kind::kSendRecv;
  call.type = list.CommonType();
  call.count = list.BlockCount();
  call.input = operand.input;
  call.output = operand.output;
  call.views = std::make_shared<const ViewList>(std::move(list));
  return call;
}

Call LocalCopy(const ViewOperand& view, const tensor::Shape& shape, const void* from, const int64_t* from_strides,
               void* to, const int64_t* to_strides) {
  ViewOperand all;
  all.form.shape = shape;
  all.type = view.type;
  all.block_bytes = static_cast<uint64_t>(tensor::Elements(shape)) * ElementSize(view.type);
  all.input = from;
  all.output = to;
  std::copy_n(from_strides, tensor::kMaxDims, all.input_strides);
  std::copy_n(to_strides, tensor::kMaxDims, all.output_strides);
  return LocalCall(all);
}

Call LocalZeros(const ViewOperand& view) {
  ViewOperand block = view;
  block.form.split = block.form.concat = -1;
  block.input = nullptr;
  return LocalCall(block);
}

}  // namespace

std::optional<Call> WithoutView(const Call& call) {
  const ViewList* const views = call.views.get();
  if (views == nullptr || views->operands.size() != 1 || call.kind == plan::Kind::kBarrier) return {};
  if (views->uneven || views->slices.slices != 0) return {};
  const ViewOperand& view = views->operands[0];
  if (view.block_bytes == 0 || view.form.shape.dims == tensor::kMaxDims) return {};  // copies have one more
  Call flat = call;
  flat.permutes = false;
  flat.views = nullptr;
  ScaleResults(*views, call.type, &flat.scaling, &flat.scalar_bytes);
  return flat;
}

Call OnView(const Call& copy) {
  tensor::Shape shape;
  shape.dims = 1;
  shape.sizes[0] = static_cast<int64_t>(copy.count);
  const int64_t strides[tensor::kMaxDims] = {1};
  ViewOperand operand;
  operand.type = copy.type;
  return LocalCopy(operand, shape, copy.input, strides, copy.output, strides);
}

FlatCall::FlatCall(const Call& call, int ranks, int position)
    : call_(call),
      inputs_(plan::InputBlocks({call.kind, ranks, call.root}, position)),
      outputs_(plan::OutputBlocks({call.kind, ranks, call.root}, position)) {
  const ViewOperand& view = ViewOf(call);
  input_bytes_ = BytesOfCopy(view, view.form.split, inputs_, view.input_strides);
  output_bytes_ = BytesOfCopy(view, view.form.concat, outputs_, view.output_strides);
  fills_zeros_ = call.views->zeros && outputs_ == 0 && view.output != nullptr;
}

FlatCall::Steps FlatCall::On(CUdeviceptr copies) const {
  const ViewOperand& view = ViewOf(call_);
  Steps steps{*WithoutView(call_), {}, {}};
  if (input_bytes_ != 0) {
    const Blocks blocks(view, view.form.split, inputs_, view.input_strides);
    auto* const copy = reinterpret_cast<void*>(copies);
    steps.call.input = copy;
    steps.before = LocalCopy(view, blocks.shape, view.input, blocks.strides, copy, blocks.dense.strides);
  }
  if (output_bytes_ != 0) {
    const Blocks blocks(view, view.form.concat, outputs_, view.output_strides);
    auto* const copy = reinterpret_cast<void*>(copies + input_bytes_);
    steps.call.output = copy;
    steps.after = LocalCopy(view, blocks.shape, copy, blocks.dense.strides, view.output, blocks.strides);
  }
  if (fills_zeros_) steps.after = LocalZeros(view);
  return steps;
}

}  // namespace axccl::exec
