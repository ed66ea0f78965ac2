#include "src/api/operands.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "src/plan/view.h"

namespace axccl::api {
namespace {

// More is a mistake; it would also take long to check.
constexpr int kMaxOperands = 1 << 20;

// One rank's views of one operand, as far as it has them.
struct Operand {
  bool has_input = false, has_output = false;
  plan::View input, output;
  DataType type = DataType::kInt8;
  plan::Blocks blocks;

  const plan::View* Input() const { return has_input ? &input : nullptr; }
  const plan::View* Output() const { return has_output ? &output : nullptr; }
};

// What checks need to know of the call.
struct Context {
  const ViewRequest& request;
  plan::Contract contract;
  int position;

  // How messages call an operand, -1 standing for the only one.
  int Index(int index) const { return request.count == 1 ? -1 : index; }
  std::string Name(const char* side, int index) const {
    return request.count == 1 ? side : std::string(side) + " " + std::to_string(index);
  }
};

// C lets any number stand in an enumeration, C++ does not: it must not be read as one before it is checked.
unsigned DatatypeOf(const axcclView_t& view) {
  unsigned number;
  static_assert(sizeof(number) == sizeof(view.datatype));
  std::memcpy(&number, &view.datatype, sizeof(number));
  return number;
}

Status ReadView(const Context& context, const char* side, int index, const axcclView_t& from, plan::View* view) {
  const char* call = context.request.name;
  if (from.size != sizeof(axcclView_t))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s is not initialised (its size is %zu); start from AXCCL_VIEW_INITIALIZER", call,
                      context.Name(side, index).c_str(), from.size);
  if (DatatypeOf(from) >= ncclNumTypes)
    return MakeStatus(Code::kInvalidArgument, "%s: %s has datatype %u; pass one of ncclDataType_t (0..%d)", call,
                      context.Name(side, index).c_str(), DatatypeOf(from), ncclNumTypes - 1);
  view->data = from.data;
  view->element_size = static_cast<uint32_t>(ElementSize(static_cast<DataType>(from.datatype)));
  view->shape.dims = from.num_dims;
  if (from.num_dims > 0 && from.num_dims <= plan::kMaxDims) {
    if (from.sizes == nullptr)
      return MakeStatus(Code::kInvalidArgument,
                        "%s: %s has %d dimensions and no sizes (a null pointer); give it one for each", call,
                        context.Name(side, index).c_str(), from.num_dims);
    std::copy_n(from.sizes, from.num_dims, view->shape.sizes);
    if (from.strides != nullptr) {
      std::copy_n(from.strides, from.num_dims, view->strides);
    } else {
      *view = plan::DenseView(view->data, view->element_size, view->shape);
    }
  }
  const plan::Role role = side[0] == 'i' ? plan::Role::kInput : plan::Role::kOutput;
  return plan::CheckView({call, side, context.Index(index)}, role, *view);
}

Status ReadOperand(const Context& context, int index, Operand* operand) {
  const ViewRequest& r = context.request;
  operand->has_input = plan::InputBlocks(context.contract, context.position) != 0;
  operand->has_output = plan::OutputBlocks(context.contract, context.position) != 0;
  for (const bool is_input : {true, false}) {
    if (!(is_input ? operand->has_input : operand->has_output)) continue;
    const char* side = is_input ? "input" : "output";
    const axcclView_t* from = is_input ? r.input : r.output;
    if (from == nullptr)
      return MakeStatus(Code::kInvalidArgument, "%s: the %s is missing (a null pointer); rank %d needs one", r.name,
                        side, context.position);
    AXCCL_RETURN_IF_ERROR(ReadView(context, side, index, from[index], is_input ? &operand->input : &operand->output));
    operand->type = static_cast<DataType>(from[index].datatype);
  }
  if (operand->has_input && operand->has_output && r.input[index].datatype != r.output[index].datatype)
    return MakeStatus(
        Code::kInvalidArgument, "%s: %s has datatype %s, %s has %s; they must agree", r.name,
        context.Name("output", index).c_str(), DataTypeName(static_cast<DataType>(r.output[index].datatype)),
        context.Name("input", index).c_str(), DataTypeName(static_cast<DataType>(r.input[index].datatype)));
  return Status();
}

bool SameElements(const plan::View& a, const plan::View& b) {
  if (a.data != b.data) return false;
  for (int d = 0; d < a.shape.dims; ++d) {
    if (a.shape.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

// Input and output of an operand may be apart, or in place as contract.h has it; then no other block of the input may
// lie under the output.
Status CheckInPlace(const Context& context, int index, const Operand& operand) {
  const char* call = context.request.name;
  const plan::View& input = operand.input;
  const plan::View& output = operand.output;
  const plan::Blocks& blocks = operand.blocks;
  if (!operand.has_input || !operand.has_output || !plan::Overlap(input, output)) return Status();
  const std::string in = context.Name("input", index), out = context.Name("output", index);
  int input_block = 0, output_block = 0;
  if (!plan::InPlaceBlocks(context.contract, context.position, &input_block, &output_block))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s (%p) and %s (%p) overlap; the call has no form in place, give it memory apart", call,
                      in.c_str(), input.data, out.c_str(), output.data);
  const plan::View from = plan::BlockView(input, blocks.shape, blocks.input_stride, input_block);
  const plan::View to = plan::BlockView(output, blocks.shape, blocks.output_stride, output_block);
  if (!SameElements(from, to))
    return MakeStatus(
        Code::kInvalidArgument,
        "%s: %s and %s overlap and are not in place: block %d of the input (%p) and block %d of the output (%p) must "
        "have the same address and strides, or nothing in common",
        call, in.c_str(), out.c_str(), input_block, from.data, output_block, to.data);
  if (blocks.input_blocks < 2 || plan::CheckView({}, plan::Role::kOutput, input).ok()) return Status();
  for (int b = 0; b < blocks.input_blocks; ++b) {
    if (b != input_block && plan::Overlap(plan::BlockView(input, blocks.shape, blocks.input_stride, b), to))
      return MakeStatus(Code::kInvalidArgument, "%s: block %d of %s and %s overlap; in place only block %d may", call,
                        b, in.c_str(), out.c_str(), input_block);
  }
  return Status();
}

Status CheckOperand(const Context& context, int index, Operand* operand) {
  const ViewRequest& r = context.request;
  plan::Collective collective;
  collective.call = r.name;
  collective.operand = context.Index(index);
  collective.kind = r.kind;
  collective.group_size = context.contract.ranks;
  collective.dim = r.dim;
  collective.concat_dim = r.concat_dim;
  AXCCL_RETURN_IF_ERROR(plan::FindBlocks(collective, operand->Input(), operand->Output(), &operand->blocks));
  int64_t bytes;
  if (__builtin_mul_overflow(operand->blocks.elements, static_cast<int64_t>(ElementSize(operand->type)), &bytes) ||
      __builtin_mul_overflow(bytes, int64_t{context.contract.ranks}, &bytes) || bytes > (int64_t{1} << 56))
    return MakeStatus(Code::kInvalidArgument, "%s: blocks of sizes %s: more bytes than can be addressed on %d ranks",
                      r.name, plan::Text(operand->blocks.shape).c_str(), context.contract.ranks);
  return CheckInPlace(context, index, *operand);
}

// No output of an operand may lie over anything of another one. Looks only at pairs whose extents overlap.
Status CheckApart(const Context& context, const std::vector<Operand>& operands) {
  struct Place {
    uintptr_t begin, end;
    const plan::View* view;
    int index;
    bool output;
  };
  std::vector<Place> places;
  auto add = [&](const plan::View& view, int index, bool output) {
    const plan::Extent extent = plan::ByteExtent(view);
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
      if (p->index == place.index || (!p->output && !place.output) || !plan::Overlap(*p->view, *place.view)) continue;
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

exec::ViewOperand Convert(const Operand& operand) {
  exec::ViewOperand to;
  to.form = {operand.blocks.shape, operand.blocks.split, operand.blocks.concat};
  to.type = operand.type;
  to.block_bytes = static_cast<uint64_t>(operand.blocks.elements) * ElementSize(operand.type);
  to.input = operand.input.data;
  to.output = operand.output.data;
  std::copy_n(operand.input.strides, plan::kMaxDims, to.input_strides);
  std::copy_n(operand.output.strides, plan::kMaxDims, to.output_strides);
  return to;
}

Status CheckOptions(const ViewRequest& r) {
  if (r.options == nullptr) return Status();
  if (r.options->size != sizeof(axcclOptions_t))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: the options are not initialised (their size is %zu); start from AXCCL_OPTIONS_INITIALIZER",
                      r.name, r.options->size);
  if (r.options->flags != 0)
    return MakeStatus(Code::kInvalidArgument, "%s: the options have unknown flags 0x%x; pass 0", r.name,
                      r.options->flags);
  return Status();
}

Status CheckTypes(const ViewRequest& r, const exec::ViewList& list) {
  if (!plan::Reduces(r.kind)) return Status();
  for (size_t i = 1; i < list.operands.size(); ++i) {
    if (list.operands[i].type != list.operands[0].type)
      return MakeStatus(Code::kInvalidArgument,
                        "%s: operand %zu has datatype %s, operand 0 has %s; what is reduced in one call must have one",
                        r.name, i, DataTypeName(list.operands[i].type), DataTypeName(list.operands[0].type));
  }
  return Status();
}

}  // namespace

Status FindOperands(const ViewRequest& r, int group_size, int position, exec::ViewList* list) {
  if (r.count < 1 || r.count > kMaxOperands)
    return MakeStatus(Code::kInvalidArgument, "%s: argument count is %d; pass the number of operands (1..%d)", r.name,
                      r.count, kMaxOperands);
  AXCCL_RETURN_IF_ERROR(CheckOptions(r));
  if (static_cast<unsigned>(r.root) >= static_cast<unsigned>(group_size))
    return MakeStatus(Code::kInvalidArgument, "%s: argument root is %d; pass a rank of the communicator (0..%d)",
                      r.name, r.root, group_size - 1);
  const Context context{r, {r.kind, group_size, r.root}, position};
  std::vector<Operand> operands(static_cast<size_t>(r.count));
  for (int i = 0; i < r.count; ++i) {
    Operand& operand = operands[static_cast<size_t>(i)];
    AXCCL_RETURN_IF_ERROR(ReadOperand(context, i, &operand));
    AXCCL_RETURN_IF_ERROR(CheckOperand(context, i, &operand));
  }
  if (r.count > 1) AXCCL_RETURN_IF_ERROR(CheckApart(context, operands));
  for (const Operand& operand : operands) list->operands.push_back(Convert(operand));
  return CheckTypes(r, *list);
}

}  // namespace axccl::api
