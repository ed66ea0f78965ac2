// Stream-ordered allocation. A pool is only a name: memory is taken from the device at once and returns to it when the
// stream reaches the operation that frees it.
#include "tools/softgpu/cuda/driver/allocate.h"
#include "tools/softgpu/cuda/driver/entry.h"

namespace softgpu::cuda {
namespace {

struct Pool {
  explicit Pool(int device) : device(device) {}
  const int device;
  std::atomic<uint64_t> release_threshold{0};
  const std::shared_ptr<PoolAccess> access = std::make_shared<PoolAccess>();
};
using PoolPtr = std::shared_ptr<Pool>;

PoolPtr MakePool(int device) {
  auto pool = std::make_shared<Pool>(device);
  pool->access->pool = pool.get();
  return pool;
}

PoolPtr DefaultPool(int device) {
  static auto* const pools = [] {
    auto* all = new std::array<PoolPtr, kMaxDevices>;
    for (int i = 0; i < kMaxDevices; ++i) {
      (*all)[i] = MakePool(i);
      HandlesOf<Pool>().Add((*all)[i]);
    }
    return all;
  }();
  return (*pools)[device];
}

CUresult AllocateOrdered(const StreamPtr& stream, size_t bytes, const PoolPtr& pool, CUdeviceptr* address) {
  {
    const StreamLock lock = LockStreams();
    // Memory nodes of graphs are not supported.
    if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  ContextPtr context = stream->context;
  if (pool->device != context->device().ordinal) context = ActivePrimary(FindDevice(pool->device));
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = AllocateOnDevice(context, bytes, RangeKind::kPool, address);
  if (result == CUDA_SUCCESS) AddressSpace::Get().SetPool(*address, pool->access);
  return result;
}

}  // namespace
}  // namespace softgpu::cuda

using namespace softgpu::cuda;  // NOLINT: the C entry points

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return WithStream(stream, [&](const StreamPtr& found) {
    return AllocateOrdered(found, bytes, DefaultPool(found->context->device().ordinal), address);
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return WithStream(stream, [&](const StreamPtr& found) {
    const PoolPtr from = HandlesOf<Pool>().Find(pool);
    return from == nullptr ? CUDA_ERROR_INVALID_VALUE : AllocateOrdered(found, bytes, from, address);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return WithStream(stream, [&](const StreamPtr& found) {
    const std::optional<Range> range = AddressSpace::Get().Find(address);
    if (address == 0) return CUDA_SUCCESS;
    const bool whole = range && range->begin == address;
    if (!whole || (range->kind != RangeKind::kPool && range->kind != RangeKind::kDevice))
      return CUDA_ERROR_INVALID_VALUE;
    const RangeKind kind = range->kind;
    return Enqueue(found, std::make_shared<CallOperation>(
                              found->context, [address, kind] { AddressSpace::Get().Erase(address, kind); }));
  });
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return WithDevice(device, [&](Device*) {
    *pool = reinterpret_cast<CUmemoryPool>(DefaultPool(device).get());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) { return cuDeviceGetDefaultMemPool(pool, device); }

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return WithDevice(device, [&](Device*) {
    return HandlesOf<Pool>().Find(pool) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return WithDevice(properties->location.id, [&](Device* device) {
    *pool = reinterpret_cast<CUmemoryPool>(HandlesOf<Pool>().Add(MakePool(device->ordinal)));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return HandlesOf<Pool>().Remove(pool) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return HandlesOf<Pool>().Find(pool) == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const std::shared_ptr<Pool> found = HandlesOf<Pool>().Find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) found->release_threshold = *static_cast<cuuint64_t*>(value);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  const std::shared_ptr<Pool> found = HandlesOf<Pool>().Find(pool);
  if (found == nullptr || attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<cuuint64_t*>(value) = found->release_threshold;
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* accesses, size_t count) {
  const PoolPtr found = HandlesOf<Pool>().Find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bit = uint64_t{1} << accesses[i].location.id;
    if (accesses[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      found->access->devices |= bit;
    } else {
      found->access->devices &= ~bit;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  const PoolPtr found = HandlesOf<Pool>().Find(pool);
  if (found == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  const bool allowed = location->id == found->device || (found->access->devices >> location->id & 1) != 0;
  *flags = allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

// Graphs have no memory nodes, so they use no memory.
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  return WithDevice(device, [&](Device*) {
    if (attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return CUDA_ERROR_INVALID_VALUE;
    *static_cast<cuuint64_t*>(value) = 0;
    return CUDA_SUCCESS;
  });
}

// The high-water marks can be reset, and nothing else.
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  return WithDevice(device, [&](Device*) {
    const bool highest =
        attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    return highest && *static_cast<cuuint64_t*>(value) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}
