#include "src/exec/host/shadow.h"

#include <algorithm>
#include <utility>

#include "kernels/host/box.h"
#include "src/base/sizes.h"
#include "src/tensor/view.h"
#include "transports/shm/heap.h"

namespace axccl::exec {
namespace {

Result<std::shared_ptr<std::byte>> TakeShared(size_t bytes) {
  AXCCL_ASSIGN_OR_RETURN(shm::Heap* const heap, shm::Heap::Get());
  AXCCL_ASSIGN_OR_RETURN(void* const memory, heap->Allocate(bytes, kPage));
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory),
                                    [heap](std::byte* p) { (void)heap->Free(p).ok(); });
}

}  // namespace

Result<std::unique_ptr<Shadow>> Shadow::For(PipelinePart* part) {
  std::unique_ptr<Shadow> shadow;
  const plan::Schedule& schedule = part->program->plan->schedule;
  const Members& members = part->channel->members();
  // Plans that are not direct touch slots of other ranks only.
  if (!schedule.direct || members.plain_access() == tune::Access::kMapped) return shadow;
  shadow = std::make_unique<Shadow>();
  auto list = std::make_shared<ViewList>(*part->call.views);
  ViewOperand& operand = list->operands[0];
  shadow->operand_ = operand;
  shadow->slicing_ = part->slicing;
  const plan::Contract& contract = schedule.contract;
  auto* input = static_cast<std::byte*>(const_cast<void*>(operand.input));
  AXCCL_RETURN_IF_ERROR(shadow->Replace(*part->channel, plan::InputBlocks(contract, members.self()), operand.form.split,
                                        operand.input_strides, &input, &shadow->input_));
  part->call.input = operand.input = input;
  if (part->outputs_are_read) {
    auto* output = static_cast<std::byte*>(operand.output);
    AXCCL_RETURN_IF_ERROR(shadow->Replace(*part->channel, plan::OutputBlocks(contract, members.self()),
                                          operand.form.concat, operand.output_strides, &output, &shadow->output_));
    part->call.output = operand.output = output;
  }
  if (shadow->bytes() == 0) return std::unique_ptr<Shadow>();
  part->call.views = std::move(list);
  return shadow;
}

// Replaces one side, unless peers reach it.
Status Shadow::Replace(const Channel& channel, int blocks, int dim, int64_t* strides, std::byte** data, Side* side) {
  if (blocks == 0 || operand_.block_bytes == 0) return Status();
  const tensor::View view = WholeView(operand_, dim, blocks, strides);
  const tensor::Extent extent = tensor::ByteExtent(view);
  uint64_t offset = 0;
  if (channel.owner()->InHeap(*data + extent.begin, static_cast<size_t>(extent.end - extent.begin), &offset))
    return Status();
  side->caller = *data;
  std::copy_n(strides, tensor::kMaxDims, side->caller_strides);
  side->caller_step = BlockStep(operand_, dim, blocks, strides);
  const size_t bytes = operand_.block_bytes * static_cast<size_t>(blocks);
  AXCCL_ASSIGN_OR_RETURN(side->memory, TakeShared(bytes));
  const tensor::View dense = tensor::DenseView(side->memory.get(), view.element_size, view.shape);
  std::copy_n(dense.strides, tensor::kMaxDims, side->strides);
  std::copy_n(dense.strides, tensor::kMaxDims, strides);
  side->step = BlockStep(operand_, dim, blocks, side->strides);
  *data = side->memory.get();
  bytes_ += bytes;
  return Status();
}

void Shadow::Copy(const Side& side, uint32_t chunk, bool in) const {
  const int64_t block = chunk / slicing_.slices;
  const plan::Range range = plan::ResolveSlice(slicing_, chunk % slicing_.slices);
  const tensor::Shape& shape = operand_.form.shape;
  auto* const caller = const_cast<std::byte*>(side.caller) + block * side.caller_step;
  const kernels::BoxOperand theirs{caller, side.caller_strides};
  const kernels::BoxOperand ours{side.memory.get() + block * side.step, side.strides};
  kernels::CopyBox({shape.dims, shape.sizes, range.begin, range.count}, in ? &ours : &theirs, 1, in ? theirs : ours,
                   ElementSize(operand_.type), false);
}

}  // namespace axccl::exec
