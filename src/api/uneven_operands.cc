#include "src/api/uneven_operands.h"

#include <algorithm>
#include <cinttypes>
#include <string>

namespace axccl::api {
namespace {

using exec::Piece;

// Places pieces one after the other.
std::vector<Piece> Follow(const int64_t* extents, int ranks) {
  std::vector<Piece> pieces(static_cast<size_t>(ranks));
  int64_t offset = 0;
  for (size_t r = 0; r < pieces.size(); ++r) {
    pieces[r] = {offset, extents[r]};
    offset += extents[r];
  }
  return pieces;
}

Status CheckExtents(const ViewContext& context, int index, const char* argument, const int64_t* extents) {
  const ViewRequest& r = context.request;
  if (extents == nullptr)
    return MakeStatus(Code::kInvalidArgument, "%s: argument %s is NULL; pass the number of rows of every rank", r.name,
                      argument);
  int64_t sum = 0;
  for (int i = 0; i < context.contract.ranks; ++i) {
    const int64_t extent = extents[index * context.contract.ranks + i];
    if (extent < 0 || __builtin_add_overflow(sum, extent, &sum))
      return MakeStatus(Code::kInvalidArgument,
                        "%s: argument %s: operand %d has %" PRId64
                        " rows for rank %d; give at least 0, in all less "
                        "than 2^63",
                        r.name, argument, index, extent, i);
  }
  return Status();
}

// Checks that a side has the rows of its pieces.
Status CheckRows(const ViewContext& context, const char* side, int index, const std::vector<Piece>& pieces,
                 int64_t rows, int dim) {
  if (pieces.empty() || pieces.back().offset + pieces.back().extent <= rows) return Status();
  return MakeStatus(Code::kInvalidArgument, "%s: %s has size %" PRId64 " along dimension %d, its pieces take %" PRId64,
                    context.request.name, context.Name(side, index).c_str(), rows, dim,
                    pieces.back().offset + pieces.back().extent);
}

// Checks that both sides have the same sizes, except along `dim`.
Status CheckShapes(const ViewContext& context, int index, const ViewPair& operand, int dim) {
  if (!operand.has_input || !operand.has_output) return Status();
  const tensor::Shape &in = operand.input.shape, &out = operand.output.shape;
  if (in.dims != out.dims)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s has %d dimensions (sizes %s), %s has %d (sizes %s); they must agree",
                      context.request.name, context.Name("output", index).c_str(), out.dims, tensor::Text(out).c_str(),
                      context.Name("input", index).c_str(), in.dims, tensor::Text(in).c_str());
  for (int d = 0; d < in.dims; ++d) {
    if (d != dim && in.sizes[d] != out.sizes[d])
      return MakeStatus(Code::kInvalidArgument,
                        "%s: %s has size %" PRId64 " along dimension %d, %s has %" PRId64 "; they must agree",
                        context.request.name, context.Name("output", index).c_str(), out.sizes[d], d,
                        context.Name("input", index).c_str(), in.sizes[d]);
  }
  return Status();
}

// Finds the shape of a row and its bytes.
Status FindRow(const ViewContext& context, const ViewPair& operand, int dim, exec::ViewOperand* to) {
  const tensor::View& any = operand.has_input ? operand.input : operand.output;
  to->form.shape = any.shape;
  to->dim = dim;
  int64_t rows = 1;
  if (dim >= 0) {
    rows = std::max(operand.has_input ? operand.input.shape.sizes[dim] : 0,
                    operand.has_output ? operand.output.shape.sizes[dim] : 0);
    to->form.shape.sizes[dim] = 1;
  }
  int64_t bytes = tensor::Elements(to->form.shape);
  to->block_bytes = static_cast<uint64_t>(bytes) * ElementSize(operand.type);
  if (__builtin_mul_overflow(bytes, static_cast<int64_t>(ElementSize(operand.type)), &bytes) ||
      __builtin_mul_overflow(bytes, rows, &bytes) || bytes > (int64_t{1} << 56))
    return MakeStatus(Code::kInvalidArgument, "%s: an operand of sizes %s has more bytes than can be addressed",
                      context.request.name, tensor::Text(any.shape).c_str());
  return Status();
}

tensor::View PieceView(const tensor::View& view, const exec::ViewOperand& operand, const Piece& piece) {
  tensor::Shape shape = operand.form.shape;
  if (operand.dim < 0) return tensor::BlockView(view, shape, 0, 0);
  shape.sizes[operand.dim] = piece.extent;
  const int64_t stride = piece.offset == 0 ? 0 : view.strides[operand.dim] * piece.offset;
  return tensor::BlockView(view, shape, stride, 1);
}

Status CheckPiecesInPlace(const ViewContext& context, int index, const ViewPair& pair,
                          const exec::ViewOperand& operand) {
  int input_block = 0, output_block = 0;
  if (!plan::InPlaceBlocks(context.contract, context.position, &input_block, &output_block))
    return CheckInPlace(context, index, pair, nullptr, nullptr);
  if (!pair.has_input || !pair.has_output) return Status();
  const tensor::View from = PieceView(pair.input, operand, operand.pieces.input[static_cast<size_t>(input_block)]);
  const tensor::View to = PieceView(pair.output, operand, operand.pieces.output[static_cast<size_t>(output_block)]);
  AXCCL_RETURN_IF_ERROR(CheckInPlace(context, index, pair, &from, &to));
  if (!tensor::Overlap(pair.input, pair.output) || tensor::CheckView({}, tensor::Role::kOutput, pair.input).ok())
    return Status();
  return MakeStatus(Code::kInvalidArgument, "%s: %s reaches one element by two indices, which in place is not allowed",
                    context.request.name, context.Name("input", index).c_str());
}

// Finds the dimension of an operand's rows.
Status FindRowDim(const ViewContext& context, int index, const ViewPair& operand, int* dim) {
  const char* side = operand.has_input ? "input" : "output";
  const tensor::View& view = operand.has_input ? operand.input : operand.output;
  AXCCL_ASSIGN_OR_RETURN(
      *dim, tensor::NormaliseDim({context.request.name, side, context.Index(index)}, "dim", context.request.dim,
                                 view.shape.dims, tensor::NegativeDims::kFromEnd));
  return CheckShapes(context, index, operand, *dim);
}

Status FindPieces(const ViewContext& context, int index, const Extents& extents, const ViewPair& operand,
                  exec::ViewOperand* to) {
  const int n = context.contract.ranks;
  const int64_t* sent = extents.input + index * n;
  const int64_t* received = extents.output != nullptr ? extents.output + index * n : sent;
  exec::Pieces& pieces = to->pieces;
  const Piece own = {0, sent[context.position]};
  const bool all_to_all = context.request.kind == plan::Kind::kAllToAll;
  if (operand.has_input) {
    const bool many = all_to_all || plan::Reduces(context.request.kind) || context.request.kind == plan::Kind::kScatter;
    pieces.input = many ? Follow(sent, n) : std::vector<Piece>{own};
    pieces.input_rows = operand.input.shape.sizes[to->dim];
    AXCCL_RETURN_IF_ERROR(CheckRows(context, "input", index, pieces.input, pieces.input_rows, to->dim));
  }
  if (operand.has_output) {
    const bool many =
        all_to_all || context.request.kind == plan::Kind::kAllGather || context.request.kind == plan::Kind::kGather;
    pieces.output = many ? Follow(received, n) : std::vector<Piece>{own};
    pieces.output_rows = operand.output.shape.sizes[to->dim];
    AXCCL_RETURN_IF_ERROR(CheckRows(context, "output", index, pieces.output, pieces.output_rows, to->dim));
  }
  return Status();
}

}  // namespace

