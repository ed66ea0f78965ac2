#include "src/exec/cuda/uneven_parts.h"

#include <cinttypes>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace axccl::exec {
namespace {

using plan::Kind;

constexpr int kNone = -1;

// The address of the first row of a piece; if there is no row, that of the operand.
template <class T>
T* RowAt(T* first, const ViewOperand& operand, const int64_t* strides, const Piece& piece) {
  if (first == nullptr || piece.extent == 0) return first;
  const int64_t elements = strides[operand.dim] * piece.offset;
  auto* const bytes = static_cast<std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>*>(first);
  return bytes + elements * static_cast<int64_t>(ElementSize(operand.type));
}

// Finds the parts of a call on one rank.
class Parts {
 public:
  Parts(const Call& call, int rank, int ranks) : call_(call), rank_(rank), ranks_(ranks) {}

  Result<std::vector<UnevenPart>> Find() {
    const bool rooted = call_.kind == Kind::kAllGather || call_.kind == Kind::kReduceScatter;
    for (int other = 0; other < ranks_; ++other) AXCCL_RETURN_IF_ERROR(rooted ? AddRooted(other) : AddMessages(other));
    return std::move(parts_);
  }

 private:
  // Adds a rooted collective for each rank's piece, of which that rank is the root.
  Status AddRooted(int root) {
    const int own = root == rank_ ? 0 : kNone;
    return call_.kind == Kind::kAllGather ? Add(UnevenPart::On::kChannel, root, {Kind::kBroadcast, own, root})
                                          : Add(UnevenPart::On::kChannel, root, {Kind::kReduce, root, own});
  }

  // Adds the messages to and from a rank.
  Status AddMessages(int peer) {
    const plan::Contract contract{call_.kind, ranks_, call_.root};
    const int inputs = plan::InputBlocks(contract, rank_), outputs = plan::OutputBlocks(contract, rank_);
    const bool sends = inputs != 0 && plan::OutputBlocks(contract, peer) != 0;
    const bool receives = outputs != 0 && plan::InputBlocks(contract, peer) != 0;
    const int input = sends ? (inputs > 1 ? peer : 0) : kNone, output = receives ? (outputs > 1 ? peer : 0) : kNone;
    if (peer == rank_) return sends ? Add(UnevenPart::On::kRank, peer, {Kind::kSendRecv, input, output}) : Status();
    if (sends) AXCCL_RETURN_IF_ERROR(Add(UnevenPart::On::kSend, peer, {Kind::kSendRecv, input, kNone}));
    return receives ? Add(UnevenPart::On::kReceive, peer, {Kind::kSendRecv, kNone, output}) : Status();
  }

  // The kind of a part, and which piece of every operand's input and output it moves.
  struct Form {
    Kind kind;
    int input, output;
  };

  // Adds an even call. `other`: its root, or the peer.
  Status Add(UnevenPart::On on, int other, Form form) {
    auto list = std::make_shared<ViewList>();
    list->scale = call_.views->scale;
    for (const ViewOperand& operand : call_.views->operands) {
      const Piece* const from = form.input == kNone ? nullptr : &operand.pieces.input[static_cast<size_t>(form.input)];
      const Piece* const to = form.output == kNone ? nullptr : &operand.pieces.output[static_cast<size_t>(form.output)];
      if (from != nullptr && to != nullptr && from->extent != to->extent)
        return MakeStatus(Code::kInvalidUsage,
                          "operand %zu: rank %d gives %" PRId64 " rows to itself and expects %" PRId64
                          "; they must agree",
                          list->operands.size(), rank_, from->extent, to->extent);
      list->operands.push_back(RowsOf(operand, from, to));
    }
    UnevenPart& part = parts_.emplace_back(UnevenPart{call_, on, other});
    part.call.kind = form.kind;
    part.call.root = on == UnevenPart::On::kChannel ? other : 0;
    part.call.count = list->BlockCount();
    part.call.input = list->operands[0].input;
    part.call.output = list->operands[0].output;
    part.call.views = std::move(list);
    return Status();
  }

  static ViewOperand RowsOf(const ViewOperand& operand, const Piece* from, const Piece* to) {
    ViewOperand rows = operand;
    const int64_t extent = (from != nullptr ? from : to)->extent;
    rows.form.shape.sizes[operand.dim] = extent;
    rows.block_bytes *= static_cast<uint64_t>(extent);
    rows.input = from != nullptr ? RowAt(operand.input, operand, operand.input_strides, *from) : nullptr;
    rows.output = to != nullptr ? RowAt(operand.output, operand, operand.output_strides, *to) : nullptr;
    rows.dim = -1;
    rows.pieces = {};
    return rows;
  }

  const Call& call_;
  const int rank_, ranks_;
  std::vector<UnevenPart> parts_;
};

}  // namespace

Result<std::vector<UnevenPart>> PartsOfUneven(const Call& call, int rank, int ranks) {
  const LatePieces& late = call.views->late;
  if (late.input_extents != nullptr || late.roots != nullptr)
    return MakeStatus(Code::kInvalidUsage,
                      "numbers that are read when the call starts are not served on CUDA devices yet; use a call that "
                      "gets them as arguments, or host ranks");
  return Parts(call, rank, ranks).Find();
}

}  // namespace axccl::exec
