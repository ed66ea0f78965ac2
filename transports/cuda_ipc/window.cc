#include "transports/cuda_ipc/window.h"

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
  for (const Chunk& chunk : chunks_) Driver::Loaded().cuMemRelease(chunk.object);
}

Result<Chunks> Chunks::Of(const Device& device, CUdeviceptr pointer, uint64_t bytes) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device);
  Chunks found;
  for (CUdeviceptr at = pointer; at < pointer + bytes;) {
    found.chunks_.reserve(found.chunks_.size() + 1);  // an object that is held is released
    CUmemGenericAllocationHandle object = 0;
    const Status held =
        Check(driver.cuMemRetainAllocationHandle(&object, reinterpret_cast<void*>(at)), "cuMemRetainAllocationHandle");
    if (!held.ok())
      return MakeStatus(
          Code::kInvalidArgument,
          "at %p there is memory that peers cannot map, because cuMemCreate has not made it (%s); pass "
          "memory of ncclMemAlloc, or use ncclCommRegister if only collectives and messages use the buffer",
          reinterpret_cast<void*>(at), held.message().data());
    found.chunks_.push_back({{}, object});
    AXCCL_ASSIGN_OR_RETURN(found.chunks_.back().range, RangeOf(device, at));
    const Range& range = found.chunks_.back().range;
    if (found.chunks_.size() == 1) found.offset_ = pointer - range.base;
    found.bytes_ += range.bytes;
    at = range.base + range.bytes;
  }
  return found;
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

FlatMemory::~FlatMemory() {
  if (address_ == 0) return;
  const Driver& driver = Driver::Loaded();
  const Scope scope(device_);
  for (const Mapped& chunk : mapped_) driver.cuMemUnmap(chunk.address, chunk.bytes);
  driver.cuMemAddressFree(address_, bytes_);
}

Status FlatMemory::Reserve(uint64_t bytes) {
  const Scope scope(device_);
  AXCCL_RETURN_IF_CUDA_ERROR(Driver::Loaded().cuMemAddressReserve(&address_, bytes, 0, 0, 0));
  bytes_ = bytes;
  return Status();
}

Status FlatMemory::Map(uint64_t at, const ChunkAddress& chunk, bool here) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device_);
  if (chunk.bytes == 0 || at > bytes_ || chunk.bytes > bytes_ - at)
    return MakeStatus(Code::kRemoteError, "a rank's memory does not fit into the window");
  CUmemGenericAllocationHandle object = 0;
  if (here) {
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemRetainAllocationHandle(&object, reinterpret_cast<void*>(chunk.base)));
  } else if (chunk.handle.kind != Handle::kFile) {
    return MakeStatus(Code::kRemoteError, "a rank of another process offers no memory");
  } else {
    AXCCL_ASSIGN_OR_RETURN(object, TakeObject(chunk.handle));
  }
  mapped_.reserve(mapped_.size() + 1);
  const int ordinal = device_.ordinal();
  const Status status = MapAt(address_ + at, object, chunk.bytes, &ordinal, 1);
  driver.cuMemRelease(object);
  if (status.ok()) mapped_.push_back({address_ + at, chunk.bytes});
  return status;
}

}  // namespace axccl::cuda_ipc
