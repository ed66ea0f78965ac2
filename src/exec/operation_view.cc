// Calls on views: how their operands are announced, checked and moved.
//
// A rank tells the strides of its operands; the form of the blocks is the same on all ranks, so a peer's operand is
// bound in the form of this rank's own call. Whatever a peer tells, only what lies in its heap is touched.
#include <algorithm>

#include "kernels/host/box.h"
#include "src/exec/operation.h"

namespace axccl::exec {
namespace {

using plan::Buffer;

uint64_t Word(const OpRecord& record, int word) { return record.word[word].load(std::memory_order_relaxed); }
void SetWord(OpRecord* record, int word, uint64_t value) { record->word[word].store(value, std::memory_order_relaxed); }

// Bytes from one block of an operand to the next. Strides of dimensions without a second index mean nothing.
int64_t BlockStep(const Call& call, int dim, int blocks, const int64_t* strides) {
  if (blocks < 2 || call.count == 0) return 0;
  return strides[dim] * call.view->form.shape.sizes[dim] * static_cast<int64_t>(ElementSize(call.type));
}

}  // namespace

// All blocks of an operand, without its data; empty where the rank has none.
plan::View Operation::ViewOf(Side side, int position) const {
  const plan::Contract contract{call_.kind, channel_->size(), call_.root};
  const BlockForm& form = call_.view->form;
  const bool input = side == Side::kInput;
  const int blocks = input ? plan::InputBlocks(contract, position) : plan::OutputBlocks(contract, position);
  const Channel::ViewBinding& binding = channel_->view_bindings[static_cast<size_t>(position)];
  plan::View view;
  view.element_size = static_cast<uint32_t>(ElementSize(call_.type));
  view.shape = blocks == 0 ? plan::Shape{1, {0}} : form.OperandShape(input ? form.split : form.concat, blocks);
  std::copy_n(input ? binding.input_strides : binding.output_strides, plan::kMaxDims, view.strides);
  return view;
}

void Operation::StartView() {
  const ViewLayout& layout = *call_.view;
  form_hash_ = layout.form.Hash();
  channel_->view_bindings.resize(channel_->bindings.size());
  Channel::ViewBinding& own = channel_->view_bindings[static_cast<size_t>(channel_->self())];
  std::copy_n(layout.input_strides, plan::kMaxDims, own.input_strides);
  std::copy_n(layout.output_strides, plan::kMaxDims, own.output_strides);
  SetBlockSteps(channel_->self());
}

void Operation::SetBlockSteps(int position) {
  const plan::Contract contract{call_.kind, channel_->size(), call_.root};
  const BlockForm& form = call_.view->form;
  Channel::ViewBinding& binding = channel_->view_bindings[static_cast<size_t>(position)];
  binding.input_step = BlockStep(call_, form.split, plan::InputBlocks(contract, position), binding.input_strides);
  binding.output_step = BlockStep(call_, form.concat, plan::OutputBlocks(contract, position), binding.output_strides);
}

// ---- announcements ----

void Operation::WriteForm(OpRecord* record) const {
  const BlockForm& form = call_.view->form;
  SetWord(record, OpRecord::kForm, form.Packed());
  for (int d = 0; d < form.shape.dims; ++d)
    SetWord(record, OpRecord::kSizes + d, static_cast<uint64_t>(form.shape.sizes[d]));
}

void Operation::DescribeViews(OpRecord* record) const {
  const ViewLayout& layout = *call_.view;
  for (int d = 0; d < layout.form.shape.dims; ++d) {
    SetWord(record, OpRecord::kInputStrides + d, static_cast<uint64_t>(layout.input_strides[d]));
    SetWord(record, OpRecord::kOutputStrides + d, static_cast<uint64_t>(layout.output_strides[d]));
  }
  DescribeView(Side::kInput, call_.input, record, OpRecord::kInput, OpRecord::kInputReach);
  DescribeView(Side::kOutput, call_.output, record, OpRecord::kOutput, OpRecord::kOutputReach);
}

// Where all of the view lies decides how it is reached; its first element is what is told.
void Operation::DescribeView(Side side, const void* data, OpRecord* record, int address, int reach) const {
  const plan::Extent extent = plan::ByteExtent(ViewOf(side, channel_->self()));
  const auto before = static_cast<uint64_t>(-extent.begin);
  const void* lowest = reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(data) - before);
  Describe(lowest, before + static_cast<uint64_t>(extent.end), record, address, reach);
  SetWord(record, address, Word(*record, address) + before);
}

