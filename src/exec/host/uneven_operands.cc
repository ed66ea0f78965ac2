#include "src/exec/host/uneven_operands.h"

#include <algorithm>
#include <cinttypes>

namespace axccl::exec {
namespace {

using plan::Buffer;

// Whether the piece lies in an operand of that many rows. The numbers are unchecked.
bool Inside(const Piece& piece, int64_t rows) {
  return piece.offset >= 0 && piece.extent >= 0 && piece.extent <= rows && piece.offset <= rows - piece.extent;
}

const Pieces& PiecesOf(const Binding& binding, int position, size_t index) {
  return binding.workspace().ViewOf(position, index).pieces;
}

// The pieces of an operand of a root's collective whose root this rank has read: one block has all rows, and the others
// have none. The call itself says how many rows there are.
Status TakeRoot(const Binding& binding, size_t index, Pieces* pieces) {
  const int n = binding.channel->size(), self = binding.channel->self();
  const int32_t root = binding.call.views->late.roots[index];
  if (root < 0 || root >= n)
    return MakeStatus(Code::kInvalidUsage,
                      "%s: root %" PRId32
                      " of operand %zu, which rank %d read when the call started: pass a rank of the "
                      "channel (0..%d)",
                      DescribeCall(binding.call).c_str(), root, index, self, n - 1);
  for (std::vector<Piece>* blocks : {&pieces->input, &pieces->output}) {
    for (size_t b = 0; b < blocks->size(); ++b) {
      const bool of_root = blocks->size() > 1 || n == 1 ? static_cast<int>(b) == root : self == root;
      if (!of_root) (*blocks)[b].extent = 0;
    }
  }
  return Status();
}

Status TakeRows(const Binding& binding, Pieces* pieces) {
  const LatePieces& late = binding.call.views->late;
  for (size_t r = 0; r < static_cast<size_t>(binding.channel->size()); ++r) {
    pieces->input[r] = {late.input_offsets[r], late.input_extents[r]};
    pieces->output[r] = {0, late.output_extents[r]};
    pieces->targets[r] = late.targets[r];
    if (!Inside(pieces->input[r], pieces->input_rows))
      return MakeStatus(Code::kInvalidUsage,
                        "%s: input offset %" PRId64 " and size %" PRId64
                        " for rank %zu, which rank %d read when the call started, leave the %" PRId64
                        " rows of its input",
                        DescribeCall(binding.call).c_str(), late.input_offsets[r], late.input_extents[r], r,
                        binding.channel->self(), pieces->input_rows);
  }
  return Status();
}

// Reads the numbers from the memory that the call names. Afterwards, the list is not shared.
Status TakeLatePieces(Binding* binding) {
  const LatePieces& late = binding->call.views->late;
  if (late.input_extents == nullptr && late.roots == nullptr) return Status();
  auto list = std::make_shared<ViewList>(*binding->call.views);
  for (size_t i = 0; i < list->operands.size(); ++i) {
    Pieces* const pieces = &list->operands[i].pieces;
    AXCCL_RETURN_IF_ERROR(late.roots != nullptr ? TakeRoot(*binding, i, pieces) : TakeRows(*binding, pieces));
  }
  binding->call.views = std::move(list);
  return Status();
}

// ---- conclusions that all ranks reach ----

struct Transfer {
  int source, block;       // of the input of a rank
  int destination, place;  // block of the output of another
};

// Visits every block that moves from one rank to another or to itself.
template <class Visit>
Status ForEachTransfer(const Binding& binding, const Visit& visit) {
  const int n = binding.channel->size();
  const plan::Contract contract = binding.contract();
  for (int i = 0; i < n; ++i) {
    const int inputs = plan::InputBlocks(contract, i);
    for (int j = 0; j < n && inputs != 0; ++j) {
      const int outputs = plan::OutputBlocks(contract, j);
      if (outputs == 0) continue;
      AXCCL_RETURN_IF_ERROR(visit(Transfer{i, inputs > 1 ? j : 0, j, outputs > 1 ? i : 0}));
    }
  }
  return Status();
}

// Whether this rank's blocks are together too large for the cache.
bool LeavesCache(const Binding& binding) {
  uint64_t bytes = 0;
  for (size_t k = 0; k < binding.call.views->operands.size(); ++k) {
    const Pieces& pieces = PiecesOf(binding, binding.channel->self(), k);
    for (const std::vector<Piece>* blocks : {&pieces.input, &pieces.output}) {
      for (const Piece& piece : *blocks)
        bytes += binding.call.views->operands[k].block_bytes * static_cast<uint64_t>(piece.extent);
    }
  }
  return bytes > binding.channel->owner()->cache_bytes();
}

Status CheckTransfer(const Binding& binding, const Transfer& transfer, size_t index) {
  const Pieces& from = PiecesOf(binding, transfer.source, index);
  Pieces& to = binding.workspace().ViewOf(transfer.destination, index).pieces;
  const Piece& sent = from.input[static_cast<size_t>(transfer.block)];
  Piece& received = to.output[static_cast<size_t>(transfer.place)];
  if (!from.targets.empty()) received.offset = from.targets[static_cast<size_t>(transfer.destination)];
  if (sent.extent != received.extent && binding.call.views->late.roots != nullptr)
    return MakeStatus(Code::kInvalidUsage, "%s: operand %zu: rank %d and rank %d read different roots; they must agree",
                      DescribeCall(binding.call).c_str(), index, transfer.source, transfer.destination);
  if (sent.extent != received.extent)
    return MakeStatus(
        Code::kInvalidUsage,
        "%s: operand %zu: rank %d gives %" PRId64 " rows to rank %d, which expects %" PRId64 "; they must agree",
        DescribeCall(binding.call).c_str(), index, transfer.source, sent.extent, transfer.destination, received.extent);
  const bool source_is_wrong = !Inside(sent, from.input_rows);
  if (!source_is_wrong && Inside(received, to.output_rows)) return Status();
  const Piece& wrong = source_is_wrong ? sent : received;
  return MakeStatus(Code::kInvalidUsage,
                    "%s: operand %zu: rows %" PRId64 " to %" PRId64 " (offset %" PRId64 ", size %" PRId64
                    ") from rank %d to rank %d leave the %" PRId64 " rows of the %s",
                    DescribeCall(binding.call).c_str(), index, wrong.offset,
                    static_cast<int64_t>(static_cast<uint64_t>(wrong.offset) + static_cast<uint64_t>(wrong.extent)),
                    wrong.offset, wrong.extent, transfer.source, transfer.destination,
                    source_is_wrong ? from.input_rows : to.output_rows, source_is_wrong ? "input" : "output");
}

// Checks that the data of several ranks does not overlap in an output, because the order of their writes is undefined.
Status CheckTargets(const Binding& binding, int destination, size_t index) {
  const std::vector<Piece>& blocks = PiecesOf(binding, destination, index).output;
  std::vector<size_t> order;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].extent != 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return blocks[a].offset < blocks[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Piece& before = blocks[order[i - 1]];
    if (blocks[order[i]].offset < before.offset + before.extent)
      return MakeStatus(
          Code::kInvalidUsage, "%s: operand %zu: ranks %zu and %zu both write row %" PRId64 " of the output of rank %d",
          DescribeCall(binding.call).c_str(), index, order[i - 1], order[i], blocks[order[i]].offset, destination);
  }
  return Status();
}

// The elements of the longest block of the call, which determines how many turns all ranks make.
uint64_t LongestBlock(const Binding& binding) {
  uint64_t longest = 0;
  (void)ForEachTransfer(binding, [&](const Transfer& transfer) {
    uint64_t bytes = 0;
    for (size_t k = 0; k < binding.call.views->operands.size(); ++k) {
      const Piece& piece = PiecesOf(binding, transfer.source, k).input[static_cast<size_t>(transfer.block)];
      bytes = RoundUp(bytes, kOperandAlignment) +
              binding.call.views->operands[k].block_bytes * static_cast<uint64_t>(piece.extent);
    }
    longest = std::max(longest, bytes);
    return Status();
  }).ok();
  return longest / ElementSize(binding.call.type);
}

// An operand of the step that is not scratch: every move of the plans of uneven calls has one.
const plan::Operand& UserOperand(const Binding& binding, const Step& step) {
  const plan::Operand* operand = &binding.prepared->program->operands[step.operands];
  while (operand->buffer == Buffer::kScratch) ++operand;
  return *operand;
}

}  // namespace

