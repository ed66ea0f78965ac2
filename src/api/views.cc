// axcclAllGather and its siblings: collectives on tensor views, from arguments to calls.
#include <algorithm>
#include <memory>
#include <string>

#include "axccl/axccl.h"
#include "src/api/calls.h"
#include "src/api/context.h"
#include "src/api/export.h"
#include "src/base/log.h"
#include "src/plan/view.h"

namespace axccl::api {
namespace {

using plan::Kind;

struct Request {
  const char* name;
  Kind kind;
  int count;
  const axcclView_t* input;
  const axcclView_t* output;
  const axcclOptions_t* options;
  int dim = 0;  // as plan::Collective has it
  int concat_dim = 0;
  int root = 0;
};

// One rank's operands, as far as it has them.
struct Operands {
  bool has_input = false, has_output = false;
  plan::View input, output;
  DataType type = DataType::kInt8;
  plan::Blocks blocks;

  const plan::View* Input() const { return has_input ? &input : nullptr; }
  const plan::View* Output() const { return has_output ? &output : nullptr; }
};

Status ReadView(const char* call, const char* name, plan::Role role, const axcclView_t& from, plan::View* view,
                DataType* type) {
  if (from.size != sizeof(axcclView_t))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s is not initialised (its size is %zu); start from AXCCL_VIEW_INITIALIZER", call, name,
                      from.size);
  if (!FindDatatype(NumberOf(from.datatype), type))
    return MakeStatus(Code::kInvalidArgument, "%s: %s has datatype %u; pass " AXCCL_DATATYPES, call, name,
                      NumberOf(from.datatype));
  view->data = from.data;
  view->element_size = static_cast<uint32_t>(ElementSize(*type));
  view->shape.dims = from.num_dims;
  if (from.num_dims > 0 && from.num_dims <= plan::kMaxDims) {
    if (from.sizes == nullptr)
      return MakeStatus(Code::kInvalidArgument,
                        "%s: %s has %d dimensions and no sizes (a null pointer); give it one for each", call, name,
                        from.num_dims);
    std::copy_n(from.sizes, from.num_dims, view->shape.sizes);
    if (from.strides != nullptr) {
      std::copy_n(from.strides, from.num_dims, view->strides);
    } else {
      *view = plan::DenseView(view->data, view->element_size, view->shape);
    }
  }
  return plan::CheckView({call, name}, role, *view);
}

// Operands that the rank does not have are not looked at.
Status ReadOperands(const Request& r, const plan::Contract& contract, int rank, Operands* operands) {
  operands->has_input = plan::InputBlocks(contract, rank) != 0;
  operands->has_output = plan::OutputBlocks(contract, rank) != 0;
  DataType types[2] = {};  // of output and input
  for (const bool is_input : {true, false}) {
    if (!(is_input ? operands->has_input : operands->has_output)) continue;
    const char* name = is_input ? "input" : "output";
    const axcclView_t* from = is_input ? r.input : r.output;
    if (from == nullptr)
      return MakeStatus(Code::kInvalidArgument, "%s: the %s is missing (a null pointer); rank %d needs one", r.name,
                        name, rank);
    AXCCL_RETURN_IF_ERROR(ReadView(r.name, name, is_input ? plan::Role::kInput : plan::Role::kOutput, *from,
                                   is_input ? &operands->input : &operands->output, &types[is_input]));
    operands->type = types[is_input];
  }
  if (operands->has_input && operands->has_output && types[0] != types[1])
    return MakeStatus(Code::kInvalidArgument, "%s: the output has datatype %s, the input %s; they must agree", r.name,
                      DataTypeName(types[0]), DataTypeName(types[1]));
  return Status();
}

bool SameElements(const plan::View& a, const plan::View& b) {
  if (a.data != b.data) return false;
  for (int d = 0; d < a.shape.dims; ++d) {
    if (a.shape.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  }
  return true;
}

// Input and output may be apart, or in place as contract.h has it; then no other block of the input may lie under the
// output.
Status CheckOverlap(const Request& r, const plan::Contract& contract, int rank, const Operands& operands) {
  const plan::View& input = operands.input;
  const plan::View& output = operands.output;
  const plan::Blocks& blocks = operands.blocks;
  if (!operands.has_input || !operands.has_output || !plan::Overlap(input, output)) return Status();
  int input_block = 0, output_block = 0;
  if (!plan::InPlaceBlocks(contract, rank, &input_block, &output_block))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: input (%p) and output (%p) overlap; the call has no form in place, give it "
                      "memory apart",
                      r.name, input.data, output.data);
  const plan::View from = plan::BlockView(input, blocks.shape, blocks.input_stride, input_block);
  const plan::View to = plan::BlockView(output, blocks.shape, blocks.output_stride, output_block);
  if (!SameElements(from, to))
    return MakeStatus(
        Code::kInvalidArgument,
        "%s: input and output overlap and are not in place: block %d of the input (%p) and block %d of the output "
        "(%p) must have the same address and strides, or nothing in common",
        r.name, input_block, from.data, output_block, to.data);
  if (blocks.input_blocks < 2 || plan::CheckView({}, plan::Role::kOutput, input).ok()) return Status();
  for (int b = 0; b < blocks.input_blocks; ++b) {
    if (b != input_block && plan::Overlap(plan::BlockView(input, blocks.shape, blocks.input_stride, b), to))
      return MakeStatus(Code::kInvalidArgument,
                        "%s: block %d of the input and the output overlap; in place only block %d may", r.name, b,
                        input_block);
  }
  return Status();
}

Status FindOperands(const Request& r, const comm::Identity& identity, Operands* operands) {
  if (static_cast<unsigned>(r.root) >= static_cast<unsigned>(identity.ranks))
    return MakeStatus(Code::kInvalidArgument, "%s: argument root is %d; pass a rank of the communicator (0..%d)",
                      r.name, r.root, identity.ranks - 1);
  const plan::Contract contract{r.kind, identity.ranks, r.root};
  AXCCL_RETURN_IF_ERROR(ReadOperands(r, contract, identity.rank, operands));
  plan::Collective collective;
  collective.call = r.name;
  collective.kind = r.kind;
  collective.group_size = identity.ranks;
  collective.dim = r.dim;
  collective.concat_dim = r.concat_dim;
  AXCCL_RETURN_IF_ERROR(plan::FindBlocks(collective, operands->Input(), operands->Output(), &operands->blocks));
  int64_t bytes;
  if (__builtin_mul_overflow(operands->blocks.elements, static_cast<int64_t>(ElementSize(operands->type)), &bytes) ||
      __builtin_mul_overflow(bytes, int64_t{identity.ranks}, &bytes) || bytes > (int64_t{1} << 56))
    return MakeStatus(Code::kInvalidArgument, "%s: blocks of sizes %s: more bytes than can be addressed on %d ranks",
                      r.name, plan::Text(operands->blocks.shape).c_str(), identity.ranks);
  return CheckOverlap(r, contract, identity.rank, *operands);
}

exec::Call MakeCall(const Request& r, const Operands& operands) {
  exec::Call call;
  call.kind = r.kind;
  call.root = r.root;
  call.count = static_cast<uint64_t>(operands.blocks.elements);
  call.type = operands.type;
  call.input = operands.input.data;
  call.output = operands.output.data;
  auto layout = std::make_shared<exec::ViewLayout>();
  layout->form = {operands.blocks.shape, operands.blocks.split, operands.blocks.concat};
  std::copy_n(operands.input.strides, plan::kMaxDims, layout->input_strides);
  std::copy_n(operands.output.strides, plan::kMaxDims, layout->output_strides);
  call.view = std::move(layout);
  return call;
}

Status CheckRequest(const Request& r) {
  if (r.count != 1)
    return MakeStatus(Code::kInvalidArgument, "%s: argument count is %d; this version takes one operand a call", r.name,
                      r.count);
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

ncclResult_t OnViews(const Request& r, ncclRedOp_t op, axcclChannel_t handle, cudaStream_t stream_handle) {
  ncclResult_t result = ncclSuccess;
  const CommPin comm = PinComm(reinterpret_cast<ncclComm_t>(handle), r.name, &result);
  if (!comm) return result;
  if (const Status status = CheckRequest(r); !status.ok()) return Report(status);
  if (!comm->ready() || comm->revoked() || comm->core()->failed()) return Report(comm->Ready(r.name).status());
  const comm::Identity& identity = comm->core()->identity();
  Operands operands;
  if (const Status status = FindOperands(r, identity, &operands); !status.ok()) return Report(status);
  exec::Call call = MakeCall(r, operands);
  if (plan::Reduces(r.kind) && !ResolveReduction(comm.get(), r.name, op, &call, &result)) return result;
  device::host::Stream* stream = nullptr;
  if (!FindStream(stream_handle, r.name, &stream, &result)) return result;
  AXCCL_INFO(kColl, "%s: opCount %llx input %p output %p %s comm %p [nranks=%d] stream %p", r.name + 5,
             static_cast<unsigned long long>(comm->core()->operations()), call.input, call.output,
             exec::DescribeCall(call.Packed(), call.view->form).c_str(), static_cast<void*>(handle), identity.ranks,
             static_cast<void*>(stream_handle));
  Enqueue(comm.get(), comm->core()->channel(), call, stream);
  return ncclSuccess;
}

}  // namespace
}  // namespace axccl::api

