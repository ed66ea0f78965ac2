#include "transports/cuda_ipc/handle.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "src/base/hash.h"
#include "src/base/service_fd.h"
#include "src/device/cuda/allocation.h"
#include "transports/cuda_ipc/flat_memory.h"

namespace axccl::cuda_ipc {
namespace {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;
using service::Fd;

// Each takes a descriptor while it is offered.
constexpr size_t kMostParts = 512;

// Of this process. `key`: a CUipcMemHandle, or an shm::FileAddress.
template <class Key>
Handle HandleOf(Handle::Kind kind, uint64_t bytes, const Key& key) {
  Handle handle{kind, static_cast<uint32_t>(getpid()), bytes};
  static_assert(sizeof(key) == sizeof(handle.key));
  std::memcpy(handle.key.data(), &key, sizeof(key));
  return handle;
}

// Takes the file at the address that is the key.
Result<Fd> TakeFileOf(const Handle& handle) {
  shm::FileAddress offered;
  std::memcpy(&offered, handle.key.data(), sizeof(offered));
  Fd file;
  const auto copy = [&file](int descriptor) { file = Fd(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); };
  if (shm::UseOfferedFile(offered.token, copy)) return file;  // of this process
  return shm::TakeFile(offered, handle.pid);
}

Result<Exported> OfferFile(Handle::Kind kind, uint64_t bytes, Fd file) {
  Exported exported;
  AXCCL_ASSIGN_OR_RETURN(exported.file, shm::OfferedFile::Make(std::move(file)));
  exported.handle = HandleOf(kind, bytes, exported.file.address());
  return exported;
}

Result<Exported> OfferParts(const Range& range) {
  const Driver& driver = Driver::Loaded();
  if (range.parts.size() > kMostParts)
    return MakeStatus(Code::kInvalidUsage, "a buffer is in %zu allocations, and %zu are the most", range.parts.size(),
                      kMostParts);
  std::vector<Handle> list;
  std::vector<shm::OfferedFile> files;
  std::set<CUmemGenericAllocationHandle> objects;
  CUdeviceptr at = range.base;
  for (const uint64_t bytes : range.parts) {
    CUmemGenericAllocationHandle object = 0;
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemRetainAllocationHandle(&object, reinterpret_cast<void*>(at)));
    Result<Exported> part = OfferObject(object, bytes);
    driver.cuMemRelease(object);
    if (!part.ok()) return part.status();
    if (!objects.insert(object).second)
      return MakeStatus(Code::kInvalidUsage, "an object of virtual memory management is mapped twice in a buffer");
    list.push_back(part.value().handle);
    files.push_back(std::move(part.value().file));
    at += bytes;
  }
  Fd file(memfd_create("axccl-allocations", MFD_CLOEXEC));
  const size_t list_bytes = list.size() * sizeof(Handle);
  if (!file || write(file.get(), list.data(), list_bytes) != static_cast<ssize_t>(list_bytes))
    return service::OpenError(errno, "a list of allocations for other processes: memfd_create");
  AXCCL_ASSIGN_OR_RETURN(Exported exported, OfferFile(Handle::kFiles, range.bytes, std::move(file)));
  exported.parts = std::move(files);
  return exported;
}

// What is wrong with the list is an error.
Result<std::vector<Handle>> PartsOf(const Handle& handle) {
  if (handle.kind == Handle::kFile) return std::vector<Handle>{handle};
  AXCCL_ASSIGN_OR_RETURN(const Fd file, TakeFileOf(handle));
  std::vector<Handle> parts(kMostParts + 1);
  const ssize_t got = pread(file.get(), parts.data(), parts.size() * sizeof(Handle), 0);
  parts.resize(got < 0 ? 0 : static_cast<size_t>(got) / sizeof(Handle));
  uint64_t rest = handle.bytes;
  bool fits = !parts.empty() && parts.size() <= kMostParts;
  for (const Handle& part : parts) {
    fits &= part.kind == Handle::kFile && part.pid == handle.pid && part.bytes != 0 && part.bytes <= rest;
    rest -= part.bytes;
  }
  if (fits && rest == 0) return parts;
  return MakeStatus(Code::kRemoteError, "the list of allocations that process %u offers is wrong", handle.pid);
}

Result<Imported> ImportFiles(const Device& device, const Handle& handle) {
  AXCCL_ASSIGN_OR_RETURN(const std::vector<Handle> parts, PartsOf(handle));
  const auto memory = std::make_shared<FlatMemory>(device);
  AXCCL_RETURN_IF_ERROR(memory->Reserve(handle.bytes));
  uint64_t at = 0;
  for (const Handle& part : parts) {
    AXCCL_ASSIGN_OR_RETURN(const CUmemGenericAllocationHandle object, TakeObject(part));
    AXCCL_RETURN_IF_ERROR(memory->Map(at, object, part.bytes));
    at += part.bytes;
  }
  return Imported{memory->address(), memory};
}

Result<Range> AllocationOf(CUdeviceptr pointer) {
  const Driver& driver = Driver::Loaded();
  Range range;
  size_t bytes = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemGetAddressRange(&range.base, &bytes, pointer));
  AXCCL_RETURN_IF_ERROR(Check(device::cuda::GetAllocationId(pointer, &range.id), "cuPointerGetAttributes"));
  range.bytes = bytes;
  return range;
}

}  // namespace

