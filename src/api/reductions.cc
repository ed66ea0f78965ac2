// Operators: the meaning of their numbers, the types that have them, and the creation of new ones.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "axccl/axccl.h"
#include "src/api/calls.h"
#include "src/api/context.h"
#include "src/api/export.h"

namespace axccl::api {
namespace {

// An operator with a fixed number.
struct BuiltIn {
  unsigned number;
  Combine combine;
  Scaling scaling;
  const char* name;
};

constexpr BuiltIn kBuiltIns[] = {
    {ncclSum, Combine::kSum, Scaling::kNone, "sum"},
    {ncclProd, Combine::kProd, Scaling::kNone, "prod"},
    {ncclMax, Combine::kMax, Scaling::kNone, "max"},
    {ncclMin, Combine::kMin, Scaling::kNone, "min"},
    {ncclAvg, Combine::kSum, Scaling::kAverage, "avg"},
    {axcclAnd, Combine::kAnd, Scaling::kNone, "and"},
    {axcclOr, Combine::kOr, Scaling::kNone, "or"},
    {axcclXor, Combine::kXor, Scaling::kNone, "xor"},
    {axcclLogicalAnd, Combine::kLogicalAnd, Scaling::kNone, "logical and"},
    {axcclLogicalOr, Combine::kLogicalOr, Scaling::kNone, "logical or"},
};

bool Has(DataType type, const BuiltIn& op) {
  return Combines(type, op.combine) && (op.scaling == Scaling::kNone || type != DataType::kBool);
}

std::string OperatorsOf(DataType type) {
  if (IsOpaque(type)) return "opaque elements can be moved, or reduced with an operator of axcclRedOpCreateCallback";
  std::string text = "it has ";
  const char* separator = "";
  for (const BuiltIn& op : kBuiltIns) {
    if (!Has(type, op)) continue;
    text += separator;
    text += op.name;
    separator = ", ";
  }
  return text + " and those of axcclRedOpCreateCallback";
}

// The index in the communicator's table of operators; -1: not an operator of this communicator.
int IndexOf(const comm::CommHandle& comm, ncclRedOp_t op) {
  const unsigned number = static_cast<unsigned>(op), code = number - ncclNumOps;
  return number >= ncclNumOps && code >> 12 == comm.salt() ? static_cast<int>(code & 0xfff) : -1;
}

// Puts an operator into the communicator's table.
Status Add(comm::CommHandle* comm, const char* name, comm::Reduction reduction, ncclRedOp_t* op) {
  const int index = comm->AddReduction(std::move(reduction));
  if (index < 0)
    return MakeStatus(Code::kInvalidUsage, "%s: the communicator has %zu operators alive; destroy some", name,
                      comm::kMaxReductions);
  *op = static_cast<ncclRedOp_t>(ncclNumOps + (static_cast<int>(comm->salt()) << 12 | index));
  return Status();
}

Status ReadDatatype(const char* call, ncclDataType_t datatype, DataType* type) {
  if (FindDatatype(static_cast<unsigned>(datatype), type)) return Status();
  return InvalidArgument("%s: argument datatype is %d; pass " AXCCL_DATATYPES, call, static_cast<int>(datatype));
}

}  // namespace

bool IsBuiltIn(ncclRedOp_t op) {
  return std::any_of(std::begin(kBuiltIns), std::end(kBuiltIns),
                     [op](const BuiltIn& one) { return one.number == static_cast<unsigned>(op); });
}

Status ResolveReduction(comm::CommHandle* comm, const char* name, ncclRedOp_t op, exec::Call* call) {
  for (const BuiltIn& built_in : kBuiltIns) {
    if (static_cast<unsigned>(op) != built_in.number) continue;
    call->combine = built_in.combine;
    call->scaling = built_in.scaling;
    if (Has(call->type, built_in)) return Status();
    return InvalidArgument("%s: argument op is %s, which datatype %s does not have; %s", name, built_in.name,
                           DataTypeName(call->type), OperatorsOf(call->type).c_str());
  }
  comm::Reduction own;
  if (!comm->FindReduction(IndexOf(*comm, op), &own))
    return InvalidArgument(
        "%s: argument op is %d: neither built in (0..%d, and those of axccl/types.h) nor a live operator of this "
        "communicator",
        name, static_cast<int>(op), ncclNumOps - 1);
  if (own.type != call->type)
    return InvalidArgument("%s: argument op was made for datatype %s, the call has %s", name, DataTypeName(own.type),
                           DataTypeName(call->type));
  if (own.callback != nullptr) {
    call->combine = Combine::kCallback;
    call->callback = std::move(own.callback);
    return Status();
  }
  call->combine = Combine::kSum;
  call->scaling = Scaling::kPreMultiply;
  call->scalar_pointer = own.pointer;
  call->scalar_bytes = own.bytes;
  return Status();
}

}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                                 ncclScalarResidence_t residence, ncclComm_t handle) {
  return Entry("ncclRedOpCreatePreMulSum", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (op == nullptr) return InvalidArgument("%s: argument op is NULL; pass where to put the operator", call);
    if (scalar == nullptr) return InvalidArgument("%s: argument scalar is NULL; pass the address of the factor", call);
    comm::Reduction own;
    AXCCL_RETURN_IF_ERROR(ReadDatatype(call, datatype, &own.type));
    if (own.type == DataType::kBool || IsComplex(own.type) || IsOpaque(own.type))
      return InvalidArgument("%s: argument datatype is %s; factors are integers and floats", call,
                             DataTypeName(own.type));
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
      return InvalidArgument("%s: argument residence is %d; pass ncclScalarDevice or ncclScalarHostImmediate", call,
                             static_cast<int>(residence));
    if (residence == ncclScalarHostImmediate) {
      std::memcpy(&own.bytes, scalar, ElementSize(own.type));
    } else {
      // While the communicator is being made, there is no device to ask.
      if (comm->ready())
        AXCCL_RETURN_IF_ERROR(Prefixed(call, comm->core()->device().CheckReadable(scalar, "argument scalar")));
      own.pointer = scalar;
    }
    return Add(comm.get(), call, std::move(own), op);
  });
}
AXCCL_TWIN(RedOpCreatePreMulSum)

AXCCL_API ncclResult_t axcclRedOpCreateCallback(ncclRedOp_t* op, axcclReduceFn_t fn, void* context,
                                                ncclDataType_t datatype, ncclComm_t handle) {
  return Entry("axcclRedOpCreateCallback", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    if (op == nullptr) return InvalidArgument("%s: argument op is NULL; pass where to put the operator", call);
    if (fn == nullptr) return InvalidArgument("%s: argument fn is NULL; pass a function", call);
    comm::Reduction own;
    AXCCL_RETURN_IF_ERROR(ReadDatatype(call, datatype, &own.type));
    own.callback = std::make_shared<exec::Callback>(exec::Callback{fn, context});
    return Add(comm.get(), call, std::move(own), op);
  });
}

AXCCL_API ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
  return Entry("ncclRedOpDestroy", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const CommPin comm, PinComm(handle, call));
    return Prefixed(call, comm->RemoveReduction(IndexOf(*comm, op)));
  });
}
AXCCL_TWIN(RedOpDestroy)
