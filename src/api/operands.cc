#include "src/api/operands.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "src/api/calls.h"
#include "src/tensor/view.h"

namespace axccl::api {

Options::Options(const axcclOptions_t* given) : axcclOptions_t AXCCL_OPTIONS_INITIALIZER {
  if (given == nullptr) return;
  std::memcpy(static_cast<axcclOptions_t*>(this), given, std::min(given->size, sizeof(axcclOptions_t)));
  size = given->size;
}

namespace {

// A larger number is a mistake; it would also take long to check.
constexpr int kMaxOperands = 1 << 20;

Status ReadView(const ViewContext& context, const char* side, int index, const axcclView_t& from, tensor::View* view,
                DataType* type) {
  const char* call = context.request.name;
  if (from.size > sizeof(axcclView_t))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s has size %zu, and this library knows %zu; start from AXCCL_VIEW_INITIALIZER, and use a "
                      "library as new as the header",
                      call, context.Name(side, index).c_str(), from.size, sizeof(axcclView_t));
  if (from.size != sizeof(axcclView_t))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s is not initialised (its size is %zu); start from AXCCL_VIEW_INITIALIZER", call,
                      context.Name(side, index).c_str(), from.size);
  if (!FindDatatype(static_cast<unsigned>(from.datatype), type))
    return MakeStatus(Code::kInvalidArgument, "%s: %s has datatype %u; pass " AXCCL_DATATYPES, call,
                      context.Name(side, index).c_str(), static_cast<unsigned>(from.datatype));
  view->data = from.data;
  view->element_size = static_cast<uint32_t>(ElementSize(*type));
  view->shape.dims = from.num_dims;
  if (from.num_dims > 0 && from.num_dims <= tensor::kMaxDims) {
    if (from.sizes == nullptr)
      return MakeStatus(Code::kInvalidArgument,
                        "%s: %s has %d dimensions and no sizes (a null pointer); give it one for each", call,
                        context.Name(side, index).c_str(), from.num_dims);
    std::copy_n(from.sizes, from.num_dims, view->shape.sizes);
    if (from.strides != nullptr) {
      std::copy_n(from.strides, from.num_dims, view->strides);
    } else {
      *view = tensor::DenseView(view->data, view->element_size, view->shape);
    }
  }
  const tensor::Role role = side[0] == 'i' ? tensor::Role::kInput : tensor::Role::kOutput;
  return tensor::CheckView({call, side, context.Index(index)}, role, *view);
}

Status ReadOperand(const ViewContext& context, int index, ViewPair* operand) {
  const ViewRequest& r = context.request;
  operand->has_input = plan::InputBlocks(context.contract, context.position) != 0;
  operand->has_output = plan::OutputBlocks(context.contract, context.position) != 0 ||
                        (r.kind == plan::Kind::kReduce && r.output != nullptr);  // to be filled with zeros
  // The types of output and input.
  DataType types[2] = {};
  for (const bool is_input : {true, false}) {
    if (!(is_input ? operand->has_input : operand->has_output)) continue;
    const char* side = is_input ? "input" : "output";
    const axcclView_t* from = is_input ? r.input : r.output;
    if (from == nullptr)
      return MakeStatus(Code::kInvalidArgument, "%s: the %s is missing (a null pointer); rank %d needs one", r.name,
                        side, context.position);
    AXCCL_RETURN_IF_ERROR(
        ReadView(context, side, index, from[index], is_input ? &operand->input : &operand->output, &types[is_input]));
    operand->type = types[is_input];
  }
  if (operand->has_input && operand->has_output && types[0] != types[1])
    return MakeStatus(Code::kInvalidArgument, "%s: %s has datatype %s, %s has %s; they must agree%s", r.name,
                      context.Name("output", index).c_str(), DataTypeName(types[0]),
                      context.Name("input", index).c_str(), DataTypeName(types[1]),
                      tensor::CiteDatatypes(r.kind).c_str());
  return Status();
}

