// cuMulticast*: multicast objects.
#include "tools/softgpu/cuda/driver/multicast.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {
namespace {

constexpr const char* kFileName = "softgpu-multicast";

// The multicast objects of this process by their files, so that one that is imported twice is one object.
struct Known {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<MemoryObject>> by_file;
};

Known& TheKnown() {
  static auto* const known = new Known;
  return *known;
}

// Makes an object that owns the descriptor; null if that fails. Under the mutex.
MemoryObjectPtr MakeObject(int descriptor, const CUmulticastObjectProp* properties) {
  auto object = std::make_shared<MemoryObject>();
  object->descriptor = descriptor;
  struct stat file = {};
  if (descriptor < 0 || fstat(descriptor, &file) != 0) return nullptr;
  object->multicast = Multicast::Open(descriptor, properties);
  if (object->multicast == nullptr) return nullptr;
  object->bytes = object->multicast->bytes();
  object->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  object->properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(object->multicast->handle_types());
  std::erase_if(TheKnown().by_file, [](const auto& known) { return known.second.expired(); });
  TheKnown().by_file[{file.st_dev, file.st_ino}] = object;
  return object;
}

CUresult CheckProperties(const CUmulticastObjectProp* properties) {
  if (!HasMulticast()) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties == nullptr || properties->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (properties->numDevices == 0 || properties->numDevices > static_cast<unsigned>(Knobs().devices))
    return CUDA_ERROR_INVALID_VALUE;
  if ((properties->handleTypes & ~static_cast<unsigned long long>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) == 0)
    return CUDA_SUCCESS;
  Explain("multicast objects can be shared by POSIX file descriptors only, handle types %#llx are asked for",
          properties->handleTypes);
  return CUDA_ERROR_NOT_SUPPORTED;
}

// Calls function(object) with the multicast object of a handle.
template <typename Function>
CUresult WithMulticast(CUmemGenericAllocationHandle handle, const Function& function) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (!HasMulticast()) return CUDA_ERROR_NOT_SUPPORTED;
  const MemoryObjectPtr object = FindObject(handle);
  if (object == nullptr || object->multicast == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return function(*object->multicast);
}

CUresult Bind(Multicast& multicast, size_t offset, const MemoryObjectPtr& memory, size_t memory_offset, size_t bytes,
              unsigned long long flags) {
  if (memory == nullptr || memory->multicast != nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  SynchronizeFor(kSyncAlloc);
  multicast.AwaitTeam();
  if (!Knobs().bind) return CUDA_ERROR_OUT_OF_MEMORY;
  return multicast.Bind(offset, memory, memory_offset, bytes);
}

}  // namespace

MemoryObjectPtr ImportMulticast(int descriptor) {
  struct stat file = {};
  if (fstat(descriptor, &file) != 0) return nullptr;
  const std::lock_guard lock(TheKnown().mutex);
  const auto known = TheKnown().by_file.find({file.st_dev, file.st_ino});
  if (known != TheKnown().by_file.end()) {
    if (MemoryObjectPtr object = known->second.lock()) return object;
  }
  MemoryObjectPtr made = MakeObject(fcntl(descriptor, F_DUPFD_CLOEXEC, 0), nullptr);
  if (made != nullptr) made->handles = 0;
  return made;
}

}  // namespace softgpu::cuda

using namespace softgpu::cuda;  // NOLINT: the C entry points

CUresult cuMulticastGetGranularity(size_t* granularity, const CUmulticastObjectProp* properties,
                                   CUmulticastGranularity_flags) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (const CUresult error = CheckProperties(properties); error != CUDA_SUCCESS) return error;
  if (granularity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (const CUresult error = CheckProperties(properties); error != CUDA_SUCCESS) return error;
  if (handle == nullptr || properties->size == 0 || properties->size % kGranularity != 0)
    return CUDA_ERROR_INVALID_VALUE;
  SynchronizeFor(kSyncAlloc);
  const std::lock_guard lock(TheKnown().mutex);
  const int descriptor = memfd_create(kFileName, MFD_CLOEXEC);
  if (descriptor < 0 || ftruncate(descriptor, off_t{Multicast::kFileBytes}) != 0) {
    if (descriptor >= 0) close(descriptor);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  MemoryObjectPtr made = MakeObject(descriptor, properties);
  if (made == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = HandleOf(made);
  HandlesOf<MemoryObject>().Add(std::move(made));
  return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device) {
  return WithMulticast(handle, [&](Multicast& multicast) {
    return FindDevice(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : multicast.Join(device);
  });
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
                            size_t memory_offset, size_t bytes, unsigned long long flags) {
  return WithMulticast(handle, [&](Multicast& multicast) {
    return Bind(multicast, offset, FindObject(memory), memory_offset, bytes, flags);
  });
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address, size_t bytes,
                             unsigned long long flags) {
  return WithMulticast(handle, [&](Multicast& multicast) {
    const std::optional<Range> range = AddressSpace::Get().Find(address);
    if (!range || range->kind != RangeKind::kMapped || bytes > range->end() - address) return CUDA_ERROR_INVALID_VALUE;
    const auto memory = std::static_pointer_cast<MemoryObject>(range->backing);
    return Bind(multicast, offset, memory, range->offset + (address - range->begin), bytes, flags);
  });
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes) {
  return WithMulticast(handle, [&](Multicast& multicast) {
    if (FindDevice(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    SynchronizeFor(kSyncFree);
    return multicast.Unbind(device, offset, bytes);
  });
}
