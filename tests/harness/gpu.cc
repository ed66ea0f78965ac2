#include "tests/harness/gpu.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace axccl::harness {
namespace {

// The functions used, with the documented types that they have in the driver's binary interface.
struct Driver {
  int (*init)(unsigned flags);
  int (*get_device)(int* device, int ordinal);
  int (*retain_context)(void** context, int device);
  int (*set_context)(void* context);
  int (*allocate_managed)(uint64_t* memory, size_t bytes, unsigned flags);
  int (*free_memory)(uint64_t memory);
  int (*create_stream)(void** stream, unsigned flags);
  int (*synchronize)(void* stream);
  int (*destroy_stream)(void* stream);

  static Driver* Get() {
    static Driver* const driver = Load();
    return driver;
  }

 private:
  static Driver* Load() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == nullptr) {
      ADD_FAILURE() << "AXCCL_TEST_DEVICE=cuda: " << dlerror();
      return nullptr;
    }
    static Driver driver;
    bool good = true;
    const auto find = [&](auto* function, const char* name) {
      *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
      EXPECT_NE(*function, nullptr) << "the CUDA driver has no " << name;
      good = good && *function != nullptr;
    };
    find(&driver.init, "cuInit");
    find(&driver.get_device, "cuDeviceGet");
    find(&driver.retain_context, "cuDevicePrimaryCtxRetain");
    find(&driver.set_context, "cuCtxSetCurrent");
    find(&driver.allocate_managed, "cuMemAllocManaged");
    find(&driver.free_memory, "cuMemFree_v2");
    find(&driver.create_stream, "cuStreamCreate");
    find(&driver.synchronize, "cuStreamSynchronize");
    find(&driver.destroy_stream, "cuStreamDestroy_v2");
    return good && driver.init(0) == 0 ? &driver : nullptr;
  }
};

// Makes the primary context of device 0 the calling thread's.
Driver* Enter() {
  Driver* const driver = Driver::Get();
  static thread_local bool entered = false;
  if (driver == nullptr || entered) return driver;
  int device = 0;
  void* context = nullptr;
  entered = driver->get_device(&device, 0) == 0 && driver->retain_context(&context, device) == 0 &&
            driver->set_context(context) == 0;
  EXPECT_TRUE(entered) << "no context on GPU 0";
  return entered ? driver : nullptr;
}

ncclResult_t ResultOf(int error) { return error == 0 ? ncclSuccess : ncclUnhandledCudaError; }

}  // namespace

bool OnGpu() {
  const char* device = std::getenv("AXCCL_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "cuda";
}

void* GpuAllocate(size_t bytes) {
  constexpr unsigned kAttachGlobal = 1;
  Driver* const driver = Enter();
  uint64_t memory = 0;
  if (driver == nullptr || driver->allocate_managed(&memory, bytes, kAttachGlobal) != 0) return nullptr;
  return reinterpret_cast<void*>(memory);
}

void GpuFree(void* memory) {
  Driver* const driver = Enter();
  if (driver == nullptr) return;
  EXPECT_EQ(driver->free_memory(reinterpret_cast<uint64_t>(memory)), 0);
}

ncclResult_t CreateStream(axcclStream_t* stream) {
  if (!OnGpu()) return axcclStreamCreate(stream, axcclStreamNonBlocking);
  constexpr unsigned kNonBlocking = 1;
  Driver* const driver = Enter();
  void* made = nullptr;
  if (driver == nullptr || driver->create_stream(&made, kNonBlocking) != 0) return ncclUnhandledCudaError;
  *stream = static_cast<axcclStream_t>(made);
  return ncclSuccess;
}

ncclResult_t SynchronizeStream(axcclStream_t stream) {
  if (!OnGpu()) return axcclStreamSynchronize(stream);
  Driver* const driver = Enter();
  return driver != nullptr ? ResultOf(driver->synchronize(stream)) : ncclUnhandledCudaError;
}

ncclResult_t DestroyStream(axcclStream_t stream) {
  if (!OnGpu()) return axcclStreamDestroy(stream);
  Driver* const driver = Enter();
  return driver != nullptr ? ResultOf(driver->destroy_stream(stream)) : ncclUnhandledCudaError;
}

}  // namespace axccl::harness