Status UnevenOperands::Start(Binding* binding) const {
  AXCCL_RETURN_IF_ERROR(TakeLatePieces(binding));
  AXCCL_RETURN_IF_ERROR(ViewOperands::Start(binding));
  const std::vector<ViewOperand>& operands = binding->call.views->operands;
  for (size_t i = 0; i < operands.size(); ++i)
    binding->workspace().ViewOf(binding->channel->self(), i).pieces = operands[i].pieces;
  // A plan of one rank has no first exchange.
  return binding->channel->size() == 1 ? Settle(binding) : Status();
}

Status UnevenOperands::Settle(Binding* binding) const {
  const std::vector<ViewOperand>& operands = binding->call.views->operands;
  for (size_t k = 0; k < operands.size(); ++k) {
    AXCCL_RETURN_IF_ERROR(
        ForEachTransfer(*binding, [&](const Transfer& transfer) { return CheckTransfer(*binding, transfer, k); }));
    const bool targets = !operands[k].pieces.targets.empty();
    for (int j = 0; j < binding->channel->size() && targets; ++j) AXCCL_RETURN_IF_ERROR(CheckTargets(*binding, j, k));
  }
  binding->call.count = LongestBlock(*binding);
  binding->around_cache = LeavesCache(*binding);
  return Status();
}