Status FindUnevenOperands(const ViewRequest& r, const Extents& extents, int group_size, int position,
                          exec::ViewList* list) {
  const ViewContext context{r, {r.kind, group_size, r.root}, position};
  const bool two = r.kind == plan::Kind::kAllToAll;
  std::vector<ViewPair> operands;
  AXCCL_RETURN_IF_ERROR(ReadOperands(context, &operands));
  for (int i = 0; i < r.count; ++i) {
    const ViewPair& operand = operands[static_cast<size_t>(i)];
    AXCCL_RETURN_IF_ERROR(CheckExtents(context, i, two ? "send_extents" : "extents", extents.input));
    if (two) AXCCL_RETURN_IF_ERROR(CheckExtents(context, i, "receive_extents", extents.output));
    exec::ViewOperand& to = list->operands.emplace_back(Convert(operand));
    int dim;
    AXCCL_RETURN_IF_ERROR(FindRowDim(context, i, operand, &dim));
    AXCCL_RETURN_IF_ERROR(FindRow(context, operand, dim, &to));
    AXCCL_RETURN_IF_ERROR(FindPieces(context, i, extents, operand, &to));
    AXCCL_RETURN_IF_ERROR(CheckPiecesInPlace(context, i, operand, to));
    AXCCL_RETURN_IF_ERROR(LowerToBytes(context, i, &to));
  }
  list->uneven = true;
  return r.count > 1 ? CheckApart(context, operands) : Status();
}

Status FindLateOperands(const ViewRequest& r, const exec::LatePieces& late, int group_size, int position,
                        exec::ViewList* list) {
  const ViewContext context{r, {r.kind, group_size, r.root}, position};
  const auto n = static_cast<size_t>(group_size);
  std::vector<ViewPair> operands;
  AXCCL_RETURN_IF_ERROR(ReadOperands(context, &operands));
  const bool rows = late.roots == nullptr;
  for (int i = 0; i < r.count; ++i) {
    const ViewPair& operand = operands[static_cast<size_t>(i)];
    exec::ViewOperand& to = list->operands.emplace_back(Convert(operand));
    int dim = -1;
    AXCCL_RETURN_IF_ERROR(rows ? FindRowDim(context, i, operand, &dim) : CheckShapes(context, i, operand, -1));
    AXCCL_RETURN_IF_ERROR(FindRow(context, operand, dim, &to));
    exec::Pieces& pieces = to.pieces;
    pieces.input_rows = rows ? operand.input.shape.sizes[dim] : 1;
    pieces.output_rows = rows ? operand.output.shape.sizes[dim] : 1;
    const Piece all = {0, rows ? 0 : 1};
    pieces.input.assign(rows || plan::Reduces(r.kind) ? n : 1, all);
    pieces.output.assign(rows || !plan::Reduces(r.kind) ? n : 1, all);
    if (rows) pieces.targets.resize(n);
    // With roots, all of the operand may be in place.
    AXCCL_RETURN_IF_ERROR(
        CheckInPlace(context, i, operand, rows ? nullptr : &operand.input, rows ? nullptr : &operand.output));
    AXCCL_RETURN_IF_ERROR(LowerToBytes(context, i, &to));
  }
  list->uneven = true;
  list->late = late;
  list->zeros = plan::Reduces(r.kind);
  return r.count > 1 ? CheckApart(context, operands) : Status();
}

}  // namespace axccl::api
