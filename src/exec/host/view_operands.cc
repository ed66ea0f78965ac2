#include "src/exec/host/view_operands.h"

#include <algorithm>

#include "src/exec/host/local_copy.h"
#include "src/exec/host/view_mover.h"

namespace axccl::exec {

Status ViewOperands::Start(Binding* binding) const {
  const ViewList& list = *binding->call.views;
  const int self = binding->channel->self();
  binding->form_hash = list.Hash();
  binding->scales.result = list.scale != 0;
  if (binding->scales.result) binding->scales.factor = FactorOf(binding->call.type, list.scale);
  binding->workspace().MakeRoomForViews(list.operands.size());
  for (size_t i = 0; i < list.operands.size(); ++i) {
    const ViewOperand& operand = list.operands[i];
    MemberView& own = binding->workspace().ViewOf(self, i);
    own.input = static_cast<std::byte*>(const_cast<void*>(operand.input));
    own.output = static_cast<std::byte*>(operand.output);
    std::copy_n(operand.input_strides, tensor::kMaxDims, own.input_strides);
    std::copy_n(operand.output_strides, tensor::kMaxDims, own.output_strides);
    SetSteps(*binding, self, i);
  }
  return Status();
}

// All blocks of an operand, without its data; empty if the rank has none.
tensor::View ViewOperands::ViewOf(const Binding& binding, Side side, int position, size_t index) const {
  const plan::Contract contract = binding.contract();
  const bool input = side == Side::kInput;
  const int blocks = input ? plan::InputBlocks(contract, position) : plan::OutputBlocks(contract, position);
  const MemberView& bound = binding.workspace().ViewOf(position, index);
  tensor::View view;
  view.element_size = static_cast<uint32_t>(ElementSize(binding.call.views->operands[index].type));
  view.shape = blocks == 0 ? tensor::Shape{1, {0}} : OperandShape(binding, side, position, index, blocks);
  std::copy_n(input ? bound.input_strides : bound.output_strides, tensor::kMaxDims, view.strides);
  return view;
}

// ---- announcements ----

Memory ViewOperands::MemoryOf(const Binding& binding, Side side, size_t index) const {
  const ViewOperand& operand = binding.call.views->operands[index];
  const void* data = side == Side::kInput ? operand.input : operand.output;
  const tensor::Extent extent = tensor::ByteExtent(ViewOf(binding, side, binding.channel->self(), index));
  const uintptr_t lowest = reinterpret_cast<uintptr_t>(data) - static_cast<uint64_t>(-extent.begin);
  return {reinterpret_cast<const std::byte*>(lowest), static_cast<uint64_t>(extent.end - extent.begin)};
}

Memory ViewOperands::OutputOf(const Binding& binding, size_t index) const {
  return MemoryOf(binding, Side::kOutput, index);
}

// The extent of the view determines how it is accessed; the address of its first element is announced.
AnnouncedBuffer ViewOperands::Find(const Binding& binding, Side side, size_t index) const {
  const ViewOperand& operand = binding.call.views->operands[index];
  const void* data = side == Side::kInput ? operand.input : operand.output;
  const Memory memory = MemoryOf(binding, side, index);
  AnnouncedBuffer found = LocateBuffer(*binding.channel, memory.lowest, memory.bytes);
  found.address += reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(memory.lowest);
  return found;
}

Status ViewOperands::Announce(Binding* binding, OpRecord* record) const {
  std::vector<uint64_t>& words = binding->workspace().announcement();
  words.clear();
  MemoryKind farthest[2] = {MemoryKind::kUnused, MemoryKind::kUnused};
  for (size_t i = 0; i < binding->call.views->operands.size(); ++i) {
    const ViewOperand& operand = binding->call.views->operands[i];
    for (const Side side : {Side::kInput, Side::kOutput}) {
      const AnnouncedBuffer buffer = Find(*binding, side, i);
      words.insert(words.end(), {buffer.address, static_cast<uint64_t>(buffer.kind)});
      MemoryKind& so_far = farthest[static_cast<int>(side)];
      so_far = std::max(so_far, buffer.kind);
    }
    const auto dims = static_cast<size_t>(operand.form.shape.dims);
    words.insert(words.end(), operand.input_strides, operand.input_strides + dims);
    words.insert(words.end(), operand.output_strides, operand.output_strides + dims);
    AnnouncePieces(*binding, operand);
  }
  SetWord(record, OpRecord::kInputKind, static_cast<uint64_t>(farthest[0]));
  SetWord(record, OpRecord::kOutputKind, static_cast<uint64_t>(farthest[1]));
  return Publish(binding, record);
}

// The words that a rank announces; all ranks compute the same.
size_t ViewOperands::AnnouncedWords(const Binding& binding, int position) const {
  size_t words = 0;
  for (const ViewOperand& operand : binding.call.views->operands)
    words += 4 + 2 * static_cast<size_t>(operand.form.shape.dims) + PieceWords(binding, position);
  return words;
}

// Writes the announcement where peers find it.
Status ViewOperands::Publish(Binding* binding, OpRecord* record) {
  Channel* const channel = binding->channel;
  const std::vector<uint64_t>& words = binding->workspace().announcement();
  const Member& own = channel->own();
  if (words.size() > own.layout.announcement_words)
    return MakeStatus(
        Code::kInvalidUsage,
        "%s: the announcement of its operands needs %zu words, but a channel holds %llu; pass fewer operands in one "
        "call",
        DescribeCall(binding->call).c_str(), words.size(),
        static_cast<unsigned long long>(own.layout.announcement_words));
  std::atomic<uint64_t>* to = record->word + OpRecord::kDetailWords;
  if (words.size() > OpRecord::kRoom) {
    AXCCL_ASSIGN_OR_RETURN(to, channel->members().AnnouncementOf(channel->self(), binding->sequence));
  }
  for (size_t i = 0; i < words.size(); ++i) to[i].store(words[i], std::memory_order_relaxed);
  SetWord(record, OpRecord::kDetails, words.size());
  binding->announced_words = words.size();
  return Status();
}

Status ViewOperands::Bind(Binding* binding, int position) const {
  Channel* const channel = binding->channel;
  const Member& member = channel->member(position);
  const OpRecord& record = *member.layout.RecordOf(member.block, binding->sequence);
  const uint64_t num = AnnouncedWords(*binding, position);
  if (Word(record, OpRecord::kDetails) != num || num > member.layout.announcement_words)
    return MakeStatus(Code::kRemoteError, "rank %d announced another number of views than it called with", member.rank);
  AnnouncedReader words{record.word + OpRecord::kDetailWords};
  if (num > OpRecord::kRoom) {
    AXCCL_ASSIGN_OR_RETURN(words.at, channel->members().AnnouncementOf(position, binding->sequence));
  }
  for (size_t i = 0; i < binding->call.views->operands.size(); ++i) {
    MemberView& view = binding->workspace().ViewOf(position, i);
    AnnouncedBuffer buffers[2];
    for (AnnouncedBuffer& buffer : buffers) {
      buffer.address = words.Next();
      buffer.kind = static_cast<MemoryKind>(words.Next());
    }
    const int dims = binding->call.views->operands[i].form.shape.dims;
    for (int d = 0; d < dims; ++d) view.input_strides[d] = words.NextSigned();
    for (int d = 0; d < dims; ++d) view.output_strides[d] = words.NextSigned();
    ReadPieces(*binding, position, i, &words);
    AXCCL_RETURN_IF_ERROR(ReachView(*binding, Side::kInput, position, i, buffers[0]));
    AXCCL_RETURN_IF_ERROR(ReachView(*binding, Side::kOutput, position, i, buffers[1]));
    SetSteps(*binding, position, i);
  }
  return Status();
}

Status ViewOperands::ReachView(const Binding& binding, Side side, int position, size_t index,
                               const AnnouncedBuffer& announced) const {
  const Member& member = binding.channel->member(position);
  tensor::Extent extent;
  if (!tensor::FindByteExtent(ViewOf(binding, side, position, index), &extent) ||
      (extent.end != 0 && announced.kind == MemoryKind::kUnused))
    return MakeStatus(Code::kRemoteError, "rank %d announced a view outside its heap", member.rank);
  // A view that begins before the heap wraps around to an address behind it.
  const auto before = static_cast<uint64_t>(-extent.begin);
  AXCCL_ASSIGN_OR_RETURN(ReachedBuffer reached, ReachBuffer(member, {announced.address - before, announced.kind},
                                                            before + static_cast<uint64_t>(extent.end)));
  if (reached.where != nullptr) reached.where += before;
  // Must not be accessed; Operation::ChooseAccess ensures that by the record's word.
  const OpRecord& record = *member.layout.RecordOf(member.block, binding.sequence);
  const int word = side == Side::kInput ? OpRecord::kInputKind : OpRecord::kOutputKind;
  if (reached.by_call && Word(record, word) != static_cast<uint64_t>(MemoryKind::kPlain))
    return MakeStatus(Code::kRemoteError,
                      "rank %d announced inconsistent operands: a view outside its heap marked as inside", member.rank);
  MemberView& view = binding.workspace().ViewOf(position, index);
  (side == Side::kInput ? view.input : view.output) = reached.where;
  return Status();
}

// ---- movement ----

Moved ViewOperands::Move(const Binding& binding, const Step& step, uint32_t lane, uint64_t turn, uint32_t together,
                         MoveProgress* progress, int64_t* budget, Status* status) const {
  const ViewMover mover(binding, *this, &step, together);
  const auto clip = [&](const plan::Range& range) { return Clip(binding, step, range); };
  return MoveInChunks(binding, step, lane, turn, together, kMoveBytes, progress, budget, status, clip,
                      [&](const Chunk& chunk) {
                        mover.Move(chunk);
                        return Status();
                      });
}

// The outputs of ranks that get no block are filled with zeros if the call says so: at the end, because in place the
// output is an input that others read.
void ViewOperands::End(const Binding& binding) const {
  if (!binding.call.views->zeros) return;
  const bool has_block = plan::OutputBlocks(binding.contract(), binding.channel->self()) != 0;
  for (const ViewOperand& operand : binding.call.views->operands) {
    if (operand.output != nullptr && !(has_block && GetsBlock(operand))) FillZeros(operand);
  }
}

// ---- even blocks ----

namespace {

bool IsDense(const tensor::Shape& shape, const int64_t* strides) {
  int64_t dense = 1;
  for (int d = shape.dims - 1; d >= 0; --d) {
    if (shape.sizes[d] == 1) continue;
    if (strides[d] != dense) return false;
    dense *= shape.sizes[d];
  }
  return true;
}

}  // namespace

void EvenOperands::SetSteps(const Binding& binding, int position, size_t index) const {
  const ViewOperand& operand = binding.call.views->operands[index];
  const plan::Contract contract = binding.contract();
  MemberView& view = binding.workspace().ViewOf(position, index);
  view.input_step = BlockStep(operand, operand.form.split, plan::InputBlocks(contract, position), view.input_strides);
  view.output_step =
      BlockStep(operand, operand.form.concat, plan::OutputBlocks(contract, position), view.output_strides);
  view.input_is_dense = IsDense(operand.form.shape, view.input_strides);
  view.output_is_dense = IsDense(operand.form.shape, view.output_strides);
}

tensor::Shape EvenOperands::OperandShape(const Binding& binding, Side side, int, size_t index, int blocks) const {
  const BlockForm& form = binding.call.views->operands[index].form;
  return form.OperandShape(side == Side::kInput ? form.split : form.concat, blocks);
}

}  // namespace axccl::exec