bool SameElements(const tensor::View& a, const tensor::View& b) {
  if (a.data != b.data) return false;
  for (int d = 0; d < a.shape.dims; ++d) {
    if (a.shape.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

// Checks operands in place: the blocks that contract.h names may coincide; no other block of the input may overlap the
// output.
Status CheckBlocksInPlace(const ViewContext& context, int index, const ViewPair& operand,
                          const tensor::Blocks& blocks) {
  int input_block = 0, output_block = 0;
  const bool may = plan::InPlaceBlocks(context.contract, context.position, &input_block, &output_block) ||
                   context.request.kind == plan::Kind::kReduce;  // zeros, in the place of what was reduced
  const tensor::View from = tensor::BlockView(operand.input, blocks.shape, blocks.input_stride, input_block);
  const tensor::View to = tensor::BlockView(operand.output, blocks.shape, blocks.output_stride, output_block);
  AXCCL_RETURN_IF_ERROR(CheckInPlace(context, index, operand, may ? &from : nullptr, may ? &to : nullptr));
  if (!may || blocks.input_blocks < 2 || !operand.has_output || !tensor::Overlap(operand.input, operand.output) ||
      tensor::CheckView({}, tensor::Role::kOutput, operand.input).ok())
    return Status();
  for (int b = 0; b < blocks.input_blocks; ++b) {
    if (b != input_block && tensor::Overlap(tensor::BlockView(operand.input, blocks.shape, blocks.input_stride, b), to))
      return MakeStatus(Code::kInvalidArgument, "%s: block %d of %s and %s overlap; in place only block %d may",
                        context.request.name, b, context.Name("input", index).c_str(),
                        context.Name("output", index).c_str(), input_block);
  }
  return Status();
}

// The bytes that the options had in their first version.
constexpr size_t kFirstOptions = offsetof(axcclOptions_t, timeout);

Status CheckOptions(const ViewRequest& r) {
  const Options& options = r.options;
  if (options.size < kFirstOptions || options.size > sizeof(axcclOptions_t))
    return InvalidArgument(
        "%s: the options have size %zu, and this library knows %zu to %zu; start from "
        "AXCCL_OPTIONS_INITIALIZER, and use a library as new as the header",
        r.name, options.size, kFirstOptions, sizeof(axcclOptions_t));
  if ((options.flags & ~axcclGroupOrder) != 0)
    return InvalidArgument("%s: the options have unknown flags 0x%x; pass 0 or axcclGroupOrder", r.name, options.flags);
  if (std::isnan(options.scale))
    return InvalidArgument("%s: the options have scale NaN; pass a number, or 0 for none", r.name);
  if (options.scale != 0 && !plan::Reduces(r.kind))
    return InvalidArgument("%s: the options have scale %g, and the call reduces nothing; pass 0", r.name,
                           options.scale);
  const bool message = r.kind == plan::Kind::kSendRecv && r.takes_tag;
  if (options.tag < 0 || (options.tag != 0 && !message))
    return InvalidArgument("%s: the options have tag %d; %s", r.name, options.tag,
                           message ? "pass 0 or a positive number" : "tags go with axcclSend and axcclRecv, pass 0");
  if (options.source != nullptr && !(message && r.input == nullptr))
    return InvalidArgument("%s: the options have a source, which goes with axcclRecv; pass NULL", r.name);
  if (!(options.timeout >= 0))
    return InvalidArgument("%s: the options have timeout %g; pass seconds, or 0 for the communicator's", r.name,
                           options.timeout);
  return Status();
}

Status CheckTypes(const ViewRequest& r, const std::vector<ViewPair>& operands) {
  if (!plan::Reduces(r.kind)) return Status();
  for (size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].type != operands[0].type)
      return MakeStatus(
          Code::kInvalidArgument,
          "%s: operand %zu has datatype %s, operand 0 has %s; operands that one call reduces must have the same",
          r.name, i, DataTypeName(operands[i].type), DataTypeName(operands[0].type));
  }
  return Status();
}

}  // namespace

