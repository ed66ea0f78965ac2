#include "src/device/cuda/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace axccl::device::cuda {

class DeviceTable {
 public:
  static DeviceTable& Process() {
    static DeviceTable* const table = new DeviceTable;
    return *table;
  }

  Result<Device*> Find(int ordinal) {
    std::lock_guard lock(mutex_);
    std::unique_ptr<Device>& device = devices_[ordinal];
    if (device == nullptr || device->was_reset()) {
      auto fresh = std::make_unique<Device>();
      AXCCL_RETURN_IF_ERROR(fresh->Open(ordinal));
      if (device != nullptr) reset_.push_back(std::move(device));
      device = std::move(fresh);
    }
    return device.get();
  }

 private:
  std::mutex mutex_;
  std::map<int, std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Device>> reset_;
};

namespace {

// What the calls of a rank need: programs of plans, channels, tables of views.
constexpr size_t kRankBytes = 1u << 20, kRankPinnedBytes = 256u << 10;
constexpr size_t kStagingBytes = 64u << 10;  // of uploads

}  // namespace

Result<int> Device::Count() {
  AXCCL_ASSIGN_OR_RETURN(const Driver* driver, Driver::Get());
  int count = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver->cuDeviceGetCount(&count));
  return count;
}

Result<int> Device::Current() {
  AXCCL_ASSIGN_OR_RETURN(const Driver* driver, Driver::Get());
  CUcontext context = nullptr;
  AXCCL_RETURN_IF_CUDA_ERROR(driver->cuCtxGetCurrent(&context));
  return context == nullptr ? Result<int>(0) : OrdinalOf(context);
}

Result<int> Device::OrdinalOf(CUcontext context) {
  const Driver& driver = Driver::Loaded();
  CUdevice device = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuCtxPushCurrent(context));
  const CUresult found = driver.cuCtxGetDevice(&device);
  driver.cuCtxPopCurrent(&context);
  AXCCL_RETURN_IF_ERROR(Check(found, "cuCtxGetDevice"));
  AXCCL_ASSIGN_OR_RETURN(const int count, Count());
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice other = 0;
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuDeviceGet(&other, ordinal));
    if (other == device) return ordinal;
  }
  return MakeStatus(Code::kUnhandledCudaError, "a CUDA context is on a device that the driver does not list");
}

Status Device::CheckCurrent() const {
  CUcontext current = nullptr;
  AXCCL_RETURN_IF_ERROR(Check(Driver::Loaded().cuCtxGetCurrent(&current), "cuCtxGetCurrent"));
  if (current == nullptr || current == context_) return Status();
  return MakeStatus(Code::kInvalidUsage,
                    "the thread's context is one that the application has made on CUDA device %d (cuCtxCreate, or of a "
                    "green context), and ranks use the device's primary context; make that current (cudaSetDevice, "
                    "cuDevicePrimaryCtxRetain), and use its streams and memory",
                    ordinal_);
}

Result<Device*> Device::Get(int ordinal) {
  AXCCL_ASSIGN_OR_RETURN(const int count, Count());
  if (ordinal < 0 || ordinal >= count)
    return MakeStatus(Code::kInvalidArgument, "CUDA device %d: there are %d; pass 0..%d", ordinal, count, count - 1);
  return DeviceTable::Process().Find(ordinal);
}

int Device::Attribute(CUdevice_attribute attribute) const {
  int value = 0;
  return Driver::Loaded().cuDeviceGetAttribute(&value, attribute, device_) == CUDA_SUCCESS ? value : 0;
}

