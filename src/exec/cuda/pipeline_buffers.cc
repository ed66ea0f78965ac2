#include "src/exec/cuda/pipeline_buffers.h"

#include "src/exec/call/operands.h"
#include "src/plan/contract.h"
#include "src/tensor/view.h"

namespace axccl::exec {

Result<std::shared_ptr<const PipelineBuffers>> PipelineBuffers::Share(CudaBuffers* buffers, const PipelinePart& part,
                                                                      std::span<const int32_t> ranks, int position,
                                                                      int32_t reader) {
  std::shared_ptr<PipelineBuffers> shared(new PipelineBuffers(buffers));
  const ViewOperand& operand = part.call.views->operands[0];
  const plan::Contract contract{part.call.kind, static_cast<int>(ranks.size()), part.call.root};
  const int inputs = plan::InputBlocks(contract, position), outputs = plan::OutputBlocks(contract, position);
  if (operand.block_bytes != 0 && inputs != 0)
    AXCCL_RETURN_IF_ERROR(shared->Hold("in", operand.input,
                                       WholeView(operand, operand.form.split, inputs, operand.input_strides), reader,
                                       &shared->in_));
  if (operand.block_bytes != 0 && outputs != 0 && part.outputs_are_read)
    AXCCL_RETURN_IF_ERROR(shared->Hold("out", operand.output,
                                       WholeView(operand, operand.form.concat, outputs, operand.output_strides), reader,
                                       &shared->out_));
  return std::shared_ptr<const PipelineBuffers>(std::move(shared));
}

Status PipelineBuffers::Hold(const char* name, const void* data, const tensor::View& view, int32_t reader,
                             Buffer* buffer) {
  const tensor::Extent extent = tensor::ByteExtent(view);
  const std::byte* const lowest = static_cast<const std::byte*>(data) + extent.begin;
  const Result<cuda_ipc::Exports::Place> place =
      buffers_->Hold(lowest, static_cast<uint64_t>(extent.end - extent.begin));
  if (!place.ok())
    return MakeStatus(Code::kInvalidUsage,
                      "data of argument spec->%s (%p) is read by rank %d, which is in another process, and cannot be "
                      "shared with it (%.*s); use memory of ncclMemAlloc or cudaMalloc for a pipeline, or "
                      "axcclAllGather and its siblings on slices",
                      name, data, reader, static_cast<int>(place.status().message().size()),
                      place.status().message().data());
  *buffer = {lowest, static_cast<uint64_t>(-extent.begin), place.value()};
  return Status();
}

PipelineBuffers::~PipelineBuffers() {
  for (const Buffer* buffer : {&in_, &out_}) {
    if (buffer->lowest != nullptr) buffers_->Release(buffer->place);
  }
}

void PipelineBuffers::PutPlaces(std::byte* table) const {
  auto* const operands = reinterpret_cast<kernels::cuda::ViewOperand*>(table + sizeof(kernels::cuda::ViewTable));
  kernels::cuda::ViewPlace& own = operands[0].own;
  if (in_.lowest != nullptr) {
    own.input_map = in_.place.number;
    own.input_offset = in_.place.offset + in_.ahead;
  }
  if (out_.lowest != nullptr) {
    own.output_map = out_.place.number;
    own.output_offset = out_.place.offset + out_.ahead;
  }
}

int PipelineBuffers::FindUnmapped(const Members& members) const {
  for (int p = 0; p < members.size(); ++p) {
    for (const Buffer* buffer : {&in_, &out_}) {
      if (buffer->lowest != nullptr && !buffers_->IsMapped(buffer->place, members[p].rank)) return p;
    }
  }
  return -1;
}

Status PipelineBuffers::CheckMappable(const Members& members, int position) const {
  const int rank = members[position].rank;
  for (const Buffer* buffer : {&in_, &out_}) {
    if (buffer->lowest == nullptr || !buffers_->IsUnmappable(buffer->place, rank)) continue;
    return MakeStatus(Code::kUnhandledCudaError,
                      "rank %d cannot map the memory of rank %d at %p, which a pipeline reads; NCCL_DEBUG=INFO prints "
                      "there why",
                      rank, members.own().rank, static_cast<const void*>(buffer->lowest));
  }
  return Status();
}

}  // namespace axccl::exec
