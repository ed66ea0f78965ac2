// Uneven calls: blocks that are pieces of different numbers of rows.
//
// A rank knows its own pieces and announces them all; with the opening of the operation behind it, every rank knows all
// pieces of all ranks, and all come to the same conclusion: that they fit each other, or who and what does not, before
// a byte has moved.
#include <algorithm>
#include <cinttypes>

#include "src/exec/host/operation.h"

namespace axccl::exec {
namespace {

using plan::Buffer;

// Whether the piece lies in an operand of that many rows. Nobody has checked the numbers.
bool Inside(const Piece& piece, int64_t rows) {
  return piece.offset >= 0 && piece.extent >= 0 && piece.extent <= rows && piece.offset <= rows - piece.extent;
}

}  // namespace

// Reads what is told in memory. The list is shared with nobody afterwards.
Status Operation::StartUneven() {
  const LatePieces& late = call_.views->late;
  const int n = channel_->size();
  if (late.input_extents == nullptr && late.roots == nullptr) return Status();
  auto list = std::make_shared<ViewList>(*call_.views);
  for (size_t i = 0; i < list->operands.size(); ++i) {
    Pieces& pieces = list->operands[i].pieces;
    if (late.roots != nullptr) {
      const int32_t root = late.roots[i];
      if (root < 0 || root >= n)
        return MakeStatus(Code::kInvalidUsage,
                          "%s: root %" PRId32
                          " of operand %zu, which rank %d read when the call started: pass a rank of the "
                          "channel (0..%d)",
                          DescribeCall(call_).c_str(), root, i, channel_->self(), n - 1);
      // One block has all rows, and the others none. What each rank is told by the call is how many that is.
      for (std::vector<Piece>* blocks : {&pieces.input, &pieces.output}) {
        for (size_t b = 0; b < blocks->size(); ++b) {
          const bool of_root = blocks->size() > 1 || n == 1 ? static_cast<int>(b) == root : channel_->self() == root;
          if (!of_root) (*blocks)[b].extent = 0;
        }
      }
      continue;
    }
    for (size_t r = 0; r < static_cast<size_t>(n); ++r) {
      pieces.input[r] = {late.input_offsets[r], late.input_extents[r]};
      pieces.output[r] = {0, late.output_extents[r]};
      pieces.targets[r] = late.targets[r];
      if (!Inside(pieces.input[r], pieces.input_rows))
        return MakeStatus(Code::kInvalidUsage,
                          "%s: input offset %" PRId64 " and size %" PRId64
                          " for rank %zu, which rank %d read when the call started, leave the %" PRId64
                          " rows of its input",
                          DescribeCall(call_).c_str(), late.input_offsets[r], late.input_extents[r], r,
                          channel_->self(), pieces.input_rows);
    }
  }
  call_.views = std::move(list);
  return Status();
}

// ---- announcements: rows of input and output, (offset, extent) of every block, targets ----

size_t Operation::PieceWords(int position) const {
  if (!call_.uneven()) return 0;
  const plan::Contract contract{call_.kind, channel_->size(), call_.root};
  const int blocks = plan::InputBlocks(contract, position) + plan::OutputBlocks(contract, position);
  const bool targets = !call_.views->operands[0].pieces.targets.empty();
  return 2 + 2 * static_cast<size_t>(blocks) + (targets ? static_cast<size_t>(channel_->size()) : 0);
}

void Operation::AnnouncePieces(const ViewOperand& operand) {
  std::vector<uint64_t>& words = workspace_.announcement();
  const Pieces& pieces = operand.pieces;
  words.insert(words.end(), {static_cast<uint64_t>(pieces.input_rows), static_cast<uint64_t>(pieces.output_rows)});
  for (const std::vector<Piece>* blocks : {&pieces.input, &pieces.output}) {
    for (const Piece& piece : *blocks)
      words.insert(words.end(), {static_cast<uint64_t>(piece.offset), static_cast<uint64_t>(piece.extent)});
  }
  words.insert(words.end(), pieces.targets.begin(), pieces.targets.end());
}

void Operation::ReadPieces(int position, size_t index, AnnouncedReader* words) {
  const plan::Contract contract{call_.kind, channel_->size(), call_.root};
  Pieces& pieces = ViewAt(position, index).pieces;
  // More rows than memory has are refused with the extent of the view; fewer than none are none.
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
  pieces.targets.resize(call_.views->operands[0].pieces.targets.size());
  for (int64_t& target : pieces.targets) target = words->NextSigned();
}

// ---- what all ranks conclude ----

// Every block that goes from one rank to another or to itself.
template <class Visit>
Status Operation::ForEachTransfer(const Visit& visit) const {
  const int n = channel_->size();
  const plan::Contract contract{call_.kind, n, call_.root};
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

Status Operation::SettlePieces() {
  for (size_t k = 0; k < NumViews(); ++k) {
    AXCCL_RETURN_IF_ERROR(ForEachTransfer([&](const Transfer& transfer) { return CheckTransfer(transfer, k); }));
    const bool targets = !call_.views->operands[k].pieces.targets.empty();
    for (int j = 0; j < channel_->size() && targets; ++j) AXCCL_RETURN_IF_ERROR(CheckTargets(j, k));
  }
  call_.count = LongestBlock();
  around_cache_ = LeavesCache();
  return Status();
}

// Whether this rank's blocks are together too large for the cache.
bool Operation::LeavesCache() const {
  uint64_t bytes = 0;
  for (size_t k = 0; k < NumViews(); ++k) {
    const Pieces& pieces = ViewAt(channel_->self(), k).pieces;
    for (const std::vector<Piece>* blocks : {&pieces.input, &pieces.output}) {
      for (const Piece& piece : *blocks)
        bytes += call_.views->operands[k].block_bytes * static_cast<uint64_t>(piece.extent);
    }
  }
  return bytes > channel_->owner()->cache_bytes();
}

Status Operation::CheckTransfer(const Transfer& transfer, size_t index) {
  const Pieces& from = ViewAt(transfer.source, index).pieces;
  Pieces& to = ViewAt(transfer.destination, index).pieces;
  const Piece& sent = from.input[static_cast<size_t>(transfer.block)];
  Piece& received = to.output[static_cast<size_t>(transfer.place)];
  if (!from.targets.empty()) received.offset = from.targets[static_cast<size_t>(transfer.destination)];
  if (sent.extent != received.extent && call_.views->late.roots != nullptr)
    return MakeStatus(Code::kInvalidUsage, "%s: operand %zu: rank %d and rank %d read different roots; they must agree",
                      DescribeCall(call_).c_str(), index, transfer.source, transfer.destination);
  if (sent.extent != received.extent)
    return MakeStatus(
        Code::kInvalidUsage,
        "%s: operand %zu: rank %d gives %" PRId64 " rows to rank %d, which expects %" PRId64 "; they must agree",
        DescribeCall(call_).c_str(), index, transfer.source, sent.extent, transfer.destination, received.extent);
  const bool source_is_wrong = !Inside(sent, from.input_rows);
  if (!source_is_wrong && Inside(received, to.output_rows)) return Status();
  const Piece& wrong = source_is_wrong ? sent : received;
  return MakeStatus(Code::kInvalidUsage,
                    "%s: operand %zu: rows %" PRId64 " to %" PRId64 " (offset %" PRId64 ", size %" PRId64
                    ") from rank %d to rank %d leave the %" PRId64 " rows of the %s",
                    DescribeCall(call_).c_str(), index, wrong.offset,
                    static_cast<int64_t>(static_cast<uint64_t>(wrong.offset) + static_cast<uint64_t>(wrong.extent)),
                    wrong.offset, wrong.extent, transfer.source, transfer.destination,
                    source_is_wrong ? from.input_rows : to.output_rows, source_is_wrong ? "input" : "output");
}

// What several ranks put into an output may not overlap, as it is not said who comes first.
Status Operation::CheckTargets(int destination, size_t index) const {
  const std::vector<Piece>& blocks = ViewAt(destination, index).pieces.output;
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
          DescribeCall(call_).c_str(), index, order[i - 1], order[i], blocks[order[i]].offset, destination);
  }
  return Status();
}

