// Virtual memory management: memory objects, reserved addresses, and mappings of objects to addresses. An object is a
// memfd, which is also what other processes get; its name identifies its device.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/driver/multicast.h"
#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {

MemoryObject::~MemoryObject() {
  if (descriptor >= 0) close(descriptor);
  if (charged != nullptr) charged->memory.Discharge(bytes);
}

namespace {

struct Reservation {
  std::unique_ptr<Mapping> addresses;
  uint64_t id = AddressSpace::Get().NextId();
};

struct Reservations {
  std::mutex mutex;
  std::map<uint64_t, Reservation> by_address;

  // The reservation that contains all of these addresses, null if there is none. Under the mutex.
  const Reservation* Find(uint64_t address, size_t bytes) const {
    auto after = by_address.upper_bound(address);
    if (after == by_address.begin()) return nullptr;
    const Reservation& reservation = std::prev(after)->second;
    const uint64_t end = reservation.addresses->address() + reservation.addresses->bytes();
    return address + bytes <= end ? &reservation : nullptr;
  }
};

Reservations& TheReservations() {
  static auto* const reservations = new Reservations;
  return *reservations;
}

bool OnHost(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

CUresult CheckProperties(const CUmemAllocationProp* properties) {
  if (!Knobs().vmm) return CUDA_ERROR_NOT_SUPPORTED;
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  int possible = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (Knobs().fabric != 0) possible |= CU_MEM_HANDLE_TYPE_FABRIC;
  if ((properties->requestedHandleTypes & ~possible) != 0) {
    Explain("memory can be shared by handles of types %#x only, %#x are asked for", static_cast<unsigned>(possible),
            static_cast<unsigned>(properties->requestedHandleTypes));
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if ((properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && Knobs().fabric == 2)
    return CUDA_ERROR_NOT_PERMITTED;
  if (OnHost(properties->location)) return CUDA_SUCCESS;
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  return FindDevice(properties->location.id) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

constexpr const char* kNameFormat = "softgpu-memory-type-%d-id-%d";

CUresult CreateObject(size_t bytes, const CUmemAllocationProp& properties, CUmemGenericAllocationHandle* handle) {
  auto object = std::make_shared<MemoryObject>();
  object->bytes = bytes;
  object->properties = properties;
  char name[64];
  std::snprintf(name, sizeof name, kNameFormat, static_cast<int>(properties.location.type), properties.location.id);
  object->descriptor = memfd_create(name, MFD_CLOEXEC);
  if (object->descriptor < 0 || ftruncate(object->descriptor, static_cast<off_t>(bytes)) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  if (!OnHost(properties.location)) {
    Device* device = FindDevice(properties.location.id);
    if (!device->memory.Charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    object->charged = device;
  }
  *handle = HandleOf(object);
  HandlesOf<MemoryObject>().Add(std::move(object));
  return CUDA_SUCCESS;
}

// Imports an object from another process's descriptor, which it duplicates.
CUresult ImportObject(int descriptor, CUmemGenericAllocationHandle* handle) {
  char target[128] = {};
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(path.c_str(), target, sizeof target - 1);
  const char* name = length > 0 ? std::strstr(target, "softgpu-memory") : nullptr;
  int type = 0, id = 0;
  struct stat file = {};
  if (length > 0 && std::strstr(target, "softgpu-multicast") != nullptr) {
    const MemoryObjectPtr multicast = ImportMulticast(descriptor);
    if (multicast != nullptr) *handle = NewHandleOf(multicast);
    return multicast == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  if (name == nullptr || std::sscanf(name, kNameFormat, &type, &id) != 2 || fstat(descriptor, &file) != 0) {
    Explain("descriptor %d is not memory that cuMemExportToShareableHandle has given out", descriptor);
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto object = std::make_shared<MemoryObject>();
  object->descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  object->bytes = static_cast<size_t>(file.st_size);
  object->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  object->properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  object->properties.location.type = static_cast<CUmemLocationType>(type);
  object->properties.location.id = id;
  if (object->descriptor < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = HandleOf(object);
  HandlesOf<MemoryObject>().Add(std::move(object));
  return CUDA_SUCCESS;
}

CUresult MapObject(CUdeviceptr address, size_t bytes, size_t offset, const MemoryObjectPtr& object) {
  if (address % kGranularity != 0 || bytes == 0 || bytes % kGranularity != 0 || offset % kGranularity != 0 ||
      offset + bytes > object->bytes)
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(TheReservations().mutex);
  const Reservation* const reservation = TheReservations().Find(address, bytes);
  if (reservation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (const Range& range : AddressSpace::Get().All()) {
    if (range.begin < address + bytes && address < range.end()) return CUDA_ERROR_INVALID_VALUE;
  }
  Range range;
  range.begin = address;
  range.bytes = bytes;
  range.offset = offset;
  range.kind = object->multicast == nullptr ? RangeKind::kMapped : RangeKind::kMulticast;
  range.device = object->properties.location.id;
  range.block = object->block;
  if (Knobs().range_ids) range.id = reservation->id;
  range.multicast = object->multicast;
  range.backing = object;
  // Simulates a broken path to memory of other processes.
  const bool imported = object->charged == nullptr && object->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const bool broken = Knobs().corrupt_peer && imported;
  // Readable from cuMemSetAccess on; at a multicast address there is nothing that a program on the host could read.
  void* const at = range.kind == RangeKind::kMulticast
                       ? Pointer(address)
                       : mmap(Pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | (broken ? MAP_ANONYMOUS : 0),
                              broken ? -1 : object->descriptor, broken ? 0 : static_cast<off_t>(offset));
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  AddressSpace::Get().Insert(std::move(range));
  return CUDA_SUCCESS;
}

bool IsMapped(const Range& range) { return range.kind == RangeKind::kMapped || range.kind == RangeKind::kMulticast; }

// Returns all ranges mapped in [address, address + bytes), which they must fill; empty if they do not.
std::vector<Range> MappedIn(uint64_t address, size_t bytes) {
  std::vector<Range> found;
  uint64_t covered = address;
  for (const Range& range : AddressSpace::Get().All()) {
    if (!IsMapped(range) || range.begin != covered || range.end() > address + bytes) continue;
    covered = range.end();
    found.push_back(range);
  }
  return covered == address + bytes ? found : std::vector<Range>();
}

// The devices of the team may access a multicast object.
CUresult SetMulticastAccess(const Range& range, const CUmemAccessDesc& access) {
  const auto object = std::static_pointer_cast<MemoryObject>(range.backing);
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (FindDevice(access.location.id) == nullptr || !object->multicast->Has(access.location.id))
    return CUDA_ERROR_INVALID_DEVICE;
  const bool allowed = access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  AddressSpace::Get().SetAccess(range.begin, access.location.id, allowed);
  // Maps what has been bound, because a process that has bound memory may be gone later.
  engine::MulticastWindow window;
  if (allowed) (void)object->multicast->Resolve(access.location.id, range.offset, &window);
  return CUDA_SUCCESS;
}

CUresult SetAccess(const Range& range, const CUmemAccessDesc& access) {
  if (range.kind == RangeKind::kMulticast) return SetMulticastAccess(range, access);
  const bool allowed = access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  if (access.location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    if (FindDevice(access.location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const bool foreign = access.location.id != range.device;
    const auto object = std::static_pointer_cast<MemoryObject>(range.backing);
    if (foreign && allowed && !Knobs().peer_access && !OnHost(object->properties.location))
      return CUDA_ERROR_INVALID_DEVICE;
    AddressSpace::Get().SetAccess(range.begin, access.location.id, allowed);
  } else if (!OnHost(access.location)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // One protection for all; the address space keeps which device may access what.
  if (allowed) mprotect(Pointer(range.begin), range.bytes, PROT_READ | PROT_WRITE);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu::cuda

using namespace softgpu::cuda;  // NOLINT: the C entry points

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (const CUresult error = CheckProperties(properties); error != CUDA_SUCCESS) return error;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long flags) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (const CUresult error = CheckProperties(properties); error != CUDA_SUCCESS) return error;
  if (flags != 0 || bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  SynchronizeFor(kSyncAlloc);
  return CreateObject(bytes, *properties, handle);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const MemoryObjectPtr object = FindObject(handle);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (--object->handles == 0) HandlesOf<MemoryObject>().Remove(object.get());
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  const std::optional<Range> range = AddressSpace::Get().Find(Address(address));
  if (!range || !IsMapped(*range)) return CUDA_ERROR_INVALID_VALUE;
  // The last handle may be gone while the mapping still exists.
  *handle = NewHandleOf(std::static_pointer_cast<MemoryObject>(range->backing));
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr, unsigned long long) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (!Knobs().vmm) return CUDA_ERROR_NOT_SUPPORTED;
  if (bytes == 0 || bytes % kGranularity != 0 || (alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::unique_ptr<Mapping> reserved = Mapping::Reserve(bytes, std::max(alignment, kGranularity));
  if (reserved == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reserved->address();
  std::lock_guard lock(TheReservations().mutex);
  TheReservations().by_address[*address].addresses = std::move(reserved);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  std::lock_guard lock(TheReservations().mutex);
  const auto found = TheReservations().by_address.find(address);
  if (found == TheReservations().by_address.end() || found->second.addresses->bytes() != bytes)
    return CUDA_ERROR_INVALID_VALUE;
  for (const Range& range : AddressSpace::Get().All()) {
    if (range.begin < address + bytes && address < range.end()) return CUDA_ERROR_INVALID_VALUE;
  }
  TheReservations().by_address.erase(found);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  const MemoryObjectPtr object = FindObject(handle);
  if (object == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (object->multicast != nullptr) object->multicast->AwaitTeam();
  return MapObject(address, bytes, offset, object);
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  const std::vector<Range> ranges = MappedIn(address, bytes);
  if (ranges.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const Range& range : ranges) {
    AddressSpace::Get().Erase(range.begin, range.kind);
    mmap(Pointer(range.begin), range.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* accesses, size_t count) {
  const std::vector<Range> ranges = MappedIn(address, bytes);
  if (ranges.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (const Range& range : ranges) {
    for (size_t i = 0; i < count; ++i) {
      if (const CUresult error = SetAccess(range, accesses[i]); error != CUDA_SUCCESS) return error;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  const std::optional<Range> range = AddressSpace::Get().Find(address);
  if (!range || !IsMapped(*range) || location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  const bool allowed = (range->access >> location->id & 1) != 0;
  *flags = allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  const MemoryObjectPtr object = FindObject(handle);
  if (object == nullptr || shared == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  if ((object->properties.requestedHandleTypes & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  const int descriptor = fcntl(object->descriptor, F_DUPFD_CLOEXEC, 0);
  if (descriptor < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memcpy(shared, &descriptor, sizeof descriptor);
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shared,
                                        CUmemAllocationHandleType type) {
  if (const CUresult error = Ready(); error != CUDA_SUCCESS) return error;
  if (!Knobs().vmm || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  SynchronizeFor(kSyncImport);
  return ImportObject(static_cast<int>(reinterpret_cast<intptr_t>(shared)), handle);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
  const MemoryObjectPtr object = FindObject(handle);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = object->properties;
  return CUDA_SUCCESS;
}
