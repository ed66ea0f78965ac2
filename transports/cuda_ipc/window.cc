#include "transports/cuda_ipc/window.h"

#include <algorithm>
#include <utility>

#include "transports/cuda_ipc/memory.h"

namespace axccl::cuda_ipc {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;

Result<uint64_t> UnitOf(const Device& device) {
  const CUmemAllocationProp properties = ShareableOn(device);
  size_t unit = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(
      Driver::Loaded().cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  return uint64_t{unit};
}

Chunks::~Chunks() {
  for (const Chunk& chunk : chunks_) {
    if (chunk.object != 0) Driver::Loaded().cuMemRelease(chunk.object);
  }
}

Result<Chunks> Chunks::Of(const Device& device, CUdeviceptr pointer, uint64_t bytes) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device);
  Chunks found;
  for (CUdeviceptr at = pointer; at < pointer + bytes;) {
    Chunk& chunk = found.chunks_.emplace_back();  // first: an object that is held must be released
    const Status held = Check(driver.cuMemRetainAllocationHandle(&chunk.object, reinterpret_cast<void*>(at)),
                              "cuMemRetainAllocationHandle");
    if (!held.ok())
      return MakeStatus(
          Code::kInvalidArgument,
          "at %p there is memory that peers cannot map, because cuMemCreate has not made it (%s); pass "
          "memory of ncclMemAlloc, or use ncclCommRegister if only collectives and messages use the buffer",
          reinterpret_cast<void*>(at), held.message().data());
    AXCCL_ASSIGN_OR_RETURN(chunk.range, RangeOf(device, at));
    if (found.chunks_.size() == 1) found.offset_ = pointer - chunk.range.base;
    found.bytes_ += chunk.range.bytes;
    at = chunk.range.base + chunk.range.bytes;
  }
  return found;
}

Status Chunks::BindTo(MulticastObject* object, uint64_t begin, uint64_t end) const {
  uint64_t at = 0;
  for (const Chunk& chunk : chunks_) {
    const uint64_t first = std::max(begin, at), last = std::min(end, at + chunk.range.bytes);
    if (first < last) AXCCL_RETURN_IF_ERROR(object->Bind(first - begin, chunk.object, first - at, last - first));
    at += chunk.range.bytes;
  }
  return Status();
}

Result<ChunkAddress> Chunks::Offer(size_t index, bool to_others, std::vector<shm::OfferedFile>* offered) const {
  const Chunk& chunk = chunks_[index];
  ChunkAddress address{chunk.range.base, chunk.range.bytes, {}};
  if (!to_others) return address;
  Result<Exported> exported = OfferObject(chunk.object, chunk.range.bytes);
  if (!exported.ok())
    return MakeStatus(exported.status().code(),
                      "the memory at %p cannot be shared with other processes: %s; pass memory of ncclMemAlloc",
                      reinterpret_cast<void*>(chunk.range.base), exported.status().message().data());
  address.handle = exported->handle;
  offered->push_back(std::move(exported->file));
  return address;
}

Status MapChunk(const Device& device, FlatMemory* window, uint64_t at, const ChunkAddress& chunk, bool here) {
  const Scope scope(device);
  if (chunk.bytes == 0 || !window->Has(at, chunk.bytes))
    return MakeStatus(Code::kRemoteError, "a rank's memory does not fit into the window");
  CUmemGenericAllocationHandle object = 0;
  if (here) {
    void* const base = reinterpret_cast<void*>(chunk.base);
    AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuMemRetainAllocationHandle(&object, base));
  } else if (chunk.handle.kind != Handle::kFile) {
    return MakeStatus(Code::kRemoteError, "a rank of another process offers no memory");
  } else {
    AXCCL_ASSIGN_OR_RETURN(object, TakeObject(chunk.handle));
  }
  return window->Map(at, object, chunk.bytes);
}

}  // namespace axccl::cuda_ipc
