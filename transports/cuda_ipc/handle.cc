#include "transports/cuda_ipc/handle.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <string>
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

Result<Exported> ExportFile(CUmemGenericAllocationHandle object, const Range& range) {
  int file = -1;
  const CUresult result =
      Driver::Loaded().cuMemExportToShareableHandle(&file, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  AXCCL_RETURN_IF_ERROR(Check(result, "cuMemExportToShareableHandle"));
  Exported exported;
  exported.file = Fd(file);
  exported.handle.kind = Handle::kDescriptor;
  exported.handle.descriptor = file;
  exported.handle.bytes = range.bytes;
  exported.handle.pid = static_cast<uint32_t>(getpid());
  return exported;
}

// Calls the kernel by number, because the C library has had these functions only since 2.36.
Result<Fd> TakeFile(uint32_t pid, int descriptor) {
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return service::OpenError(errno, "memory of process " + std::to_string(pid) + ": pidfd_open");
  Fd file(static_cast<int>(syscall(SYS_pidfd_getfd, process.get(), descriptor, 0)));
  if (!file) return SystemError(errno, "memory of process %u: pidfd_getfd", pid);
  return file;
}

Result<Imported> ImportFile(const Device& device, const Handle& handle) {
  const Driver& driver = Driver::Loaded();
  AXCCL_ASSIGN_OR_RETURN(const Fd file, TakeFile(handle.pid, handle.descriptor));
  CUmemGenericAllocationHandle object = 0;
  auto* const shared = reinterpret_cast<void*>(static_cast<intptr_t>(file.get()));
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuMemImportFromShareableHandle(&object, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  const int ordinal = device.ordinal();
  const Result<CUdeviceptr> address = MapObject(object, handle.bytes, &ordinal, 1);
  driver.cuMemRelease(object);
  if (!address.ok()) return address.status();
  return Imported{address.value(), handle.bytes};
}

}  // namespace

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
    Result<Exported> exported = ExportFile(object, range);
    driver.cuMemRelease(object);
    return exported;
  }
  Exported exported;
  CUipcMemHandle legacy;
  static_assert(sizeof(legacy) == sizeof(exported.handle.legacy));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuIpcGetMemHandle(&legacy, range.base));
  exported.handle.kind = Handle::kLegacy;
  exported.handle.bytes = range.bytes;
  exported.handle.pid = static_cast<uint32_t>(getpid());
  std::memcpy(exported.handle.legacy.data(), &legacy, sizeof(legacy));
  return exported;
}

Result<Imported> Import(const Device& device, const Handle& handle) {
  const Driver& driver = Driver::Loaded();
  const Scope scope(device);
  if (handle.kind == Handle::kDescriptor) return ImportFile(device, handle);
  if (handle.kind != Handle::kLegacy)
    return MakeStatus(Code::kUnhandledCudaError, "the process that has the memory cannot share it");
  CUipcMemHandle legacy;
  std::memcpy(&legacy, handle.legacy.data(), sizeof(legacy));
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