Status Operation::BindViews(int position) {
  const Member& member = channel_->member(position);
  const OpRecord& record = *member.layout.RecordOf(member.block, sequence_);
  Channel::ViewBinding& view = channel_->view_bindings[static_cast<size_t>(position)];
  for (int d = 0; d < call_.view->form.shape.dims; ++d) {
    view.input_strides[d] = static_cast<int64_t>(Word(record, OpRecord::kInputStrides + d));
    view.output_strides[d] = static_cast<int64_t>(Word(record, OpRecord::kOutputStrides + d));
  }
  Channel::Binding& binding = channel_->bindings[static_cast<size_t>(position)];
  AXCCL_RETURN_IF_ERROR(MapView(Side::kInput, position, &binding.input, &binding.input_by_call));
  AXCCL_RETURN_IF_ERROR(MapView(Side::kOutput, position, &binding.output, &binding.output_by_call));
  SetBlockSteps(position);
  binding.factor.u64 = Word(record, OpRecord::kFactor);
  return Status();
}

Status Operation::MapView(Side side, int position, std::byte** where, bool* by_call) {
  const Member& member = channel_->member(position);
  const OpRecord& record = *member.layout.RecordOf(member.block, sequence_);
  const bool input = side == Side::kInput;
  const uint64_t address = Word(record, input ? OpRecord::kInput : OpRecord::kOutput);
  const uint64_t reach = Word(record, input ? OpRecord::kInputReach : OpRecord::kOutputReach);
  plan::Extent extent;
  if (!plan::FindByteExtent(ViewOf(side, position), &extent) ||
      (extent.end != 0 && reach == static_cast<uint64_t>(Reach::kUnused)))
    return MakeStatus(Code::kRemoteError, "rank %d announced a view outside its heap", member.rank);
  // A view that begins before the heap wraps around to an address behind it.
  const auto before = static_cast<uint64_t>(-extent.begin);
  AXCCL_RETURN_IF_ERROR(
      MapBuffer(member, address - before, reach, before + static_cast<uint64_t>(extent.end), where, by_call));
  if (*where != nullptr) *where += before;
  return Status();
}

// ---- movement ----

kernels::BoxOperand Operation::Box(uint32_t index, const Portion& portion) const {
  const plan::Operand& operand = prepared_->program->operands[index];
  if (operand.buffer == Buffer::kScratch) return {Address(index, portion), nullptr};
  const Channel::ViewBinding& view = channel_->view_bindings[operand.rank];
  const bool input = operand.buffer == Buffer::kInput;
  const int64_t step = input ? view.input_step : view.output_step;
  return {*prepared_->places[index].base + operand.block * step, input ? view.input_strides : view.output_strides};
}

void Operation::MoveBoxes(const Step& step, const Portion& portion) {
  const plan::Operand* operand = &prepared_->program->operands[step.operands];
  const size_t num = step.num_dst + size_t{step.num_src};
  if (channel_->boxes.size() < num) channel_->boxes.resize(num + 8);
  kernels::BoxOperand* const dst = channel_->boxes.data();
  kernels::BoxOperand* const src = dst + step.num_dst;
  Places places;
  places.num_src = step.num_src;
  for (uint32_t i = 0; i < step.num_src; ++i) {
    const uint32_t o = step.num_dst + i;
    src[i] = Box(step.operands + o, portion);
    places.scaled |= scales_ && operand[o].buffer == Buffer::kInput;
  }
  const bool plain_copy = PlainCopy(step, places);
  for (uint32_t i = 0; i < step.num_dst; ++i) {
    const kernels::BoxOperand box = Box(step.operands + i, portion);
    places.to_user_only &= operand[i].buffer != Buffer::kScratch;
    // In place, a copy onto itself is nothing to do. Operands that share their first element are in place.
    if (!plain_copy || box.data != src[0].data) dst[places.num_dst++] = box;
  }
  if (places.num_dst == 0) return;
  const plan::Shape& shape = call_.view->form.shape;
  const kernels::BoxRange range{shape.dims, shape.sizes, portion.begin, portion.count};
  const bool non_temporal = prepared_->around_cache && places.to_user_only;
  if (plain_copy) return kernels::CopyBox(range, dst, places.num_dst, *src, ElementSize(call_.type), non_temporal);
  if (places.scaled) GatherFactors(step);
  kernels::BoxReduceRequest request{range, dst, places.num_dst, src, places.num_src, call_.type, call_.combine};
  request.pre = places.scaled ? channel_->factors.data() : nullptr;
  request.post_divisor = step.finish ? post_divisor_ : 0;
  request.non_temporal = non_temporal;
  if (call_.callback != nullptr) return FoldBoxes(request);
  kernels::ReduceBox(request);
}

}  // namespace axccl::exec
