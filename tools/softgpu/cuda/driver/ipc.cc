// cuIpc*: memory and events of other processes. A handle names the server of the exporting process and the key to
// request from it; see descriptor_server.h.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tools/softgpu/cuda/descriptor_server.h"
#include "tools/softgpu/cuda/driver/entry.h"
#include "tools/softgpu/cuda/driver/multicast.h"
#include "tools/softgpu/cuda/settings.h"

namespace softgpu::cuda {
namespace {

constexpr uint32_t kMemoryMagic = 0x6d676673, kEventMagic = 0x65676673;

struct Handle {
  uint32_t magic;
  int32_t device;
  ServerAddress server;
  uint64_t key;     // a range's id, or that of an event
  uint64_t offset;  // in the device's memory
  uint64_t bytes;
  uint64_t address;  // in the process that made it
};
static_assert(sizeof(Handle) <= CU_IPC_HANDLE_SIZE);

// Exported events by key. Keys come from the same numbers as ids of ranges and keys of bound memory, so that one server
// serves all.
struct ExportedEvents {
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<Event>> by_key;
};

ExportedEvents& TheExportedEvents() {
  static auto* const events = new ExportedEvents;
  return *events;
}

int Lookup(uint64_t key) {
  if (const std::optional<Range> range = AddressSpace::Get().FindId(key)) {
    return range->kind == RangeKind::kDevice ? FindDevice(range->device)->memory.descriptor() : -1;
  }
  ExportedEvents& events = TheExportedEvents();
  std::lock_guard lock(events.mutex);
  const auto found = events.by_key.find(key);
  const EventPtr event = found == events.by_key.end() ? nullptr : found->second.lock();
  return event == nullptr ? DescriptorOfBound(key) : event->descriptor;
}

// Memory of other processes that is mapped here. Opening it again gives the same address.
struct Import {
  Handle handle;
  CUdeviceptr address;
  int opened;
};

struct Imports {
  std::mutex mutex;
  std::vector<Import> all;
};

Imports& TheImports() {
  static auto* const imports = new Imports;
  return *imports;
}

template <typename IpcHandle>
bool Unpack(const IpcHandle& packed, uint32_t magic, Handle* handle) {
  std::memcpy(handle, packed.reserved, sizeof *handle);
  return handle->magic == magic;
}

template <typename IpcHandle>
void Pack(const Handle& handle, IpcHandle* packed) {
  *packed = {};
  std::memcpy(packed->reserved, &handle, sizeof handle);
}

CUresult MapImport(const ContextPtr& context, const Handle& handle, CUdeviceptr* address) {
  const int descriptor = FetchDescriptor(handle.server, handle.key);
  if (descriptor < 0) {
    Explain("process %u has ended or has freed the memory of the IPC handle", handle.server.pid);
    return CUDA_ERROR_MAP_FAILED;
  }
  // Simulates a broken path.
  const bool broken = Knobs().corrupt_peer;
  std::shared_ptr<Mapping> mapping = Mapping::Map(handle.bytes, broken ? -1 : descriptor, broken ? 0 : handle.offset);
  close(descriptor);
  if (mapping == nullptr) return CUDA_ERROR_MAP_FAILED;
  Range range;
  range.begin = mapping->address();
  range.bytes = handle.bytes;
  range.kind = RangeKind::kImported;
  range.device = handle.device;
  range.context = context->handle();
  // The device that opens it, and the one that owns it.
  range.access = uint64_t{1} << context->device().ordinal | uint64_t{1} << handle.device;
  range.backing = mapping;
  *address = range.begin;
  AddressSpace::Get().Insert(std::move(range));
  return CUDA_SUCCESS;
}

CUresult OpenMemory(const ContextPtr& context, const Handle& handle, CUdeviceptr* address) {
  if (handle.server.pid == static_cast<uint32_t>(getpid())) {
    Explain("an IPC handle is opened in the process that made it");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (FindDevice(handle.device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (handle.device != context->device().ordinal && !Knobs().peer_access) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  Imports& imports = TheImports();
  std::lock_guard lock(imports.mutex);
  const auto overlaps = [&](const Import& import) {
    const Handle& other = import.handle;
    return other.address < handle.address + handle.bytes && handle.address < other.address + other.bytes;
  };
  for (Import& import : imports.all) {
    if (import.handle.server != handle.server) continue;
    if (import.handle.key != handle.key || import.opened == 0) {
      if (!overlaps(import)) continue;
      Explain("the memory of an IPC handle is where other memory of that process was, which is still open here");
      return CUDA_ERROR_ALREADY_MAPPED;
    }
    ++import.opened;
    *address = import.address;
    AddressSpace::Get().SetAccess(import.address, context->device().ordinal, true);
    return CUDA_SUCCESS;
  }
  if (const CUresult error = MapImport(context, handle, address); error != CUDA_SUCCESS) return error;
  imports.all.push_back({handle, *address, 1});
  return CUDA_SUCCESS;
}

// Makes a page that the processes share.
bool ShareEvent(Event* event) {
  if (event->shared != nullptr) return true;
  if (event->descriptor < 0) {
    event->descriptor = memfd_create("softgpu-event", MFD_CLOEXEC);
    if (event->descriptor < 0 || ftruncate(event->descriptor, kPage) != 0) return false;
  }
  std::shared_ptr<Mapping> page = Mapping::Map(kPage, event->descriptor, 0);
  if (page == nullptr) return false;
  // A fresh page is all zeros, the initial value of the counters.
  event->shared = reinterpret_cast<SharedEvent*>(page->address());
  event->shared_memory = page;
  return true;
}

}  // namespace

bool ServeOwnDescriptors(ServerAddress* address) { return ServeDescriptors(Lookup, address); }

// For cuEventCreate with CU_EVENT_INTERPROCESS.
bool MakeInterprocess(const EventPtr& event) {
  if (!ShareEvent(event.get())) return false;
  event->ipc_id = AddressSpace::Get().NextId();
  ExportedEvents& events = TheExportedEvents();
  std::lock_guard lock(events.mutex);
  events.by_key[event->ipc_id] = event;
  return true;
}

CUresult CannotOpen() { return Knobs().ipc == 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE; }

}  // namespace softgpu::cuda

using namespace softgpu::cuda;  // NOLINT: the C entry points

CUresult cuIpcGetMemHandle(CUipcMemHandle* packed, CUdeviceptr address) {
  return WithContext([&](const ContextPtr&) {
    if (Knobs().ipc == 0) return CUDA_ERROR_NOT_SUPPORTED;
    const std::optional<Range> range = AddressSpace::Get().Find(address);
    if (!range || range->kind != RangeKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
    Handle handle = {};
    handle.magic = kMemoryMagic;
    handle.device = range->device;
    handle.key = range->id;
    handle.offset = std::static_pointer_cast<DeviceMemory::Piece>(range->backing)->offset();
    handle.bytes = range->bytes;
    handle.address = range->begin;
    if (!ServeOwnDescriptors(&handle.server)) return CUDA_ERROR_OPERATING_SYSTEM;
    Pack(handle, packed);
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle packed, unsigned) {
  return WithContext([&](const ContextPtr& context) {
    if (Knobs().ipc != 1) return CannotOpen();
    SynchronizeFor(kSyncImport);
    Handle handle;
    return Unpack(packed, kMemoryMagic, &handle) ? OpenMemory(context, handle, address) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return WithContext([&](const ContextPtr& context) {
    Imports& imports = TheImports();
    {
      std::lock_guard lock(imports.mutex);
      const auto import = std::find_if(imports.all.begin(), imports.all.end(),
                                       [&](const Import& other) { return other.address == address; });
      if (import == imports.all.end()) return CUDA_ERROR_INVALID_VALUE;
      if (--import->opened > 0) return CUDA_SUCCESS;
    }
    // Other threads may open other memory meanwhile, and launch work that this call waits for.
    SynchronizeContext(context);
    AddressSpace::Get().Erase(address, RangeKind::kImported);
    std::lock_guard lock(imports.mutex);
    std::erase_if(imports.all, [&](const Import& import) { return import.address == address && import.opened == 0; });
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* packed, CUevent handle) {
  return WithEvent(handle, [&](const EventPtr& event) {
    if (Knobs().ipc == 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (event->ipc_id == 0) return CUDA_ERROR_INVALID_HANDLE;
    Handle made = {};
    made.magic = kEventMagic;
    made.device = event->context->device().ordinal;
    made.key = event->ipc_id;
    if (!ServeOwnDescriptors(&made.server)) return CUDA_ERROR_OPERATING_SYSTEM;
    Pack(made, packed);
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenEventHandle(CUevent* opened, CUipcEventHandle packed) {
  return WithContext([&](const ContextPtr& context) {
    if (Knobs().ipc != 1) return CannotOpen();
    Handle handle;
    if (!Unpack(packed, kEventMagic, &handle)) return CUDA_ERROR_INVALID_VALUE;
    if (handle.server.pid == static_cast<uint32_t>(getpid())) return CUDA_ERROR_INVALID_CONTEXT;
    auto event = std::make_shared<Event>(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    event->context = context;
    event->descriptor = FetchDescriptor(handle.server, handle.key);
    if (event->descriptor < 0 || !ShareEvent(event.get())) return CUDA_ERROR_MAP_FAILED;
    *opened = reinterpret_cast<CUevent>(HandlesOf<Event>().Add(event));
    return CUDA_SUCCESS;
  });
}
