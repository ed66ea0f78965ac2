#include "src/api/uneven_parts.h"

#include <cinttypes>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace axccl::api {
namespace {

using exec::Piece;
using plan::Kind;

constexpr int kNone = -1;

// The address of the first row of a piece; where there is nothing or no row, that of the operand.
template <class T>
T* RowAt(T* first, const exec::ViewOperand& operand, const int64_t* strides, const Piece& piece) {
  if (first == nullptr || piece.extent == 0) return first;
  const int64_t elements = strides[operand.dim] * piece.offset;
  auto* const bytes = static_cast<std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>*>(first);
  return bytes + elements * static_cast<int64_t>(ElementSize(operand.type));
}

// What an uneven call is made of, enqueued on the channel and its pair channels.
class Parts {
 public:
  Parts(const char* name, const ChannelPin& pin, const GroupPlace& place, const exec::Call& call,
        comm::StreamRef stream)
      : name_(name), pin_(pin), place_(place), call_(call), stream_(stream) {}

  Status Enqueue() {
    if (call_.kind == Kind::kAllGather || call_.kind == Kind::kReduceScatter) return EnqueueRooted();
    for (int peer = 0; peer < place_.ranks; ++peer) AXCCL_RETURN_IF_ERROR(EnqueueWith(peer));
    return Status();
  }

 private:
  // Every rank is the root of its piece.
  Status EnqueueRooted() {
    for (int root = 0; root < place_.ranks; ++root) {
      const int own = root == place_.rank ? 0 : kNone;
      AXCCL_ASSIGN_OR_RETURN(const exec::Call part, call_.kind == Kind::kAllGather
                                                        ? Part(Kind::kBroadcast, root, own, root)
                                                        : Part(Kind::kReduce, root, root, own));
      AXCCL_RETURN_IF_ERROR(api::Enqueue(pin_.comm.get(), pin_.channel, part, stream_));
    }
    return Status();
  }

  // What goes to a rank and what comes from it.
  Status EnqueueWith(int peer) {
    const plan::Contract contract{call_.kind, place_.ranks, call_.root};
    const int inputs = plan::InputBlocks(contract, place_.rank), outputs = plan::OutputBlocks(contract, place_.rank);
    const bool sends = inputs != 0 && plan::OutputBlocks(contract, peer) != 0;
    const bool receives = outputs != 0 && plan::InputBlocks(contract, peer) != 0;
    const int input = sends ? (inputs > 1 ? peer : 0) : kNone, output = receives ? (outputs > 1 ? peer : 0) : kNone;
    if (peer == place_.rank) {
      if (!sends) return Status();
      AXCCL_ASSIGN_OR_RETURN(const exec::Call copy, Part(Kind::kSendRecv, 0, input, output));
      return EnqueueLocal(pin_.comm.get(), pin_.channel, copy, stream_);
    }
    if (sends) AXCCL_RETURN_IF_ERROR(EnqueueMessage(peer, true, input, kNone));
    return receives ? EnqueueMessage(peer, false, kNone, output) : Status();
  }

  Status EnqueueMessage(int peer, bool sending, int input, int output) {
    AXCCL_ASSIGN_OR_RETURN(exec::Channel * pair, PairOf(name_, pin_, peer, sending));
    AXCCL_ASSIGN_OR_RETURN(const exec::Call message, Part(Kind::kSendRecv, 0, input, output));
    return api::Enqueue(pin_.comm.get(), pair, message, stream_);
  }

  // An even call on these pieces of every operand's input and output.
  Result<exec::Call> Part(Kind kind, int root, int input, int output) const {
    auto list = std::make_shared<exec::ViewList>();
    list->scale = call_.views->scale;
    for (const exec::ViewOperand& operand : call_.views->operands) {
      const Piece* const from = input == kNone ? nullptr : &operand.pieces.input[static_cast<size_t>(input)];
      const Piece* const to = output == kNone ? nullptr : &operand.pieces.output[static_cast<size_t>(output)];
      if (from != nullptr && to != nullptr && from->extent != to->extent)
        return MakeStatus(Code::kInvalidUsage,
                          "%s: operand %zu: rank %d gives %" PRId64 " rows to itself and expects %" PRId64
                          "; they must agree",
                          name_, list->operands.size(), place_.rank, from->extent, to->extent);
      list->operands.push_back(RowsOf(operand, from, to));
    }
    exec::Call part = call_;
    part.kind = kind;
    part.root = root;
    part.count = list->BlockCount();
    part.input = list->operands[0].input;
    part.output = list->operands[0].output;
    part.views = std::move(list);
    return part;
  }

  static exec::ViewOperand RowsOf(const exec::ViewOperand& operand, const Piece* from, const Piece* to) {
    exec::ViewOperand rows = operand;
    const int64_t extent = (from != nullptr ? from : to)->extent;
    rows.form.shape.sizes[operand.dim] = extent;
    rows.block_bytes *= static_cast<uint64_t>(extent);
    rows.input = from != nullptr ? RowAt(operand.input, operand, operand.input_strides, *from) : nullptr;
    rows.output = to != nullptr ? RowAt(operand.output, operand, operand.output_strides, *to) : nullptr;
    rows.dim = -1;
    rows.pieces = {};
    return rows;
  }

  const char* const name_;
  const ChannelPin& pin_;
  const GroupPlace& place_;
  const exec::Call& call_;
  const comm::StreamRef stream_;
};

}  // namespace

Status EnqueuePieces(const char* name, const ChannelPin& pin, const exec::Call& call, comm::StreamRef stream) {
  const exec::LatePieces& late = call.views->late;
  if (late.input_extents != nullptr || late.roots != nullptr)
    return MakeStatus(Code::kInvalidUsage,
                      "%s: numbers that are read when the call starts are not served on CUDA devices yet; use a call "
                      "that is told them, or host ranks",
                      name);
  return InGroup(name, [&] { return Parts(name, pin, pin.place, call, stream).Enqueue(); });
}

}  // namespace axccl::api
