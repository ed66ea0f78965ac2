// Allocation, and queries of pointers.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tools/softgpu/cuda/driver/allocate.h"
#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/settings.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

namespace {

Range NewRange(const ContextPtr& context, uint64_t begin, size_t bytes, RangeKind kind) {
  Range range;
  range.begin = begin;
  range.bytes = bytes;
  range.kind = kind;
  range.device = context->device().ordinal;
  range.context = context->handle();
  return range;
}

// Write-combined memory that devices see at other addresses: at the returned ones only the host does.
CUresult AllocateWithAlias(const ContextPtr& context, size_t bytes, unsigned flags, uint64_t* address) {
  const int file = memfd_create("softgpu-host", MFD_CLOEXEC);
  const bool made = file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0;
  std::shared_ptr<Mapping> here = made ? Mapping::Map(bytes, file, 0) : nullptr;
  std::shared_ptr<Mapping> there = made ? Mapping::Map(bytes, file, 0) : nullptr;
  if (file >= 0) close(file);
  if (here == nullptr || there == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = here->address();
  Range range = NewRange(context, *address, bytes, RangeKind::kHost);
  range.flags = flags;
  range.alias = there->address();
  range.backing = here;
  Range alias = NewRange(context, range.alias, bytes, RangeKind::kHost);
  alias.flags = flags;
  alias.backing = there;
  AddressSpace::Get().Insert(std::move(range));
  AddressSpace::Get().Insert(std::move(alias));
  return CUDA_SUCCESS;
}

CUresult AllocateOnHost(const ContextPtr& context, size_t bytes, RangeKind kind, unsigned flags, uint64_t* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = CheckUnsafeCall(); error != CUDA_SUCCESS) return error;
  SynchronizeFor(kind == RangeKind::kManaged ? kSyncAlloc : kSyncHost);
  if (Knobs().aliases && kind == RangeKind::kHost && (flags & CU_MEMHOSTALLOC_WRITECOMBINED) != 0)
    return AllocateWithAlias(context, bytes, flags, address);
  std::shared_ptr<Mapping> mapping = Mapping::Map(bytes, -1, 0);
  if (mapping == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range = NewRange(context, mapping->address(), bytes, kind);
  range.flags = flags;
  range.backing = mapping;
  *address = range.begin;
  AddressSpace::Get().Insert(std::move(range));
  return CUDA_SUCCESS;
}

// Freeing waits for all work of the device, as in CUDA, because kernels may use the memory.
CUresult FreeRange(uint64_t address, std::initializer_list<RangeKind> kinds) {
  if (address == 0) return CUDA_SUCCESS;
  if (const CUresult error = CheckUnsafeCall(); error != CUDA_SUCCESS) return error;
  const std::optional<Range> range = AddressSpace::Get().Find(address);
  if (!range || range->begin != address) return CUDA_ERROR_INVALID_VALUE;
  SynchronizeFor(kSyncFree);
  for (const RangeKind kind : kinds) {
    if (range->kind != kind) continue;
    if (const ContextPtr owner = HandlesOf<Context>().Find(range->context)) SynchronizeContext(owner);
    if (range->alias != 0) AddressSpace::Get().Erase(range->alias, kind);
    return AddressSpace::Get().Erase(address, kind) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

namespace softgpu::cuda {

CUresult AllocateOnDevice(const ContextPtr& context, size_t bytes, RangeKind kind, CUdeviceptr* address) {
  if (bytes == 0 || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<DeviceMemory::Piece> piece = context->device().memory.Allocate(bytes);
  if (piece == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Range range = NewRange(context, piece->address(), bytes, kind);
  range.backing = piece;
  *address = range.begin;
  AddressSpace::Get().Insert(std::move(range));
  return CUDA_SUCCESS;
}

}  // namespace softgpu::cuda

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  return WithContext([&](const ContextPtr& context) {
    if (const CUresult error = CheckUnsafeCall(); error != CUDA_SUCCESS) return error;
    SynchronizeFor(kSyncAlloc);
    return AllocateOnDevice(context, bytes, RangeKind::kDevice, address);
  });
}

CUresult cuMemAllocPitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned) {
  *pitch = RoundUp(width, kPitch);
  return cuMemAlloc(address, *pitch * height);
}

CUresult cuMemFree(CUdeviceptr address) {
  return WithContext([&](const ContextPtr&) {
    return FreeRange(address, {RangeKind::kDevice, RangeKind::kPool, RangeKind::kManaged});
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  return WithContext([&](const ContextPtr& context) -> CUresult {
    uint64_t at = 0;
    const CUresult error = AllocateOnHost(context, bytes, RangeKind::kManaged, flags, &at);
    *address = at;
    return error;
  });
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return WithContext([&](const ContextPtr& context) {
    uint64_t at = 0;
    const CUresult error = AllocateOnHost(context, bytes, RangeKind::kHost, flags, &at);
    *pointer = Pointer(at);
    return error;
  });
}

CUresult cuMemAllocHost(void** pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }

CUresult cuMemFreeHost(void* pointer) {
  return WithContext([&](const ContextPtr&) { return FreeRange(Address(pointer), {RangeKind::kHost}); });
}

CUresult cuMemHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return WithContext([&](const ContextPtr& context) {
    if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (!Knobs().host_register) return CUDA_ERROR_NOT_SUPPORTED;
    SynchronizeFor(kSyncHost);
    const uint64_t begin = Address(pointer);
    if (AddressSpace::Get().Find(begin) || AddressSpace::Get().Find(begin + bytes - 1))
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    Range range = NewRange(context, begin, bytes, RangeKind::kRegistered);
    range.flags = flags;
    AddressSpace::Get().Insert(std::move(range));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostUnregister(void* pointer) {
  return WithContext([&](const ContextPtr&) {
    SynchronizeFor(kSyncFree);
    const bool known = AddressSpace::Get().Erase(Address(pointer), RangeKind::kRegistered).has_value();
    return known ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  });
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* pointer, unsigned flags) {
  return WithContext([&](const ContextPtr&) {
    const std::optional<Range> range = AddressSpace::Get().Find(Address(pointer));
    if (flags != 0 || !range || !range->on_host()) return CUDA_ERROR_INVALID_VALUE;
    *address = range->OnDevices(Address(pointer));
    return CUDA_SUCCESS;
  });
}

// There is nothing to do, because what threads of the host write is visible at once. As with CUDA, it waits for no
// kernel.
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope) {
  return WithContext([&](const ContextPtr&) {
    if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX) return CUDA_ERROR_INVALID_VALUE;
    if (scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER && scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES)
      return CUDA_ERROR_INVALID_VALUE;
    return Knobs().gpudirect != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  });
}

CUresult cuMemHostGetFlags(unsigned* flags, void* pointer) {
  return WithContext([&](const ContextPtr&) {
    const std::optional<Range> range = AddressSpace::Get().Find(Address(pointer));
    if (!range || !range->on_host()) return CUDA_ERROR_INVALID_VALUE;
    *flags = range->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  return WithContext([&](const ContextPtr& context) {
    *free = context->device().memory.free_bytes();
    *total = context->device().memory.capacity();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return WithContext([&](const ContextPtr&) {
    const std::optional<Range> range = AddressSpace::Get().Find(address);
    if (!range || range->kind == RangeKind::kRegistered) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = range->begin;
    if (bytes != nullptr) *bytes = range->bytes;
    return CUDA_SUCCESS;
  });
}

// Every device sees managed memory at once, so the arguments are only checked.
CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUmemLocation, unsigned, CUstream stream) {
  return WithStream(stream, [&](const StreamPtr&) {
    const std::optional<Range> range = AddressSpace::Get().Find(address);
    const bool inside = range && range->kind == RangeKind::kManaged && address + bytes <= range->end();
    return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuMemAdvise(CUdeviceptr address, size_t, CUmem_advise, CUmemLocation) {
  return WithContext(
      [&](const ContextPtr&) { return AddressSpace::Get().Find(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}