Result<Exported> OfferObject(CUmemGenericAllocationHandle object, uint64_t bytes) {
  int file = -1;
  const CUresult result =
      Driver::Loaded().cuMemExportToShareableHandle(&file, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  AXCCL_RETURN_IF_ERROR(Check(result, "cuMemExportToShareableHandle"));
  return OfferFile(Handle::kFile, bytes, Fd(file));
}

Result<CUmemGenericAllocationHandle> TakeObject(const Handle& handle) {
  AXCCL_ASSIGN_OR_RETURN(const Fd file, TakeFileOf(handle));
  CUmemGenericAllocationHandle object = 0;
  auto* const shared = reinterpret_cast<void*>(static_cast<intptr_t>(file.get()));
  AXCCL_RETURN_IF_CUDA_ERROR(
      Driver::Loaded().cuMemImportFromShareableHandle(&object, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  return object;
}

Result<Range> RangeOf(const Device& device, CUdeviceptr pointer, uint64_t bytes) {
  const Scope scope(device);
  AXCCL_ASSIGN_OR_RETURN(Range range, AllocationOf(pointer));
  while (pointer - range.base + bytes > range.bytes) {
    const CUdeviceptr end = range.base + range.bytes;
    const Result<Range> next = AllocationOf(end);
    if (!next.ok() || next.value().base != end)
      return MakeStatus(Code::kInvalidUsage, "it begins in %s of %llu bytes and ends behind that",
                        range.parts.empty() ? "an allocation" : "allocations",
                        static_cast<unsigned long long>(range.bytes));
    if (range.parts.empty()) range.parts.push_back(range.bytes);
    range.parts.push_back(next.value().bytes);
    range.bytes += next.value().bytes;
    range.id = Mix(range.id, next.value().id);
  }
  return range;
}

bool MayUse(const Device& device, CUdeviceptr base, const Handle& handle) {
  if (handle.kind != Handle::kFile && handle.kind != Handle::kFiles) return true;
  const Scope scope(device);
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device.ordinal();
  for (CUdeviceptr at = base; at < base + handle.bytes;) {
    const Result<Range> range = AllocationOf(at);
    unsigned long long access = 0;
    if (!range.ok() || Driver::Loaded().cuMemGetAccess(&access, &location, at) != CUDA_SUCCESS ||
        access != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return false;
    at = range.value().base + range.value().bytes;
  }
  return true;
}

Result<Exported> Export(const Device& device, const Range& range) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device);
  if (!range.parts.empty()) return OfferParts(range);
  CUmemGenericAllocationHandle object = 0;
  if (driver.cuMemRetainAllocationHandle(&object, reinterpret_cast<void*>(range.base)) == CUDA_SUCCESS) {
    Result<Exported> exported = OfferObject(object, range.bytes);
    driver.cuMemRelease(object);
    return exported;
  }
  CUipcMemHandle legacy;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuIpcGetMemHandle(&legacy, range.base));
  return Exported{HandleOf(Handle::kLegacy, range.bytes, legacy), {}};
}

Result<Imported> Import(const Device& device, const Handle& handle) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device);
  if (handle.kind == Handle::kFile || handle.kind == Handle::kFiles) return ImportFiles(device, handle);
  if (handle.kind != Handle::kLegacy)
    return MakeStatus(Code::kUnhandledCudaError, "the process that has the memory cannot share it");
  CUipcMemHandle legacy;
  std::memcpy(&legacy, handle.key.data(), sizeof(legacy));
  Imported imported;
  const CUresult result = driver.cuIpcOpenMemHandle(&imported.address, legacy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result == CUDA_ERROR_ALREADY_MAPPED)
    return MakeStatus(Code::kInProgress, "other memory that was at these addresses has not been closed yet");
  AXCCL_RETURN_IF_ERROR(Check(result, "cuIpcOpenMemHandle"));
  return imported;
}

void Close(const Device& device, const Imported& imported) {
  const Scope scope(device);
  if (imported.files == nullptr) {
    Driver::Loaded().cuIpcCloseMemHandle(imported.address);
  } else {
    imported.files->Unmap();
  }
}

}  // namespace axccl::cuda_ipc
