// What a CUmemGenericAllocationHandle stands for: memory, or a multicast object. Both are files in memory, which is
// also what other processes get. Lives as long as a handle or a mapping of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tools/softgpu/cuda/address_space.h"
#include "tools/softgpu/cuda/cuda_api.h"
#include "tools/softgpu/cuda/device.h"
#include "tools/softgpu/cuda/handles.h"

namespace softgpu::cuda {

class Multicast;

// Of memory, of bindings to multicast objects and of mappings.
inline constexpr size_t kGranularity = size_t{2} << 20;

struct MemoryObject {
  MemoryObject() = default;
  ~MemoryObject();
  MemoryObject(const MemoryObject&) = delete;
  MemoryObject& operator=(const MemoryObject&) = delete;

  int descriptor = -1;
  const uint64_t block = AddressSpace::Get().NextId();
  size_t bytes = 0;
  CUmemAllocationProp properties = {};
  Device* charged = nullptr;             // the device whose memory it takes; null for imported and host memory
  std::shared_ptr<Multicast> multicast;  // null for memory
  std::atomic<int> handles{1};
};
using MemoryObjectPtr = std::shared_ptr<MemoryObject>;

inline CUmemGenericAllocationHandle HandleOf(const MemoryObjectPtr& object) {
  return reinterpret_cast<CUmemGenericAllocationHandle>(object.get());
}

inline MemoryObjectPtr FindObject(CUmemGenericAllocationHandle handle) {
  return HandlesOf<MemoryObject>().Find(reinterpret_cast<const void*>(handle));
}

// A new handle of an object that has handles or had some.
inline CUmemGenericAllocationHandle NewHandleOf(const MemoryObjectPtr& object) {
  if (object->handles++ == 0) HandlesOf<MemoryObject>().Add(object);
  return HandleOf(object);
}

// A multicast object that another process has exported, or this one; null if the descriptor is no such object.
MemoryObjectPtr ImportMulticast(int descriptor);

}  // namespace softgpu::cuda
