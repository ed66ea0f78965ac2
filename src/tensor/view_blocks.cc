// Finds the blocks of a collective in its views.
#include <cinttypes>

#include "src/tensor/cite.h"
#include "src/tensor/view.h"

namespace axccl::tensor {

using plan::Kind;
using plan::KindName;

namespace {

// What a kind does to its dimensions, the names of its arguments, and StableHLO's constraints on them.
struct Form {
  const char* split = nullptr;   // the argument that names the input's dimension that is split; null = none
  const char* concat = nullptr;  // the argument that names the output's dimension that is concatenated; null = none
  const char* split_dim = "";    // constraints
  const char* concat_dim = "";
  const char* divides = "";
  const char* result = "";
  const char* datatypes = "";
};

constexpr Form FormOf(Kind kind) {
  switch (kind) {
    case Kind::kAllGather:
      return {.concat = "all_gather_dim", .concat_dim = "(C1)", .result = "(C6)", .datatypes = "(C6)"};
    case Kind::kGather:
      return {.concat = "gather_dimension"};
    case Kind::kReduceScatter:
      return {.split = "scatter_dimension",
              .split_dim = "(C2)",
              .divides = "(C1)",
              .result = "(C8)",
              .datatypes = "(C7) (C9)"};
    case Kind::kScatter:
      return {.split = "scatter_dimension"};
    case Kind::kAllToAll:
      return {.split = "split_dimension",
              .concat = "concat_dimension",
              .split_dim = "(C1)",
              .concat_dim = "(C3)",
              .divides = "(C2)",
              .result = "(C9)",
              .datatypes = "(C9)"};
    case Kind::kAllReduce:
      return {.result = "(C6)", .datatypes = "(C5) (C7)"};
    case Kind::kBroadcast:
      return {.result = "(C3)", .datatypes = "(C3)"};
    case Kind::kSendRecv:
      return {.result = "(C5)", .datatypes = "(C5)"};
    default:
      return {};
  }
}

const char* CallOf(const Collective& c) { return c.call != nullptr ? c.call : KindName(c.kind); }

std::string Name(const Collective& c, const char* side) {
  return c.operand < 0 ? side : std::string(side) + " " + std::to_string(c.operand);
}

// The split and concatenated dimensions, -1 for none.
struct Dims {
  int split = -1;
  int concat = -1;
};

// Finds the dimension of one argument. The citation is built only when it is needed.
Status FindDim(const Collective& c, const char* side, const char* argument, const char* constraint, int64_t dim,
               int count, int* result) {
  const OperandName operand = {CallOf(c), side, c.operand};
  if (const Result<int> found = NormaliseDim(operand, argument, dim, count, c.negative_dims); found.ok()) {
    *result = found.value();
    return Status();
  }
  return NormaliseDim(operand, argument, dim, count, c.negative_dims, Cite(c.kind, constraint).c_str()).status();
}

Status FindDims(const Collective& c, const Form& form, const char* side, int count, Dims* dims) {
  if (form.split != nullptr)
    AXCCL_RETURN_IF_ERROR(FindDim(c, side, form.split, form.split_dim, c.dim, count, &dims->split));
  if (form.concat != nullptr) {
    const int64_t dim = c.kind == Kind::kAllToAll ? c.concat_dim : c.dim;
    AXCCL_RETURN_IF_ERROR(FindDim(c, side, form.concat, form.concat_dim, dim, count, &dims->concat));
  }
  return Status();
}

Status CheckCollective(const Collective& c) {
  if (c.kind == Kind::kBarrier)
    return MakeStatus(Code::kInvalidArgument, "%s: a barrier has no operands; call it without", CallOf(c));
  if (c.group_size < 1)
    return MakeStatus(Code::kInvalidArgument, "%s: the group size is %d; it must be at least 1", CallOf(c),
                      c.group_size);
  return Status();
}

// Computes the block of an input of these sizes.
Status SplitInput(const Collective& c, const Form& form, int dim, const Shape& input, Shape* block) {
  *block = input;
  if (dim < 0) return Status();
  if (input.sizes[dim] % c.group_size != 0)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s has size %" PRId64 " along %s %d, not a multiple of the group size %d; pad it%s",
                      CallOf(c), Name(c, "input").c_str(), input.sizes[dim], form.split, dim, c.group_size,
                      Cite(c.kind, form.divides).c_str());
  block->sizes[dim] = input.sizes[dim] / c.group_size;
  return Status();
}

Status JoinBlocks(const Collective& c, const Form& form, int dim, const Shape& block, Shape* output) {
  *output = block;
  if (dim < 0) return Status();
  if (!__builtin_mul_overflow(block.sizes[dim], int64_t{c.group_size}, &output->sizes[dim])) return Status();
  return MakeStatus(Code::kInvalidArgument,
                    "%s: %s concatenates %d parts of size %" PRId64 " along %s %d, more than 2^63 - 1 elements",
                    CallOf(c), Name(c, "output").c_str(), c.group_size, block.sizes[dim], form.concat, dim);
}

// Compares the output's sizes with the expected ones; messages say where the expectation comes from.
Status CompareOutput(const Collective& c, const Form& form, const Dims& dims, const Shape& input, const Shape& expected,
                     const Shape& output) {
  const std::string cite = Cite(c.kind, form.result);
  if (output.dims != expected.dims)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s has %d dimensions (sizes %s), %s has %d (sizes %s); they must agree%s", CallOf(c),
                      Name(c, "output").c_str(), output.dims, Text(output).c_str(), Name(c, "input").c_str(),
                      input.dims, Text(input).c_str(), cite.c_str());
  for (int d = 0; d < expected.dims; ++d) {
    if (output.sizes[d] == expected.sizes[d]) continue;
    std::string why = std::to_string(input.sizes[d]) + " of " + Name(c, "input");
    if (d == dims.split && d != dims.concat) why += " / group size " + std::to_string(c.group_size);
    if (d == dims.concat && d != dims.split) why += " x group size " + std::to_string(c.group_size);
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s has size %" PRId64 " along dimension %d, expected %" PRId64 " = %s; give it sizes %s%s",
                      CallOf(c), Name(c, "output").c_str(), output.sizes[d], d, expected.sizes[d], why.c_str(),
                      Text(expected).c_str(), cite.c_str());
  }
  return Status();
}

