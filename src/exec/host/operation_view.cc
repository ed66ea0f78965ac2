// Calls on views: how their operands are announced, checked and moved.
//
// A rank tells where its operands are and their strides; the forms of the blocks are the same on all ranks, so a peer's
// operand is bound in the form of this rank's own call. Whatever a peer tells, only what lies in its heap is touched.
//
// An announcement has for every operand of d dimensions these words: address and reach of the input, address and reach
// of the output, d strides of the input, d strides of the output, and its pieces (operation_uneven.cc). It is in the op
// record, or in the channel's memory where it is too long for that; every word is read once.
#include <algorithm>

#include "kernels/host/box.h"
#include "src/exec/host/local_copy.h"
#include "src/exec/host/operation.h"

namespace axccl::exec {
namespace {

using plan::Buffer;

uint64_t Word(const OpRecord& record, int word) { return record.word[word].load(std::memory_order_relaxed); }
void SetWord(OpRecord* record, int word, uint64_t value) { record->word[word].store(value, std::memory_order_relaxed); }

}  // namespace

// All blocks of an operand, without its data; empty where the rank has none.
tensor::View Operation::ViewOf(Side side, int position, size_t index) const {
  const plan::Contract contract{call_.kind, channel_->size(), call_.root};
  const ViewOperand& operand = call_.views->operands[index];
  const BlockForm& form = operand.form;
  const bool input = side == Side::kInput;
  const int blocks = input ? plan::InputBlocks(contract, position) : plan::OutputBlocks(contract, position);
  const MemberView& binding = ViewAt(position, index);
  tensor::View view;
  view.element_size = static_cast<uint32_t>(ElementSize(operand.type));
  if (blocks == 0) {
    view.shape = tensor::Shape{1, {0}};
  } else if (call_.uneven()) {
    view.shape = form.shape;
    if (operand.dim >= 0)
      view.shape.sizes[operand.dim] = input ? binding.pieces.input_rows : binding.pieces.output_rows;
  } else {
    view.shape = form.OperandShape(input ? form.split : form.concat, blocks);
  }
  std::copy_n(input ? binding.input_strides : binding.output_strides, tensor::kMaxDims, view.strides);
  return view;
}

void Operation::StartViews() {
  form_hash_ = call_.views->Hash();
  workspace_.MakeRoomForViews(NumViews());
  for (size_t i = 0; i < NumViews(); ++i) {
    const ViewOperand& operand = call_.views->operands[i];
    MemberView& own = ViewAt(channel_->self(), i);
    own.input = static_cast<std::byte*>(const_cast<void*>(operand.input));
    own.output = static_cast<std::byte*>(operand.output);
    std::copy_n(operand.input_strides, tensor::kMaxDims, own.input_strides);
    std::copy_n(operand.output_strides, tensor::kMaxDims, own.output_strides);
    if (call_.uneven()) own.pieces = operand.pieces;
    SetBlockSteps(channel_->self(), i);
  }
}

void Operation::SetBlockSteps(int position, size_t index) {
  const plan::Contract contract{call_.kind, channel_->size(), call_.root};
  const ViewOperand& operand = call_.views->operands[index];
  MemberView& binding = ViewAt(position, index);
  if (call_.uneven()) {
    // A stride that means nothing, as there is one row, may be any number.
    const uint64_t size = operand.dim < 0 ? 0 : ElementSize(operand.type);
    const int d = std::max(operand.dim, 0);
    binding.input_step = static_cast<int64_t>(static_cast<uint64_t>(binding.input_strides[d]) * size);
    binding.output_step = static_cast<int64_t>(static_cast<uint64_t>(binding.output_strides[d]) * size);
    return;
  }
  binding.input_step =
      BlockStep(operand, operand.form.split, plan::InputBlocks(contract, position), binding.input_strides);
  binding.output_step =
      BlockStep(operand, operand.form.concat, plan::OutputBlocks(contract, position), binding.output_strides);
}

// ---- announcements ----

Status Operation::AnnounceViews(OpRecord* record) {
  std::vector<uint64_t>& words = workspace_.announcement();
  words.clear();
  Reach reach[2] = {Reach::kUnused, Reach::kUnused};
  for (size_t i = 0; i < NumViews(); ++i) {
    const ViewOperand& operand = call_.views->operands[i];
    for (const Side side : {Side::kInput, Side::kOutput}) {
      const Spot spot = FindSpot(side, i);
      words.insert(words.end(), {spot.address, static_cast<uint64_t>(spot.reach)});
      Reach& farthest = reach[static_cast<int>(side)];
      farthest = std::max(farthest, spot.reach);
    }
    const auto dims = static_cast<size_t>(operand.form.shape.dims);
    words.insert(words.end(), operand.input_strides, operand.input_strides + dims);
    words.insert(words.end(), operand.output_strides, operand.output_strides + dims);
    if (call_.uneven()) AnnouncePieces(operand);
  }
  SetWord(record, OpRecord::kInputReach, static_cast<uint64_t>(reach[0]));
  SetWord(record, OpRecord::kOutputReach, static_cast<uint64_t>(reach[1]));
  return Publish(record);
}

// Of a rank; all ranks compute the same.
size_t Operation::AnnouncedWords(int position) const {
  size_t words = 0;
  for (const ViewOperand& operand : call_.views->operands)
    words += 4 + 2 * static_cast<size_t>(operand.form.shape.dims) + PieceWords(position);
  return words;
}

// Puts the announcement where peers find them.
Status Operation::Publish(OpRecord* record) {
  const std::vector<uint64_t>& words = workspace_.announcement();
  const Member& own = channel_->own();
  if (words.size() > own.layout.announcement_words)
    return MakeStatus(
        Code::kInvalidUsage,
        "%s: what has to be told of its operands takes %zu words, a channel has room for %llu: pass fewer "
        "operands in one call",
        DescribeCall(call_).c_str(), words.size(), static_cast<unsigned long long>(own.layout.announcement_words));
  std::atomic<uint64_t>* to = record->word + OpRecord::kDetailWords;
  if (words.size() > OpRecord::kRoom) {
    AXCCL_ASSIGN_OR_RETURN(to, channel_->members().AnnouncementOf(channel_->self(), sequence_));
  }
  for (size_t i = 0; i < words.size(); ++i) to[i].store(words[i], std::memory_order_relaxed);
  SetWord(record, OpRecord::kDetails, words.size());
  return Status();
}

// Where all of the view lies decides how it is reached; its first element is what is told.
// From the lowest byte of this rank's operand to its highest.
Operation::Memory Operation::MemoryOf(Side side, size_t index) const {
  const ViewOperand& operand = call_.views->operands[index];
  const void* data = side == Side::kInput ? operand.input : operand.output;
  const tensor::Extent extent = tensor::ByteExtent(ViewOf(side, channel_->self(), index));
  const uintptr_t lowest = reinterpret_cast<uintptr_t>(data) - static_cast<uint64_t>(-extent.begin);
  return {reinterpret_cast<const std::byte*>(lowest), static_cast<uint64_t>(extent.end - extent.begin)};
}

Operation::Spot Operation::FindSpot(Side side, size_t index) const {
  const ViewOperand& operand = call_.views->operands[index];
  const void* data = side == Side::kInput ? operand.input : operand.output;
  const Memory memory = MemoryOf(side, index);
  Spot spot = FindSpot(memory.lowest, memory.bytes);
  spot.address += reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(memory.lowest);
  return spot;
}

Status Operation::BindViews(int position) {
  const Member& member = channel_->member(position);
  const OpRecord& record = *member.layout.RecordOf(member.block, sequence_);
  const uint64_t num = AnnouncedWords(position);
  if (Word(record, OpRecord::kDetails) != num || num > member.layout.announcement_words)
    return MakeStatus(Code::kRemoteError, "rank %d announced another number of views than it called with", member.rank);
  AnnouncedReader words{record.word + OpRecord::kDetailWords};
  if (num > OpRecord::kRoom) {
    AXCCL_ASSIGN_OR_RETURN(words.at, channel_->members().AnnouncementOf(position, sequence_));
  }
  for (size_t i = 0; i < NumViews(); ++i) {
    MemberView& view = ViewAt(position, i);
    Spot spots[2];
    for (Spot& spot : spots) {
      spot.address = words.Next();
      spot.reach = static_cast<Reach>(words.Next());
    }
    const int dims = call_.views->operands[i].form.shape.dims;
    for (int d = 0; d < dims; ++d) view.input_strides[d] = words.NextSigned();
    for (int d = 0; d < dims; ++d) view.output_strides[d] = words.NextSigned();
    if (call_.uneven()) ReadPieces(position, i, &words);
    AXCCL_RETURN_IF_ERROR(MapView(Side::kInput, position, i, spots[0]));
    AXCCL_RETURN_IF_ERROR(MapView(Side::kOutput, position, i, spots[1]));
    SetBlockSteps(position, i);
  }
  if (call_.scaling == Scaling::kPreMultiply)
    workspace_.BuffersOf(position).factor.u64 = Word(record, OpRecord::kFactor);
  return Status();
}

Status Operation::MapView(Side side, int position, size_t index, Spot spot) {
  const Member& member = channel_->member(position);
  tensor::Extent extent;
  if (!tensor::FindByteExtent(ViewOf(side, position, index), &extent) ||
      (extent.end != 0 && spot.reach == Reach::kUnused))
    return MakeStatus(Code::kRemoteError, "rank %d announced a view outside its heap", member.rank);
  // A view that begins before the heap wraps around to an address behind it.
  const auto before = static_cast<uint64_t>(-extent.begin);
  std::byte* where;
  bool by_call;
  AXCCL_RETURN_IF_ERROR(MapBuffer(member, spot.address - before, static_cast<uint64_t>(spot.reach),
                                  before + static_cast<uint64_t>(extent.end), &where, &by_call));
  if (where != nullptr) where += before;
  // Not to be touched; ChooseAccess sees to that by the record's word.
  const OpRecord& record = *member.layout.RecordOf(member.block, sequence_);
  const int word = side == Side::kInput ? OpRecord::kInputReach : OpRecord::kOutputReach;
  if (by_call && Word(record, word) != static_cast<uint64_t>(Reach::kPlain))
    return MakeStatus(Code::kRemoteError, "rank %d announced a view outside its heap and denies it", member.rank);
  (side == Side::kInput ? ViewAt(position, index).input : ViewAt(position, index).output) = where;
  return Status();
}

// Of ranks that get no block: at the end, as in place the output is an input that others read.
void Operation::FillZerosOfOthers() const {
  const plan::Contract contract{call_.kind, channel_->size(), call_.root};
  const bool has_block = plan::OutputBlocks(contract, channel_->self()) != 0;
  for (const ViewOperand& operand : call_.views->operands) {
    const bool gets_it = has_block && (!call_.uneven() || operand.pieces.output[0].extent != 0);
    if (operand.output != nullptr && !gets_it) FillZeros(operand);
  }
}

// ---- movement ----

kernels::BoxOperand Operation::Box(uint32_t index, const Portion& portion, const Stretch& stretch) const {
  const plan::Operand& operand = prepared_->program->operands[index];
  if (operand.buffer == Buffer::kScratch) return {Address(index, portion) + stretch.in_portion, nullptr};
  const MemberView& view = ViewAt(operand.rank, stretch.operand);
  const int64_t step = call_.uneven() ? PieceOf(operand, stretch.operand).offset : operand.block;
  if (operand.buffer == Buffer::kInput) return {view.input + step * view.input_step, view.input_strides};
  return {view.output + step * view.output_step, view.output_strides};
}

// One mover call for each operand that the portion has something of. `together` steps are made at once.
void Operation::MoveBoxes(const Step& step, uint32_t together, const Portion& portion) {
  const uint64_t begin = portion.in_block, end = begin + portion.count * ElementSize(call_.type);
  uint64_t first = 0;
  for (size_t i = 0; i < NumViews() && first < end; ++i) {
    const ViewOperand& operand = call_.views->operands[i];
    const uint64_t last = first + BlockBytes(step, i);
    const uint64_t low = std::max(begin, first), high = std::min(end, last);
    const uint64_t size = ElementSize(operand.type);
    const Stretch stretch{i, low - begin, (low - first) / size, (high - low) / size};
    if (low < high) together > 1 ? MoveTogether(&step, together, portion, stretch) : MoveBox(step, portion, stretch);
    first = RoundUp(last, kOperandAlignment);
  }
}

// Copies to outputs, or reductions of inputs, that lie side by side. Copies that are in place are left out.
void Operation::MoveTogether(const Step* steps, uint32_t num, const Portion& portion, const Stretch& stretch) {
  if (steps->kind == plan::OpKind::kReduce) return ReduceTogether(steps, num, portion, stretch);
  kernels::BoxOperand* const dst = workspace_.Boxes(2 * size_t{num});
  kernels::BoxOperand* const src = dst + num;
  int moved = 0;
  for (uint32_t i = 0; i < num; ++i) {
    dst[moved] = Box(steps[i].operands, portion, stretch);
    src[moved] = Box(steps[i].operands + 1, portion, stretch);
    moved += dst[moved].data != src[moved].data;
  }
  if (moved == 0) return;
  const ViewOperand& view = call_.views->operands[stretch.operand];
  const tensor::Shape& shape = view.form.shape;
  const kernels::BoxRange range{shape.dims, shape.sizes, stretch.begin, stretch.count};
  kernels::CopyBoxes(range, dst, src, moved, ElementSize(view.type), around_cache_);
}

void Operation::ReduceTogether(const Step* steps, uint32_t num, const Portion& portion, const Stretch& stretch) {
  if (call_.callback != nullptr) {
    for (uint32_t i = 0; i < num; ++i) MoveBox(steps[i], portion, stretch);
    return;
  }
  const uint32_t num_src = steps->num_src;
  kernels::BoxOperand* const dst = workspace_.Boxes(num * (size_t{1} + num_src));
  kernels::BoxOperand* src = dst + num;
  for (uint32_t i = 0; i < num; ++i) {
    dst[i] = Box(steps[i].operands, portion, stretch);
    for (uint32_t k = 1; k <= num_src; ++k) *src++ = Box(steps[i].operands + k, portion, stretch);
  }
  const ViewOperand& view = call_.views->operands[stretch.operand];
  const tensor::Shape& shape = view.form.shape;
  const kernels::BoxRange range{shape.dims, shape.sizes, stretch.begin, stretch.count};
  // All sources are inputs, of the same ranks in all steps.
  kernels::BoxReduceRequest requests = BoxReduction(*steps, range, scales_);
  requests.dst = dst;
  requests.num_dst = static_cast<int>(num);
  requests.src = dst + num;
  requests.num_src = static_cast<int>(num_src);
  requests.non_temporal = around_cache_;
  kernels::ReduceBoxes(requests);
}

// Without operands.
kernels::BoxReduceRequest Operation::BoxReduction(const Step& step, const kernels::BoxRange& range, bool scaled) {
  if (scaled) GatherFactors(step);
  kernels::BoxReduceRequest request{range, nullptr, 0, nullptr, 0, call_.type, call_.combine};
  request.pre = scaled ? workspace_.factors() : nullptr;
  request.round_factored = call_.group_order;
  request.post_divisor = step.finish ? post_divisor_ : 0;
  request.post = step.finish && scales_result_ ? &post_factor_ : nullptr;
  return request;
}

void Operation::MoveBox(const Step& step, const Portion& portion, const Stretch& stretch) {
  const plan::Operand* operand = &prepared_->program->operands[step.operands];
  kernels::BoxOperand* const dst = workspace_.Boxes(step.num_dst + size_t{step.num_src});
  kernels::BoxOperand* const src = dst + step.num_dst;
  Places places;
  places.num_src = step.num_src;
  for (uint32_t i = 0; i < step.num_src; ++i) {
    const uint32_t o = step.num_dst + i;
    src[i] = Box(step.operands + o, portion, stretch);
    places.scaled |= scales_ && operand[o].buffer == Buffer::kInput;
  }
  const bool plain_copy = PlainCopy(step, places);
  for (uint32_t i = 0; i < step.num_dst; ++i) {
    const kernels::BoxOperand box = Box(step.operands + i, portion, stretch);
    places.to_user_only &= operand[i].buffer != Buffer::kScratch;
    // In place, a copy onto itself is nothing to do. Operands that share their first element are in place.
    if (!plain_copy || box.data != src[0].data) dst[places.num_dst++] = box;
  }
  if (places.num_dst == 0) return;
  const ViewOperand& view = call_.views->operands[stretch.operand];
  tensor::Shape shape = view.form.shape;
  if (call_.uneven() && view.dim >= 0) shape.sizes[view.dim] = PieceOf(UserOperand(step), stretch.operand).extent;
  const kernels::BoxRange range{shape.dims, shape.sizes, stretch.begin, stretch.count};
  const bool non_temporal = around_cache_ && places.to_user_only;
  if (plain_copy) return kernels::CopyBox(range, dst, places.num_dst, *src, ElementSize(view.type), non_temporal);
  kernels::BoxReduceRequest request = BoxReduction(step, range, places.scaled);
  request.dst = dst;
  request.num_dst = places.num_dst;
  request.src = src;
  request.num_src = places.num_src;
  request.non_temporal = non_temporal;
  if (call_.callback != nullptr) return FoldBoxes(request, *call_.callback, &workspace_.fold_space());
  kernels::ReduceBox(request);
}

}  // namespace axccl::exec