Status Device::Open(int ordinal) {
  const Driver& driver = Driver::Loaded();
  ordinal_ = ordinal;
  char name[128] = {};
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuDeviceGet(&device_, ordinal));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuDeviceGetName(name, sizeof(name) - 1, device_));
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuDeviceGetUuid(&uuid_, device_));
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuDeviceGetAttribute(&multiprocessors_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_));
  int major = 0, minor = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_));
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_));
  capability_ = 10 * major + minor;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuDeviceGetAttribute(&sees_host_memory_, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device_));
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuDeviceGetAttribute(&frees_in_order_, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device_));
  name_ = name;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuDevicePrimaryCtxRetain(&context_, device_));
  memory_ = std::make_unique<Arena>(kRankBytes, [this](size_t bytes) -> Result<uintptr_t> {
    AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr chunk, AllocateUncleared(bytes));
    return uintptr_t{chunk};
  });
  pinned_ = std::make_unique<Arena>(kRankPinnedBytes, TakePinned);
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuCtxGetId(context_, &context_id_));
  const Scope scope(*this);
  return Check(driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

CUresult Pin(void* memory, size_t bytes) {
  return Driver::Loaded().cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
}

// Pages of the process, which a reset unpins and leaves where they are: threads look there for what kernels report.
// Children have no use for them, and a fork must not move them away from the device. To be used with the device's
// context.
Result<uintptr_t> Device::TakePinned(size_t bytes) {
  const Driver& driver = Driver::Loaded();
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages != MAP_FAILED) {
    const bool registered = madvise(pages, bytes, MADV_DONTFORK) == 0 && Pin(pages, bytes) == CUDA_SUCCESS;
    CUdeviceptr on_device = 0;
    if (registered && driver.cuMemHostGetDevicePointer(&on_device, pages, 0) == CUDA_SUCCESS &&
        on_device == reinterpret_cast<CUdeviceptr>(pages))
      return reinterpret_cast<uintptr_t>(pages);
    if (registered) driver.cuMemHostUnregister(pages);
    munmap(pages, bytes);
  }
  void* chunk = nullptr;
  AXCCL_RETURN_IF_CUDA_ERROR(
      driver.cuMemHostAlloc(&chunk, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  return reinterpret_cast<uintptr_t>(chunk);
}

Result<CUdeviceptr> Device::Allocate(size_t bytes) const {
  AXCCL_ASSIGN_OR_RETURN(const CUdeviceptr memory, AllocateUncleared(bytes));
  const Status cleared = Clear(memory, bytes);
  if (cleared.ok()) return memory;
  Free(memory);
  return cleared;
}

Result<CUdeviceptr> Device::AllocateUncleared(size_t bytes) const {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*this);
  CUdeviceptr memory = 0;
  if (const CUresult result = driver.cuMemAlloc(&memory, bytes); result != CUDA_SUCCESS) {
    size_t free = 0, total = 0;
    driver.cuMemGetInfo(&free, &total);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return Check(result, "cuMemAlloc");
    return MakeStatus(Code::kUnhandledCudaError,
                      "CUDA device %d (%s): %zu bytes are needed and %zu of %zu are free; free some, "
                      "or lower AXCCL_SCRATCH_BYTES",
                      ordinal_, name_.c_str(), bytes, free, total);
  }
  return memory;
}

void Device::Free(CUdeviceptr memory) const {
  if (was_reset()) return;  // another allocation may be there
  const Driver& driver = Driver::Loaded();
  const Scope scope(*this);
  if (frees_in_order_ == 0 || driver.cuMemFreeAsync(memory, stream_) != CUDA_SUCCESS) {
    driver.cuMemFree(memory);
  } else {
    driver.cuStreamSynchronize(stream_);  // only the library's own transfers are on it
  }
}

Result<CUdeviceptr> Device::Take(size_t bytes) const {
  AXCCL_ASSIGN_OR_RETURN(const uintptr_t memory, memory_->Take(bytes));
  if (const Status cleared = Clear(memory, bytes); !cleared.ok()) {
    memory_->Return(memory);
    return cleared;
  }
  return CUdeviceptr{memory};
}

void Device::Return(CUdeviceptr memory) const { memory_->Return(memory); }

Result<void*> Device::TakeHost(size_t bytes) const {
  const Scope scope(*this);
  AXCCL_ASSIGN_OR_RETURN(const uintptr_t memory, pinned_->Take(bytes));
  auto* const host = reinterpret_cast<std::byte*>(memory);
  std::fill_n(host, bytes, std::byte{0});
  return host;
}

void Device::ReturnHost(void* memory) const { pinned_->Return(reinterpret_cast<uintptr_t>(memory)); }

Status Device::Reserve() const {
  const Scope scope(*this);
  AXCCL_RETURN_IF_ERROR(TakeStaging());
  AXCCL_RETURN_IF_ERROR(memory_->Reserve(kRankBytes));
  const Status pinned = pinned_->Reserve(kRankPinnedBytes);
  if (!pinned.ok()) memory_->Unreserve(kRankBytes);
  return pinned;
}

void Device::Unreserve() const {
  memory_->Unreserve(kRankBytes);
  pinned_->Unreserve(kRankPinnedBytes);
}

Status Device::Clear(CUdeviceptr memory, size_t bytes) const {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*this);
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemsetD8Async(memory, 0, bytes, stream_));
  return Check(driver.cuStreamSynchronize(stream_), "cuStreamSynchronize");
}

Status Device::TakeStaging() const {
  std::lock_guard lock(uploading_);
  if (staging_ != nullptr) return Status();
  AXCCL_ASSIGN_OR_RETURN(const uintptr_t memory, TakePinned(kStagingBytes));
  staging_ = reinterpret_cast<std::byte*>(memory);
  return Status();
}