Status ReadOperands(const ViewContext& context, std::vector<ViewPair>* operands) {
  const ViewRequest& r = context.request;
  if (r.count < 1 || r.count > kMaxOperands)
    return MakeStatus(Code::kInvalidArgument, "%s: argument count is %d; pass the number of operands (1..%d)", r.name,
                      r.count, kMaxOperands);
  AXCCL_RETURN_IF_ERROR(CheckOptions(r));
  if (static_cast<unsigned>(r.root) >= static_cast<unsigned>(context.contract.ranks))
    return MakeStatus(Code::kInvalidArgument, "%s: argument root is %d; pass a rank of the channel's group (0..%d)",
                      r.name, r.root, context.contract.ranks - 1);
  operands->resize(static_cast<size_t>(r.count));
  for (int i = 0; i < r.count; ++i)
    AXCCL_RETURN_IF_ERROR(ReadOperand(context, i, &(*operands)[static_cast<size_t>(i)]));
  return CheckTypes(r, *operands);
}

Status CheckOperand(const ViewContext& context, int index, const ViewPair& operand, tensor::Blocks* blocks) {
  const ViewRequest& r = context.request;
  tensor::Collective collective;
  collective.call = r.name;
  collective.operand = context.Index(index);
  collective.kind = r.kind;
  collective.group_size = context.contract.ranks;
  collective.dim = r.dim;
  collective.concat_dim = r.concat_dim;
  AXCCL_RETURN_IF_ERROR(tensor::FindBlocks(collective, operand.Input(), operand.Output(), blocks));
  int64_t bytes;
  if (__builtin_mul_overflow(blocks->elements, static_cast<int64_t>(ElementSize(operand.type)), &bytes) ||
      __builtin_mul_overflow(bytes, int64_t{context.contract.ranks}, &bytes) || bytes > (int64_t{1} << 56))
    return MakeStatus(Code::kInvalidArgument, "%s: blocks of sizes %s: more bytes than can be addressed on %d ranks",
                      r.name, tensor::Text(blocks->shape).c_str(), context.contract.ranks);
  return Status();
}

Status CheckInPlace(const ViewContext& context, int index, const ViewPair& operand, const tensor::View* from,
                    const tensor::View* to) {
  if (!operand.has_input || !operand.has_output || (from != nullptr && SameElements(*from, *to)) ||
      !tensor::Overlap(operand.input, operand.output))
    return Status();
  const char* call = context.request.name;
  const std::string in = context.Name("input", index), out = context.Name("output", index);
  if (from == nullptr)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s (%p) and %s (%p) overlap; the call cannot run in place, pass buffers that do not overlap",
                      call, in.c_str(), operand.input.data, out.c_str(), operand.output.data);
  return MakeStatus(Code::kInvalidArgument,
                    "%s: %s and %s overlap and are not in place: this rank's part of the input (%p) and of the output "
                    "(%p) must have the same address and strides, or nothing in common",
                    call, in.c_str(), out.c_str(), from->data, to->data);
}

// Compares only pairs whose extents overlap.
Status CheckApart(const ViewContext& context, const std::vector<ViewPair>& operands) {
  struct Place {
    uintptr_t begin, end;
    const tensor::View* view;
    int index;
    bool output;
  };
  std::vector<Place> places;
  auto add = [&](const tensor::View& view, int index, bool output) {
    const tensor::Extent extent = tensor::ByteExtent(view);
    const auto at = reinterpret_cast<uintptr_t>(view.data);
    if (extent.end != 0)
      places.push_back(
          {at + static_cast<uintptr_t>(extent.begin), at + static_cast<uintptr_t>(extent.end), &view, index, output});
  };
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].has_input) add(operands[i].input, static_cast<int>(i), false);
    if (operands[i].has_output) add(operands[i].output, static_cast<int>(i), true);
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  std::vector<const Place*> open;
  for (const Place& place : places) {
    std::erase_if(open, [&](const Place* p) { return p->end <= place.begin; });
    for (const Place* p : open) {
      if (p->index == place.index || (!p->output && !place.output) || !tensor::Overlap(*p->view, *place.view)) continue;
      const Place& out = p->output ? *p : place;
      const Place& other = p->output ? place : *p;
      return MakeStatus(Code::kInvalidArgument, "%s: output %d (%p) and %s %d (%p) overlap; give each its own memory",
                        context.request.name, out.index, out.view->data, other.output ? "output" : "input", other.index,
                        other.view->data);
    }
    open.push_back(&place);
  }
  return Status();
}