using axccl::api::kNoReduction;
using axccl::api::OnViews;
using axccl::api::Request;
using axccl::plan::Kind;

AXCCL_API ncclResult_t axcclAllGather(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(Request{"axcclAllGather", Kind::kAllGather, count, in, out, options, dim}, kNoReduction, channel,
                 stream);
}

AXCCL_API ncclResult_t axcclReduceScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim,
                                          ncclRedOp_t op, axcclChannel_t channel, const axcclOptions_t* options,
                                          cudaStream_t stream) {
  return OnViews(Request{"axcclReduceScatter", Kind::kReduceScatter, count, in, out, options, dim}, op, channel,
                 stream);
}

AXCCL_API ncclResult_t axcclAllReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(Request{"axcclAllReduce", Kind::kAllReduce, count, in, out, options}, op, channel, stream);
}

AXCCL_API ncclResult_t axcclAllToAll(int count, const axcclView_t* in, const axcclView_t* out, int split_dim,
                                     int concat_dim, axcclChannel_t channel, const axcclOptions_t* options,
                                     cudaStream_t stream) {
  return OnViews(Request{"axcclAllToAll", Kind::kAllToAll, count, in, out, options, split_dim, concat_dim},
                 kNoReduction, channel, stream);
}

AXCCL_API ncclResult_t axcclGather(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                   axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(Request{"axcclGather", Kind::kGather, count, in, out, options, dim, 0, root}, kNoReduction, channel,
                 stream);
}

AXCCL_API ncclResult_t axcclScatter(int count, const axcclView_t* in, const axcclView_t* out, int dim, int root,
                                    axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(Request{"axcclScatter", Kind::kScatter, count, in, out, options, dim, 0, root}, kNoReduction, channel,
                 stream);
}

AXCCL_API ncclResult_t axcclBroadcast(int count, const axcclView_t* in, const axcclView_t* out, int root,
                                      axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(Request{"axcclBroadcast", Kind::kBroadcast, count, in, out, options, 0, 0, root}, kNoReduction,
                 channel, stream);
}

AXCCL_API ncclResult_t axcclReduce(int count, const axcclView_t* in, const axcclView_t* out, ncclRedOp_t op, int root,
                                   axcclChannel_t channel, const axcclOptions_t* options, cudaStream_t stream) {
  return OnViews(Request{"axcclReduce", Kind::kReduce, count, in, out, options, 0, 0, root}, op, channel, stream);
}