Status CheckPresence(const Collective& c, const View* input, const View* output) {
  const bool either = c.kind == Kind::kBroadcast || c.kind == Kind::kSendRecv;
  const bool need_input = !either && c.kind != Kind::kScatter;
  const bool need_output = !either && c.kind != Kind::kReduce && c.kind != Kind::kGather;
  const char* missing = nullptr;
  if (need_input && input == nullptr) missing = "input";
  if (need_output && output == nullptr) missing = "output";
  if (either && input == nullptr && output == nullptr) missing = "input or output";
  if (missing != nullptr)
    return MakeStatus(Code::kInvalidArgument, "%s: the %s is missing; on this rank the call needs one", CallOf(c),
                      missing);
  if (input == nullptr || output == nullptr || Reduces(c.kind) || input->element_size == output->element_size)
    return Status();
  return MakeStatus(Code::kInvalidArgument, "%s: %s has elements of %u bytes, %s of %u; the element types must agree%s",
                    CallOf(c), Name(c, "output").c_str(), output->element_size, Name(c, "input").c_str(),
                    input->element_size, Cite(c.kind, FormOf(c.kind).result).c_str());
}

// The distance from one block to the next; 0 if there is only one, because the stride of such a dimension has no
// meaning.
int64_t BlockStride(const View& view, int dim, const Blocks& blocks, int count) {
  if (count < 2 || blocks.elements == 0) return 0;
  return view.strides[dim] * blocks.shape.sizes[dim];
}

}  // namespace

std::string CiteDatatypes(Kind kind) { return Cite(kind, FormOf(kind).datatypes); }

Status OutputShape(const Collective& c, const Shape& input, Shape* output) {
  AXCCL_RETURN_IF_ERROR(CheckCollective(c));
  const Form form = FormOf(c.kind);
  Dims dims;
  Shape block;
  AXCCL_RETURN_IF_ERROR(FindDims(c, form, "input", input.dims, &dims));
  AXCCL_RETURN_IF_ERROR(SplitInput(c, form, dims.split, input, &block));
  return JoinBlocks(c, form, dims.concat, block, output);
}

Status FindBlocks(const Collective& c, const View* input, const View* output, Blocks* blocks) {
  AXCCL_RETURN_IF_ERROR(CheckCollective(c));
  AXCCL_RETURN_IF_ERROR(CheckPresence(c, input, output));
  const Form form = FormOf(c.kind);
  Dims dims;
  if (input != nullptr) {
    AXCCL_RETURN_IF_ERROR(FindDims(c, form, "input", input->shape.dims, &dims));
    AXCCL_RETURN_IF_ERROR(SplitInput(c, form, dims.split, input->shape, &blocks->shape));
  } else {
    // The kinds that may lack an input concatenate nothing, so the output is one block.
    AXCCL_RETURN_IF_ERROR(FindDims(c, form, "output", output->shape.dims, &dims));
    blocks->shape = output->shape;
  }
  if (input != nullptr && output != nullptr) {
    Shape expected;
    AXCCL_RETURN_IF_ERROR(JoinBlocks(c, form, dims.concat, blocks->shape, &expected));
    if (output->shape != expected)
      AXCCL_RETURN_IF_ERROR(CompareOutput(c, form, dims, input->shape, expected, output->shape));
  }
  blocks->elements = Elements(blocks->shape);
  blocks->split = dims.split;
  blocks->concat = dims.concat;
  blocks->input_blocks = input == nullptr ? 0 : dims.split < 0 ? 1 : c.group_size;
  blocks->output_blocks = output == nullptr ? 0 : dims.concat < 0 ? 1 : c.group_size;
  blocks->input_stride = input == nullptr ? 0 : BlockStride(*input, dims.split, *blocks, blocks->input_blocks);
  blocks->output_stride = output == nullptr ? 0 : BlockStride(*output, dims.concat, *blocks, blocks->output_blocks);
  return Status();
}

View BlockView(const View& view, const Shape& block, int64_t block_stride, int index) {
  View result = view;
  result.shape = block;
  // In integers: an empty view may have no data, and offsets from null are undefined.
  const int64_t bytes = index * block_stride * static_cast<int64_t>(view.element_size);
  result.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(view.data) + static_cast<uintptr_t>(bytes));
  return result;
}

}  // namespace axccl::tensor
