#include "src/exec/cuda/buffers.h"

#include <utility>

#include "src/plan/contract.h"

namespace axccl::exec {

using cuda_ipc::ExportTable;
using cuda_ipc::Imports;

Result<std::unique_ptr<CudaBuffers>> CudaBuffers::Create(const device::cuda::Device& device, size_t rank,
                                                         const std::vector<std::byte*>& tables,
                                                         const std::vector<Member>& members) {
  std::vector<ExportTable*> typed;
  std::vector<Imports::Peer> peers;
  for (size_t r = 0; r < members.size(); ++r) {
    typed.push_back(reinterpret_cast<ExportTable*>(tables[r]));
    peers.push_back(
        {typed.back(), members[r].reach->pid(), members[r].reach->same_process(), &members[r].header->error});
  }
  std::unique_ptr<CudaBuffers> buffers(new CudaBuffers(device, rank, std::move(typed)));
  AXCCL_ASSIGN_OR_RETURN(buffers->imports_, Imports::Create(device, rank, std::move(peers)));
  return buffers;
}

Status CudaBuffers::Place(const Call& call, const Members& members, bool captured, kernels::cuda::Task* task) {
  const device::cuda::Scope scope(device_);
  AXCCL_RETURN_IF_ERROR(Look());
  const plan::Contract contract{call.kind, members.size(), call.root};
  const uint64_t block = call.count * ElementSize(call.type);
  const auto inputs = static_cast<uint64_t>(plan::InputBlocks(contract, members.self()));
  const auto outputs = static_cast<uint64_t>(plan::OutputBlocks(contract, members.self()));
  task->input_map = Find(call.input, block * inputs, members, captured, &task->input_offset);
  task->output_map = Find(call.output, block * outputs, members, captured, &task->output_offset);
  return Status();
}

Result<bool> CudaBuffers::PlaceViews(const Call& call, const Members& members, bool captured,
                                     kernels::cuda::ViewOperand* table) {
  const device::cuda::Scope scope(device_);
  AXCCL_RETURN_IF_ERROR(Look());
  const plan::Contract contract{call.kind, members.size(), call.root};
  const int inputs = plan::InputBlocks(contract, members.self()),
            outputs = plan::OutputBlocks(contract, members.self());
  std::vector<Viewed> all;
  const auto add = [&](const void* data, const tensor::View& view, uint32_t* map, uint64_t* offset) {
    const tensor::Extent extent = tensor::ByteExtent(view);
    all.push_back({reinterpret_cast<CUdeviceptr>(data), extent.begin, extent.end, map, offset});
  };
  for (size_t i = 0; i < call.views->operands.size(); ++i) {
    const ViewOperand& operand = call.views->operands[i];
    kernels::cuda::ViewPlace& place = table[i].own;
    if (operand.block_bytes == 0) continue;
    if (inputs != 0)
      add(operand.input, WholeView(operand, operand.form.split, inputs, operand.input_strides), &place.input_map,
          &place.input_offset);
    if (outputs != 0)
      add(operand.output, WholeView(operand, operand.form.concat, outputs, operand.output_strides), &place.output_map,
          &place.output_offset);
  }
  return PlaceAll(all, members, captured);
}

// A call uses the mapped views only if all are. So a long list, some of which cannot be, takes no numbers.
Result<bool> CudaBuffers::PlaceAll(const std::vector<Viewed>& all, const Members& members, bool captured) {
  constexpr size_t kLong = 16;
  if (all.size() > kLong) {
    std::vector<cuda_ipc::Exports::Bytes> ranges;
    for (const Viewed& viewed : all) ranges.push_back({viewed.lowest(), viewed.bytes()});
    if (!exports_.MayFind(ranges)) return false;
  }
  bool mapped = true;
  for (const Viewed& viewed : all) {
    AXCCL_ASSIGN_OR_RETURN(const bool placed, PlaceView(viewed, members, captured));
    mapped &= placed;
  }
  return mapped;
}

// This rank uses the place that it announces, so its map has the allocation, too.
Result<bool> CudaBuffers::PlaceView(const Viewed& viewed, const Members& members, bool captured) {
  uint64_t at = 0;
  const uint32_t number = Find(reinterpret_cast<const void*>(viewed.lowest()), viewed.bytes(), members, captured, &at);
  if (number == kernels::cuda::kUnmapped) return false;
  AXCCL_RETURN_IF_ERROR(MapOwn(number, viewed.lowest() - at));
  *viewed.map = number;
  *viewed.offset = at + static_cast<uint64_t>(-viewed.begin);
  return true;
}

Status CudaBuffers::MapOwn(uint32_t number, uint64_t base) {
  uint64_t& own = own_[number];
  if (own == base) return Status();
  own = 0;  // until it is known what the map has
  AXCCL_RETURN_IF_ERROR(imports_->MapOwn(number, base));
  own = base;
  return Status();
}

Result<cuda_ipc::Exports::Place> CudaBuffers::Hold(const void* memory, uint64_t bytes) {
  const auto pointer = reinterpret_cast<CUdeviceptr>(memory);
  AXCCL_ASSIGN_OR_RETURN(const cuda_ipc::Exports::Place place, exports_.Hold(pointer, bytes));
  const Status mapped = MapOwn(place.number, pointer - place.offset);
  if (mapped.ok()) return place;
  exports_.Release(place);
  return mapped;
}

Status CudaBuffers::Look() {
  const device::cuda::Scope scope(device_);
  return imports_->Look();
}

// An empty buffer counts as mapped.
uint32_t CudaBuffers::Find(const void* buffer, uint64_t bytes, const Members& members, bool captured,
                           uint64_t* offset) {
  if (bytes == 0) return 0;
  const cuda_ipc::Exports::Place place = exports_.Find(reinterpret_cast<CUdeviceptr>(buffer), bytes, captured);
  if (place.number == 0) return kernels::cuda::kUnmapped;
  for (int p = 0; p < members.size(); ++p) {
    if (!exports_.Has(static_cast<size_t>(members[p].rank), place.number)) return kernels::cuda::kUnmapped;
  }
  *offset = place.offset;
  return place.number;
}

}  // namespace axccl::exec
