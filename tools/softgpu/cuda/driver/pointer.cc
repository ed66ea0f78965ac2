// cuPointer*: attributes of pointers.
#include <cstring>

#include "tools/softgpu/cuda/driver/entry.h"

using namespace softgpu::cuda;  // NOLINT: the C entry points

namespace {

template <typename Value>
CUresult Put(void* to, Value value) {
  std::memcpy(to, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUmemorytype MemoryType(const Range& range) { return range.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; }

CUresult Attribute(void* data, CUpointer_attribute attribute, const Range& range, CUdeviceptr address) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Put(data, range.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Put<unsigned>(data, MemoryType(range));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Put(data, range.OnDevices(address));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!range.on_host() && range.kind != RangeKind::kManaged) {
        Put<void*>(data, nullptr);
        return CUDA_ERROR_INVALID_VALUE;
      }
      return Put<void*>(data, Pointer(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Put<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return Put<unsigned long long>(data, range.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Put<unsigned>(data, range.kind == RangeKind::kManaged ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Put<int>(data, range.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Put<unsigned>(data, range.kind == RangeKind::kDevice ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Put<CUdeviceptr>(data, range.begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Put<size_t>(data, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Put<unsigned>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Put<unsigned long long>(
          data, range.kind == RangeKind::kMapped ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return Put<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Put<unsigned>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Put<unsigned long long>(data, range.block != 0 ? range.block : range.id);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Put<void*>(data, range.pool == nullptr ? nullptr : range.pool->pool);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// The attributes that cuPointerGetAttributes returns for memory that CUDA does not know.
void PutUnknown(void* data, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      Put<int>(data, -2);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      Put<unsigned>(data, 0);
      break;
    default:
      Put<uint64_t>(data, 0);
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<Range> range = AddressSpace::Get().Find(address);
  return range ? Attribute(data, attribute, *range, address) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const std::optional<Range> range = AddressSpace::Get().Find(address);
  for (unsigned i = 0; i < count; ++i) {
    if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID) return CUDA_ERROR_INVALID_VALUE;  // only one by one
    if (!range) {
      PutUnknown(data[i], attributes[i]);
    } else if (Attribute(data[i], attributes[i], *range, address) == CUDA_ERROR_NOT_SUPPORTED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  const bool known = AddressSpace::Get().Find(address).has_value();
  // Copies of this memory are always synchronous for the host.
  return known && value != nullptr && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS
                                                                                    : CUDA_ERROR_INVALID_VALUE;
}