Status Device::Upload(CUdeviceptr to, const void* from, size_t bytes) const {
  const Driver& driver = Driver::Loaded();
  const Scope scope(*this);
  AXCCL_RETURN_IF_ERROR(TakeStaging());
  std::lock_guard lock(uploading_);
  for (size_t done = 0; done < bytes; done += kStagingBytes) {
    const size_t size = std::min(bytes - done, kStagingBytes);
    std::copy_n(static_cast<const std::byte*>(from) + done, size, staging_);
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuMemcpyHtoDAsync(to + done, staging_, size, stream_));
    AXCCL_RETURN_IF_CUDA_ERROR(driver.cuStreamSynchronize(stream_));
  }
  return Status();
}

// A context that is gone has no number. Other errors, as those of a process that ends, are of no reset.
bool Device::was_reset() const {
  const Driver& driver = Driver::Loaded();
  unsigned flags = 0;
  int active = 1;
  if (driver.cuDevicePrimaryCtxGetState(device_, &flags, &active) != CUDA_SUCCESS) return false;
  unsigned long long id = 0;
  const CUresult result = active != 0 ? driver.cuCtxGetId(context_, &id) : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return result == CUDA_SUCCESS ? id != context_id_
                                : result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
}

Status Device::CheckHealth() const {
  if (was_reset())
    return MakeStatus(Code::kUnhandledCudaError,
                      "CUDA device %d (%s) was reset (cudaDeviceReset) while the communicator was there; destroy "
                      "communicators first, or abort this one and make another",
                      ordinal_, name_.c_str());
  const Scope scope(*this);
  const CUresult result = Driver::Loaded().cuStreamQuery(stream_);
  // The last: the process exits.
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY || result == CUDA_ERROR_DEINITIALIZED) return Status();
  const Status what = Check(result, "cuStreamQuery");
  return MakeStatus(Code::kUnhandledCudaError, "CUDA device %d (%s) no longer runs work of this process: %.*s",
                    ordinal_, name_.c_str(), static_cast<int>(what.message().size()), what.message().data());
}

Status Device::EnablePeer(const Device& peer) const {
  if (peer.ordinal_ == ordinal_) return Status();
  const Driver& driver = Driver::Loaded();
  int can = 0;
  AXCCL_RETURN_IF_CUDA_ERROR(driver.cuDeviceCanAccessPeer(&can, device_, peer.device_));
  if (can == 0)
    return MakeStatus(Code::kInvalidUsage, "CUDA device %d cannot access the memory of device %d", ordinal_,
                      peer.ordinal_);
  const Scope scope(*this);
  const CUresult result = driver.cuCtxEnablePeerAccess(peer.context_, 0);
  return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? Status() : Check(result, "cuCtxEnablePeerAccess");
}

Result<CUmodule> Device::Load(const void* image) const {
  const Scope scope(*this);
  CUmodule module = nullptr;
  const CUresult result = Driver::Loaded().cuModuleLoadData(&module, image);
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU)
    return MakeStatus(Code::kInvalidUsage, "CUDA device %d (%s) is older than what the library was built for", ordinal_,
                      name_.c_str());
  const Status status = Check(result, "cuModuleLoadData");
  if (status.ok()) return module;
  const int version = Driver::Loaded().version;
  return MakeStatus(status.code(), "%.*s (device code of CUDA %d.%d, driver of CUDA %d.%d)",
                    static_cast<int>(status.message().size()), status.message().data(), CUDA_VERSION / 1000,
                    CUDA_VERSION % 1000 / 10, version / 1000, version % 1000 / 10);
}

namespace {

thread_local const Device* t_current = nullptr;  // of the innermost Current
thread_local bool t_relaxed = false;             // within a Scope

}  // namespace

Current::Current(const Device& device) : outer_(std::exchange(t_current, &device)) {
  if (outer_ == &device) return;
  const Driver& driver = Driver::Loaded();
  CUcontext current = nullptr;
  driver.cuCtxGetCurrent(&current);
  if (current != device.context()) pushed_ = driver.cuCtxPushCurrent(device.context()) == CUDA_SUCCESS;
}

Current::~Current() {
  t_current = outer_;
  CUcontext popped = nullptr;
  if (pushed_) Driver::Loaded().cuCtxPopCurrent(&popped);
}

Scope::Scope(const Device& device) : current_(device), outermost_(!std::exchange(t_relaxed, true)) {
  if (outermost_) Driver::Loaded().cuThreadExchangeStreamCaptureMode(&mode_);
}

Scope::~Scope() {
  if (!outermost_) return;
  t_relaxed = false;
  Driver::Loaded().cuThreadExchangeStreamCaptureMode(&mode_);
}

}  // namespace axccl::device::cuda