tensor::Shape UnevenOperands::OperandShape(const Binding& binding, Side side, int position, size_t index, int) const {
  const ViewOperand& operand = binding.call.views->operands[index];
  const Pieces& pieces = PiecesOf(binding, position, index);
  tensor::Shape shape = operand.form.shape;
  if (operand.dim >= 0) shape.sizes[operand.dim] = side == Side::kInput ? pieces.input_rows : pieces.output_rows;
  return shape;
}

// The stride of a dimension with one row has no meaning and may be any number.
void UnevenOperands::SetSteps(const Binding& binding, int position, size_t index) const {
  const ViewOperand& operand = binding.call.views->operands[index];
  MemberView& view = binding.workspace().ViewOf(position, index);
  const uint64_t size = operand.dim < 0 ? 0 : ElementSize(operand.type);
  const int d = std::max(operand.dim, 0);
  view.input_step = static_cast<int64_t>(static_cast<uint64_t>(view.input_strides[d]) * size);
  view.output_step = static_cast<int64_t>(static_cast<uint64_t>(view.output_strides[d]) * size);
  view.input_is_dense = view.output_is_dense = false;
}

// ---- announcements ----

size_t UnevenOperands::PieceWords(const Binding& binding, int position) const {
  const plan::Contract contract = binding.contract();
  const int blocks = plan::InputBlocks(contract, position) + plan::OutputBlocks(contract, position);
  const bool targets = !binding.call.views->operands[0].pieces.targets.empty();
  return 2 + 2 * static_cast<size_t>(blocks) + (targets ? static_cast<size_t>(binding.channel->size()) : 0);
}

void UnevenOperands::AnnouncePieces(const Binding& binding, const ViewOperand& operand) const {
  std::vector<uint64_t>& words = binding.workspace().announcement();
  const Pieces& pieces = operand.pieces;
  words.insert(words.end(), {static_cast<uint64_t>(pieces.input_rows), static_cast<uint64_t>(pieces.output_rows)});
  for (const std::vector<Piece>* blocks : {&pieces.input, &pieces.output}) {
    for (const Piece& piece : *blocks)
      words.insert(words.end(), {static_cast<uint64_t>(piece.offset), static_cast<uint64_t>(piece.extent)});
  }
  words.insert(words.end(), pieces.targets.begin(), pieces.targets.end());
}

void UnevenOperands::ReadPieces(const Binding& binding, int position, size_t index, AnnouncedReader* words) const {
  const plan::Contract contract = binding.contract();
  Pieces& pieces = binding.workspace().ViewOf(position, index).pieces;
  // More rows than memory has are refused with the extent of the view; a negative number counts as none.
  pieces.input_rows = std::max<int64_t>(words->NextSigned(), 0);
  pieces.output_rows = std::max<int64_t>(words->NextSigned(), 0);
  pieces.input.resize(static_cast<size_t>(plan::InputBlocks(contract, position)));
  pieces.output.resize(static_cast<size_t>(plan::OutputBlocks(contract, position)));
  for (std::vector<Piece>* blocks : {&pieces.input, &pieces.output}) {
    for (Piece& piece : *blocks) {
      piece.offset = words->NextSigned();
      piece.extent = words->NextSigned();
    }
  }
  pieces.targets.resize(binding.call.views->operands[0].pieces.targets.size());
  for (int64_t& target : pieces.targets) target = words->NextSigned();
}

// ---- movement ----

const Piece& UnevenOperands::PieceOf(const Binding& binding, const plan::Operand& operand, size_t index) {
  const Pieces& pieces = PiecesOf(binding, operand.rank, index);
  return (operand.buffer == Buffer::kInput ? pieces.input : pieces.output)[operand.block];
}

int64_t UnevenOperands::BeginOf(const Binding& binding, const plan::Operand& operand, size_t index) const {
  return PieceOf(binding, operand, index).offset;
}

uint64_t UnevenOperands::BlockBytes(const Binding& binding, const Step& step, size_t index) const {
  const uint64_t row = binding.call.views->operands[index].block_bytes;
  return row * static_cast<uint64_t>(PieceOf(binding, UserOperand(binding, step), index).extent);
}

tensor::Shape UnevenOperands::BlockShape(const Binding& binding, const Step& step, size_t index) const {
  const ViewOperand& operand = binding.call.views->operands[index];
  tensor::Shape shape = operand.form.shape;
  if (operand.dim >= 0) shape.sizes[operand.dim] = PieceOf(binding, UserOperand(binding, step), index).extent;
  return shape;
}

plan::Range UnevenOperands::Clip(const Binding& binding, const Step& step, const plan::Range& range) const {
  uint64_t bytes = 0;
  for (size_t k = 0; k < binding.call.views->operands.size(); ++k)
    bytes = RoundUp(bytes, kOperandAlignment) + BlockBytes(binding, step, k);
  const uint64_t end = bytes / ElementSize(binding.call.type);
  return {range.begin, range.begin >= end ? 0 : std::min(range.count, end - range.begin)};
}

}  // namespace axccl::exec