Status ConvertBlocks(const ViewContext& context, int index, const ViewPair& operand, const tensor::Blocks& blocks,
                     exec::ViewOperand* to) {
  *to = Convert(operand);
  to->form = {blocks.shape, blocks.split, blocks.concat};
  to->block_bytes = static_cast<uint64_t>(blocks.elements) * ElementSize(operand.type);
  return LowerToBytes(context, index, to);
}

exec::ViewOperand Convert(const ViewPair& operand) {
  exec::ViewOperand to;
  to.type = operand.type;
  to.input = operand.input.data;
  to.output = operand.output.data;
  std::copy_n(operand.input.strides, tensor::kMaxDims, to.input_strides);
  std::copy_n(operand.output.strides, tensor::kMaxDims, to.output_strides);
  return to;
}

Status FindOutsideOperands(const ViewRequest& r, exec::ViewList* list) {
  if (r.output == nullptr) return Status();
  ViewRequest outputs = r;
  outputs.root = 0;  // of a group that this rank is not in
  const ViewContext context{outputs, {plan::Kind::kSendRecv, 2, 0}, 1};
  std::vector<ViewPair> operands;
  AXCCL_RETURN_IF_ERROR(ReadOperands(context, &operands));
  for (const ViewPair& operand : operands) {
    exec::ViewOperand& to = list->operands.emplace_back(Convert(operand));
    to.form.shape = operand.output.shape;
    to.block_bytes = static_cast<uint64_t>(tensor::Elements(to.form.shape)) * ElementSize(operand.type);
  }
  return r.count > 1 ? CheckApart(context, operands) : Status();
}

namespace {

exec::Call MakeCall(const ViewRequest& r, exec::ViewList list) {
  exec::Call call;
  call.kind = r.kind;
  call.root = r.root;
  call.count = list.uneven ? 0 : list.BlockCount();
  call.type = list.CommonType();
  call.input = list.operands[0].input;
  call.output = list.operands[0].output;
  list.scale = r.options.scale;
  list.timeout_seconds = r.options.timeout;
  call.group_order = (r.options.flags & axcclGroupOrder) != 0;
  call.views = std::make_shared<const exec::ViewList>(std::move(list));
  return call;
}

// The most words that a rank announces for an operand.
uint64_t WordsOf(const exec::ViewOperand& operand) {
  const exec::Pieces& pieces = operand.pieces;
  const size_t blocks = std::max(pieces.input.size(), pieces.output.size());
  return 4 + 2 * tensor::kMaxDims + (blocks == 0 ? 0 : 2 + 4 * blocks + pieces.targets.size());
}

}  // namespace

