#include "tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <iterator>
#include <memory>

namespace axccl::torch {

void Check(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const text = ncclGetLastError(comm);
  // Programs look for PyTorch's words in the texts of timeouts.
  const std::string kind = result == ncclTimeout ? "Timed out waiting" : ncclGetErrorString(result);
  C10_THROW_ERROR(DistBackendError, std::string("axccl: ") + call + ": " + kind +
                                        (text != nullptr && *text != 0 ? std::string(": ") + text : ""));
}

ncclDataType_t TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kChar:
      return ncclInt8;
    case at::kByte:
      return ncclUint8;
    case at::kShort:
      return axcclInt16;
    case at::kUInt16:
      return axcclUint16;
    case at::kInt:
      return ncclInt32;
    case at::kUInt32:
      return ncclUint32;
    case at::kLong:
      return ncclInt64;
    case at::kUInt64:
      return ncclUint64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kBool:
      return axcclBool;
    case at::kComplexFloat:
      return axcclComplex64;
    case at::kComplexDouble:
      return axcclComplex128;
    case at::kFloat8_e4m3fn:
      return ncclFloat8e4m3;
    case at::kFloat8_e5m2:
      return ncclFloat8e5m2;
    default:
      return axcclBits(tensor.element_size());
  }
}

void CheckTensor(const char* call, const at::Tensor& tensor) {
  TORCH_CHECK_TYPE(tensor.layout() == at::kStrided, "axccl: ", call, ": the tensor is ", tensor.layout(),
                   "; pass a dense one (to_dense())");
  TORCH_CHECK_TYPE(tensor.device().is_cpu(), "axccl: ", call, ": the tensor is on ", tensor.device(),
                   ", and this backend serves the CPU; pass a tensor of the CPU, or make the group with "
                   "backend=\"cpu:axccl,cuda:nccl\"");
}

at::Tensor Operands::Hold(const at::Tensor& tensor, bool copies_in, bool copies_out) {
  CheckTensor(call_, tensor);
  const bool lazy = tensor.is_conj() || tensor.is_neg();
  TORCH_CHECK_VALUE(
      !copies_out || !lazy, "axccl: ", call_,
      ": the output is a lazy conjugate or negative; pass a tensor of its own (resolve_conj(), resolve_neg())");
  if (tensor.is_contiguous() && !lazy) return keep.emplace_back(tensor);
  const at::AutoDispatchBelowADInplaceOrView memory_alone;
  at::Tensor dense = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
  if (copies_in) dense.copy_(tensor);
  if (copies_out) copies.emplace_back(tensor, dense);
  return keep.emplace_back(std::move(dense));
}

at::Tensor Operands::Input(const at::Tensor& tensor) { return Hold(tensor, true, false); }
at::Tensor Operands::Output(const at::Tensor& tensor) { return Hold(tensor, false, true); }
at::Tensor Operands::Both(const at::Tensor& tensor) { return Hold(tensor, true, true); }

axcclView_t Operands::View(const at::Tensor& dense) {
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.data = dense.data_ptr();
  view.datatype = TypeOf(dense);
  view.num_dims = 1;
  view.sizes = sizes_.emplace_back(std::make_unique<int64_t>(dense.numel())).get();
  return view;
}

std::vector<axcclView_t> Operands::Views(const std::vector<at::Tensor>& tensors,
                                         at::Tensor (Operands::*side)(const at::Tensor&)) {
  std::vector<axcclView_t> views;
  views.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) views.push_back(View((this->*side)(tensor)));
  return views;
}

void CopyBack(const std::vector<std::pair<at::Tensor, at::Tensor>>& copies) {
  const at::AutoDispatchBelowADInplaceOrView memory_alone;
  for (const auto& [to, from] : copies) to.copy_(from);
}

void Operands::Take(Operands&& other) {
  std::move(other.sizes_.begin(), other.sizes_.end(), std::back_inserter(sizes_));
  std::move(other.keep.begin(), other.keep.end(), std::back_inserter(keep));
  std::move(other.copies.begin(), other.copies.end(), std::back_inserter(copies));
}

namespace {

ncclRedOp_t BuiltIn(const char* call, const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ncclSum;
    case c10d::ReduceOp::AVG:
      return ncclAvg;
    case c10d::ReduceOp::PRODUCT:
      return ncclProd;
    case c10d::ReduceOp::MIN:
      return ncclMin;
    case c10d::ReduceOp::MAX:
      return ncclMax;
    case c10d::ReduceOp::BAND:
      return axcclAnd;
    case c10d::ReduceOp::BOR:
      return axcclOr;
    case c10d::ReduceOp::BXOR:
      return axcclXor;
    default:
      TORCH_CHECK_VALUE(false, "axccl: ", call, ": reduction ", static_cast<int>(op.op_),
                        " is none of SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR and PREMUL_SUM");
  }
}

}  // namespace

Reduction::Reduction(const char* call, const c10d::ReduceOp& op, const at::Tensor& tensor, ncclComm_t comm) {
  CheckTensor(call, tensor);
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) {
    op_ = BuiltIn(call, op);
    return;
  }
  const auto* factor = reinterpret_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  const at::Tensor scalar = factor->tensor_factor.defined() ? factor->tensor_factor.to(tensor.options()).contiguous()
                                                            : at::full({}, factor->double_factor, tensor.options());
  TORCH_CHECK_VALUE(scalar.numel() == 1, "axccl: ", call, ": the factor of PREMUL_SUM has ", scalar.numel(),
                    " elements; pass one");
  Check(ncclRedOpCreatePreMulSum(&op_, scalar.data_ptr(), TypeOf(tensor), ncclScalarHostImmediate, comm), call, comm);
  made_on_ = comm;
}

Reduction::~Reduction() {
  if (made_on_ != nullptr) (void)ncclRedOpDestroy(op_, made_on_);
}

}  // namespace axccl::torch
