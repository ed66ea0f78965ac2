#include "transports/cuda_ipc/handle.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "src/base/service_fd.h"
#include "transports/cuda_ipc/memory.h"

namespace axccl::cuda_ipc {
namespace {

using device::cuda::Check;
using device::cuda::Device;
using device::cuda::Driver;
using device::cuda::Scope;
using service::Fd;

Result<Imported> ImportFile(const Device& device, const Handle& handle) {
  AXCCL_ASSIGN_OR_RETURN(const CUmemGenericAllocationHandle object, TakeObject(handle));
  const int ordinal = device.ordinal();
  const Result<CUdeviceptr> address = MapObject(object, handle.bytes, &ordinal, 1);
  Driver::Loaded().cuMemRelease(object);
  if (!address.ok()) return address.status();
  return Imported{address.value(), handle.bytes};
}

}  // namespace

Result<Exported> OfferObject(CUmemGenericAllocationHandle object, uint64_t bytes) {
  int file = -1;
  const CUresult result =
      Driver::Loaded().cuMemExportToShareableHandle(&file, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  AXCCL_RETURN_IF_ERROR(Check(result, "cuMemExportToShareableHandle"));
  Exported exported;
  AXCCL_ASSIGN_OR_RETURN(exported.file, shm::OfferedFile::Make(Fd(file)));
  const shm::FileAddress& address = exported.file.address();
  static_assert(sizeof(address) == sizeof(exported.handle.key));
  exported.handle.kind = Handle::kFile;
  exported.handle.bytes = bytes;
  exported.handle.pid = static_cast<uint32_t>(getpid());
  std::memcpy(exported.handle.key.data(), &address, sizeof(address));
  return exported;
}

Result<CUmemGenericAllocationHandle> TakeObject(const Handle& handle) {
  shm::FileAddress offered;
  std::memcpy(&offered, handle.key.data(), sizeof(offered));
  Fd file;
  const auto copy = [&file](int descriptor) { file = Fd(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); };
  if (!shm::UseOfferedFile(offered.token, copy)) {  // of another process
    AXCCL_ASSIGN_OR_RETURN(file, shm::TakeFile(offered, handle.pid));
  }
  CUmemGenericAllocationHandle object = 0;
  auto* const shared = reinterpret_cast<void*>(static_cast<intptr_t>(file.get()));
  AXCCL_RETURN_IF_CUDA_ERROR(
      Driver::Loaded().cuMemImportFromShareableHandle(&object, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  return object;
}

Result<Range> RangeOf(const Device& device, CUdeviceptr pointer) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device);
  Range range;
  size_t bytes = 0;
  unsigned long long id = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemGetAddressRange(&range.base, &bytes, pointer));
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_BUFFER_ID};
  void* values[] = {&id};
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuPointerGetAttributes(1, attributes, values, pointer));
  range.bytes = bytes;
  range.id = id;
  return range;
}

Result<Exported> Export(const Device& device, const Range& range) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device);
  CUmemGenericAllocationHandle object = 0;
  if (driver.cuMemRetainAllocationHandle(&object, reinterpret_cast<void*>(range.base)) == CUDA_SUCCESS) {
    Result<Exported> exported = OfferObject(object, range.bytes);
    driver.cuMemRelease(object);
    return exported;
  }
  Exported exported;
  CUipcMemHandle legacy;
  static_assert(sizeof(legacy) == sizeof(exported.handle.key));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuIpcGetMemHandle(&legacy, range.base));
  exported.handle.kind = Handle::kLegacy;
  exported.handle.bytes = range.bytes;
  exported.handle.pid = static_cast<uint32_t>(getpid());
  std::memcpy(exported.handle.key.data(), &legacy, sizeof(legacy));
  return exported;
}

Result<Imported> Import(const Device& device, const Handle& handle) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device);
  if (handle.kind == Handle::kFile) return ImportFile(device, handle);
  if (handle.kind != Handle::kLegacy)
    return MakeStatus(Code::kUnhandledCudaError, "the process that has the memory cannot share it");
  CUipcMemHandle legacy;
  std::memcpy(&legacy, handle.key.data(), sizeof(legacy));
  Imported imported;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuIpcOpenMemHandle(&imported.address, legacy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  return imported;
}

void Close(const Device& device, const Imported& imported) {
  const Scope scope(device);
  if (imported.mapped != 0) {
    UnmapObject(imported.address, imported.mapped);
  } else {
    Driver::Loaded().cuIpcCloseMemHandle(imported.address);
  }
}

}  // namespace axccl::cuda_ipc
