#include "src/exec/cuda/views.h"

#include <algorithm>
#include <new>

#include "kernels/cuda/launch.h"
#include "src/base/sizes.h"

namespace axccl::exec {
namespace {

namespace cuda = kernels::cuda;

static_assert(tensor::kMaxDims == cuda::kMaxViewDims);

cuda::ViewPlace MakePlace(const ViewOperand& operand, const plan::Contract& contract, int position) {
  cuda::ViewPlace place;
  place.input_offset = reinterpret_cast<uint64_t>(operand.input);
  place.output_offset = reinterpret_cast<uint64_t>(operand.output);
  place.input_step =
      BlockStep(operand, operand.form.split, plan::InputBlocks(contract, position), operand.input_strides);
  place.output_step =
      BlockStep(operand, operand.form.concat, plan::OutputBlocks(contract, position), operand.output_strides);
  std::copy_n(operand.input_strides, tensor::kMaxDims, place.input_strides);
  std::copy_n(operand.output_strides, tensor::kMaxDims, place.output_strides);
  return place;
}

}  // namespace

bool CudaViewsFit(const ViewList& views, uint64_t bytes) {
  return views.operands.size() <= bytes / sizeof(cuda::ViewPlace);
}

Status CheckCudaViews(const Call& call, const Program& program) {
  size_t dims = 0;
  for (const ViewOperand& operand : call.views->operands) {
    const tensor::Shape& shape = operand.form.shape;
    const auto many = std::count_if(shape.sizes, shape.sizes + shape.dims, [](int64_t size) { return size != 1; });
    dims = std::max(dims, static_cast<size_t>(many));
  }
  if (program.max_operands * dims <= cuda::kMaxViewStrides) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "%s: %s has steps of %zu operands, and CUDA devices take %zu of %zu dimensions at most; merge "
                    "dimensions, or use another algorithm",
                    DescribeCall(call).c_str(), program.plan->schedule.algorithm.c_str(), program.max_operands,
                    cuda::kMaxViewStrides / dims, dims);
}

void ScaleResults(const ViewList& views, DataType type, Scaling* scaling, uint64_t* scalar) {
  if (views.scale == 0) return;
  *scaling = Scaling::kResult;
  *scalar = FactorOf(type, views.scale).u64;
}

size_t CudaViewTableBytes(const ViewList& views) {
  return sizeof(cuda::ViewTable) + views.operands.size() * sizeof(cuda::ViewOperand);
}

void MakeCudaViewTable(const Call& call, const plan::Contract& contract, int position, void* memory) {
  const ViewList& views = *call.views;
  const bool zeros = (views.zeros || call.kind == plan::Kind::kBarrier) && plan::OutputBlocks(contract, position) == 0;
  auto* const table = new (memory) cuda::ViewTable;
  table->num_operands = static_cast<uint32_t>(views.operands.size());
  auto* const operands = reinterpret_cast<cuda::ViewOperand*>(table + 1);
  uint64_t at = 0;
  for (size_t i = 0; i < views.operands.size(); ++i) {
    const ViewOperand& operand = views.operands[i];
    cuda::ViewOperand& out = *new (operands + i) cuda::ViewOperand;
    at = RoundUp(at, kOperandAlignment);
    out.at = at;
    out.element = static_cast<uint32_t>(ElementSize(operand.type));
    out.count = operand.block_bytes / out.element;
    out.num_dims = static_cast<uint32_t>(operand.form.shape.dims);
    std::copy_n(operand.form.shape.sizes, tensor::kMaxDims, out.sizes);
    out.is_zero = zeros && operand.output != nullptr;
    out.own = MakePlace(operand, contract, position);
    at += operand.block_bytes;
  }
}

}  // namespace axccl::exec