Status MakeCalls(const ViewRequest& r, exec::ViewList list, std::vector<exec::Call>* calls) {
  const uint64_t room = r.kind == plan::Kind::kSendRecv ? exec::kPairAnnouncementWords : exec::kAnnouncementWords;
  if (list.uneven) {
    uint64_t words = 0;
    for (const exec::ViewOperand& operand : list.operands) words += WordsOf(operand);
    if (words > room)
      return MakeStatus(
          Code::kInvalidArgument,
          "%s: argument count is %d; with the numbers of rows of every rank at most about %llu operands fit in "
          "one call, make several",
          r.name, r.count, static_cast<unsigned long long>(room / (words / static_cast<uint64_t>(r.count))));
    calls->push_back(MakeCall(r, std::move(list)));
    return Status();
  }
  const uint64_t cap = r.options.bucket_bytes != 0 ? r.options.bucket_bytes : UINT64_MAX;
  exec::ViewList empty;
  empty.zeros = list.zeros;
  empty.pairs = list.pairs;
  empty.slices = list.slices;
  exec::ViewList bucket = empty;
  uint64_t bytes = 0, words = 0;
  for (exec::ViewOperand& operand : list.operands) {
    const uint64_t more = WordsOf(operand);
    if (!bucket.operands.empty() && (operand.block_bytes > cap - std::min(bytes, cap) || words + more > room)) {
      calls->push_back(MakeCall(r, std::exchange(bucket, empty)));
      bytes = words = 0;
    }
    bytes += operand.block_bytes;
    words += more;
    bucket.operands.push_back(std::move(operand));
  }
  calls->push_back(MakeCall(r, std::move(bucket)));
  return Status();
}

Status LowerToBytes(const ViewContext& context, int index, exec::ViewOperand* operand) {
  const size_t size = ElementSize(operand->type);
  if (context.request.count == 1 || exec::kOperandAlignment % size == 0) return Status();
  tensor::Shape& shape = operand->form.shape;
  if (plan::Reduces(context.request.kind))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: operand %d of a list has elements of %zu bytes, which are reduced one operand a call only",
                      context.request.name, index, size);
  if (shape.dims == tensor::kMaxDims)
    return MakeStatus(
        Code::kInvalidArgument,
        "%s: operand %d of a list has elements of %zu bytes and %d dimensions; with such elements it may have "
        "at most %d",
        context.request.name, index, size, shape.dims, tensor::kMaxDims - 1);
  for (int d = 0; d < shape.dims; ++d) {
    operand->input_strides[d] *= static_cast<int64_t>(size);
    operand->output_strides[d] *= static_cast<int64_t>(size);
  }
  operand->input_strides[shape.dims] = operand->output_strides[shape.dims] = 1;
  shape.sizes[shape.dims++] = static_cast<int64_t>(size);
  operand->type = DataType::kUint8;
  return Status();
}

Status FindOperands(const ViewRequest& r, int group_size, int position, exec::ViewList* list) {
  const ViewContext context{r, {r.kind, group_size, r.root}, position};
  std::vector<ViewPair> operands;
  AXCCL_RETURN_IF_ERROR(ReadOperands(context, &operands));
  for (int i = 0; i < r.count; ++i) {
    const ViewPair& operand = operands[static_cast<size_t>(i)];
    tensor::Blocks blocks;
    AXCCL_RETURN_IF_ERROR(CheckOperand(context, i, operand, &blocks));
    AXCCL_RETURN_IF_ERROR(CheckBlocksInPlace(context, i, operand, blocks));
    AXCCL_RETURN_IF_ERROR(ConvertBlocks(context, i, operand, blocks, &list->operands.emplace_back()));
  }
  list->zeros = r.kind == plan::Kind::kReduce;
  return r.count > 1 ? CheckApart(context, operands) : Status();
}

Status ResolveOnViews(const ViewRequest& r, comm::CommHandle* comm, ncclRedOp_t op, exec::Call* call) {
  if (plan::Reduces(r.kind)) AXCCL_RETURN_IF_ERROR(ResolveReduction(comm, r.name, op, call));
  if (call->views->scale == 0 || (static_cast<unsigned>(op) == ncclSum && IsFloat(ScalarType(call->type))))
    return Status();
  return InvalidArgument(
      "%s: the options have scale %g, which goes with ncclSum of floats and complex numbers (this is %s); pass 0",
      r.name, call->views->scale, exec::DescribeCall(*call).c_str());
}

}  // namespace axccl::api
