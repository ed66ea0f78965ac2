#include "src/exec/host/view_mover.h"

#include <algorithm>

#include "src/exec/host/fold.h"

namespace axccl::exec {

using plan::Buffer;

namespace {

// What an operation overwrites it has just read: plain stores have nothing to fetch.
bool OverwritesSource(const kernels::BoxOperand& dst, const kernels::BoxOperand* src, int num_src) {
  return std::any_of(src, src + num_src, [&](const kernels::BoxOperand& s) { return s.data == dst.data; });
}

}  // namespace

// Makes one mover call for each operand that the chunk contains a part of.
void ViewMover::Move(const Chunk& chunk) const {
  const std::vector<ViewOperand>& views = binding_.call.views->operands;
  const uint64_t begin = chunk.in_block, end = begin + chunk.count * ElementSize(binding_.call.type);
  uint64_t first = 0;
  for (size_t i = 0; i < views.size() && first < end; ++i) {
    const uint64_t last = first + operands_.BlockBytes(binding_, *steps_, i);
    const uint64_t low = std::max(begin, first), high = std::min(end, last);
    const uint64_t size = ElementSize(views[i].type);
    const OperandSpan span{i, low - begin, (low - first) / size, (high - low) / size};
    first = RoundUp(last, kOperandAlignment);
    if (low >= high) continue;
    if (together_ == 1) {
      MoveOne(*steps_, chunk, span);
    } else if (steps_->kind == plan::OpKind::kReduce) {
      ReduceTogether(chunk, span);
    } else {
      CopyTogether(chunk, span);
    }
  }
}

kernels::BoxOperand ViewMover::Box(uint32_t index, const Chunk& chunk, const OperandSpan& span) const {
  const plan::Operand& operand = binding_.prepared->program->operands[index];
  if (operand.buffer == Buffer::kScratch) return {AddressOf(binding_, index, chunk) + span.in_chunk, nullptr};
  const MemberView& view = binding_.workspace().ViewOf(operand.rank, span.operand);
  const int64_t begin = operands_.BeginOf(binding_, operand, span.operand);
  if (operand.buffer == Buffer::kInput) return {view.input + begin * view.input_step, view.input_strides};
  return {view.output + begin * view.output_step, view.output_strides};
}

kernels::BoxOperand ViewMover::PackedBox(uint32_t index, const Chunk& chunk, const OperandSpan& span) const {
  kernels::BoxOperand box = Box(index, chunk, span);
  const plan::Operand& operand = binding_.prepared->program->operands[index];
  if (operand.buffer == Buffer::kScratch) return box;
  const MemberView& view = binding_.workspace().ViewOf(operand.rank, span.operand);
  if (operand.buffer == Buffer::kInput ? view.input_is_dense : view.output_is_dense) {
    const size_t size = ElementSize(binding_.call.views->operands[span.operand].type);
    box = {static_cast<std::byte*>(box.data) + span.begin * size, nullptr};
  }
  return box;
}

// Copies to outputs that lie side by side. Copies that are in place are left out.
void ViewMover::CopyTogether(const Chunk& chunk, const OperandSpan& span) const {
  kernels::BoxOperand* const dst = binding_.workspace().Boxes(2 * size_t{together_});
  kernels::BoxOperand* const src = dst + together_;
  int moved = 0;
  for (uint32_t i = 0; i < together_; ++i) {
    dst[moved] = Box(steps_[i].operands, chunk, span);
    src[moved] = Box(steps_[i].operands + 1, chunk, span);
    moved += dst[moved].data != src[moved].data;
  }
  if (moved == 0) return;
  const ViewOperand& view = binding_.call.views->operands[span.operand];
  const tensor::Shape& shape = view.form.shape;
  const kernels::BoxRange range{shape.dims, shape.sizes, span.begin, span.count};
  kernels::CopyBoxes(range, dst, src, moved, ElementSize(view.type), binding_.around_cache);
}

// Reductions of inputs that lie side by side.
void ViewMover::ReduceTogether(const Chunk& chunk, const OperandSpan& span) const {
  if (binding_.call.callback != nullptr) {
    for (uint32_t i = 0; i < together_; ++i) MoveOne(steps_[i], chunk, span);
    return;
  }
  const uint32_t num_src = steps_->num_src;
  kernels::BoxOperand* const dst = binding_.workspace().Boxes(together_ * (size_t{1} + num_src));
  kernels::BoxOperand* src = dst + together_;
  for (uint32_t i = 0; i < together_; ++i) {
    dst[i] = Box(steps_[i].operands, chunk, span);
    for (uint32_t k = 1; k <= num_src; ++k) *src++ = Box(steps_[i].operands + k, chunk, span);
  }
  const tensor::Shape& shape = binding_.call.views->operands[span.operand].form.shape;
  const kernels::BoxRange range{shape.dims, shape.sizes, span.begin, span.count};
  // All sources are inputs, of the same ranks in all steps.
  kernels::BoxReduceRequest requests = Reduction(*steps_, range, binding_.scales.inputs);
  requests.dst = dst;
  requests.num_dst = static_cast<int>(together_);
  requests.src = dst + together_;
  requests.num_src = static_cast<int>(num_src);
  requests.non_temporal =
      binding_.around_cache && !OverwritesSource(*dst, requests.src, requests.num_src);  // and so do the others
  kernels::ReduceBoxes(requests);
}

// A reduction without operands.
kernels::BoxReduceRequest ViewMover::Reduction(const Step& step, const kernels::BoxRange& range, bool scaled) const {
  const Call& call = binding_.call;
  if (scaled) GatherFactors(binding_, step);
  kernels::BoxReduceRequest request{range, nullptr, 0, nullptr, 0, call.type, call.combine};
  request.pre = scaled ? binding_.workspace().factors() : nullptr;
  request.round_factored = call.group_order;
  request.post_divisor = step.finish ? binding_.scales.divisor : 0;
  request.post = step.finish && binding_.scales.result ? &binding_.scales.factor : nullptr;
  return request;
}

void ViewMover::MoveOne(const Step& step, const Chunk& chunk, const OperandSpan& span) const {
  const plan::Operand* operand = &binding_.prepared->program->operands[step.operands];
  kernels::BoxOperand* const dst = binding_.workspace().Boxes(step.num_dst + size_t{step.num_src});
  kernels::BoxOperand* const src = dst + step.num_dst;
  Gathered gathered;
  gathered.num_src = step.num_src;
  for (uint32_t i = 0; i < step.num_src; ++i) {
    const uint32_t o = step.num_dst + i;
    src[i] = PackedBox(step.operands + o, chunk, span);
    gathered.scaled |= binding_.scales.inputs && operand[o].buffer == Buffer::kInput;
  }
  const bool plain_copy = IsPlainCopy(binding_, step, gathered.scaled);
  for (uint32_t i = 0; i < step.num_dst; ++i) {
    const kernels::BoxOperand box = PackedBox(step.operands + i, chunk, span);
    gathered.to_user_only &= operand[i].buffer != Buffer::kScratch;
    // In place, a copy onto itself is left out. Operands that share their first element are in place.
    if (!plain_copy || box.data != src[0].data) dst[gathered.num_dst++] = box;
  }
  if (gathered.num_dst == 0) return;
  const size_t size = ElementSize(binding_.call.views->operands[span.operand].type);
  const tensor::Shape shape = operands_.BlockShape(binding_, step, span.operand);
  const kernels::BoxRange range{shape.dims, shape.sizes, span.begin, span.count};
  const bool overwrites = std::any_of(dst, dst + gathered.num_dst, [&](const kernels::BoxOperand& d) {
    return OverwritesSource(d, src, gathered.num_src);
  });
  const bool non_temporal = binding_.around_cache && gathered.to_user_only && !overwrites;
  if (plain_copy) return kernels::CopyBox(range, dst, gathered.num_dst, *src, size, non_temporal);
  kernels::BoxReduceRequest request = Reduction(step, range, gathered.scaled);
  request.dst = dst;
  request.num_dst = gathered.num_dst;
  request.src = src;
  request.num_src = gathered.num_src;
  request.non_temporal = non_temporal;
  if (binding_.call.callback != nullptr)
    return FoldBoxes(request, *binding_.call.callback, &binding_.workspace().fold_space());
  kernels::ReduceBox(request);
}

}  // namespace axccl::exec