// Elements of the longest block of the call, which says how many turns all ranks make.
uint64_t Operation::LongestBlock() const {
  uint64_t longest = 0;
  (void)ForEachTransfer([&](const Transfer& transfer) {
    uint64_t bytes = 0;
    for (size_t k = 0; k < NumViews(); ++k) {
      const Piece& piece = ViewAt(transfer.source, k).pieces.input[static_cast<size_t>(transfer.block)];
      bytes = RoundUp(bytes, kOperandAlignment) +
              call_.views->operands[k].block_bytes * static_cast<uint64_t>(piece.extent);
    }
    longest = std::max(longest, bytes);
    return Status();
  }).ok();
  return longest / ElementSize(call_.type);
}

// ---- movement ----

// An operand of the step that is not scratch: uneven calls run plans whose every move has one.
const plan::Operand& Operation::UserOperand(const Step& step) const {
  const plan::Operand* operand = &prepared_->program->operands[step.operands];
  while (operand->buffer == Buffer::kScratch) ++operand;
  return *operand;
}

const Piece& Operation::PieceOf(const plan::Operand& operand, size_t index) const {
  const Pieces& pieces = ViewAt(operand.rank, index).pieces;
  return (operand.buffer == Buffer::kInput ? pieces.input : pieces.output)[operand.block];
}

// Bytes of an operand's block in a move.
uint64_t Operation::BlockBytes(const Step& step, size_t index) const {
  const uint64_t bytes = call_.views->operands[index].block_bytes;
  return call_.uneven() ? bytes * static_cast<uint64_t>(PieceOf(UserOperand(step), index).extent) : bytes;
}

plan::Range Operation::ClipToBlock(const Step& step, plan::Range range) const {
  uint64_t bytes = 0;
  for (size_t k = 0; k < NumViews(); ++k) bytes = RoundUp(bytes, kOperandAlignment) + BlockBytes(step, k);
  const uint64_t end = bytes / ElementSize(call_.type);
  range.count = range.begin >= end ? 0 : std::min(range.count, end - range.begin);
  return range;
}

}  // namespace axccl::exec
