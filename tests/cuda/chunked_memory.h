// Memory of several objects side by side, as an allocator with expandable segments makes it.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "tests/harness/gpu_driver.h"

namespace axccl::tests {

inline constexpr size_t kChunk = size_t{2} << 20;  // the granularity of the software GPU, and of most others

// A function of the driver with its type in cuda.h.
#define AXCCL_TEST_DRIVER(name) reinterpret_cast<decltype(&::name)>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), #name))

// On the device of the calling thread.
class ChunkedMemory {
 public:
  ChunkedMemory(size_t chunks, bool shareable) : bytes_(chunks * kChunk) {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties_.location.id = Device();
    if (shareable) properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemAddressReserve)(&address_, bytes_, 0, 0, 0), CUDA_SUCCESS);
    for (size_t i = 0; i < chunks; ++i) Map(i);
  }
  // Puts another object in the place of one.
  void Replace(size_t chunk) {
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemUnmap)(address_ + chunk * kChunk, kChunk), CUDA_SUCCESS);
    Map(chunk);
  }
  void Allow(size_t chunk, int device) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemSetAccess)(address_ + chunk * kChunk, kChunk, &access, 1), CUDA_SUCCESS);
  }
  ~ChunkedMemory() {
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemUnmap)(address_, bytes_), CUDA_SUCCESS);
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemAddressFree)(address_, bytes_), CUDA_SUCCESS);
  }
  ChunkedMemory(const ChunkedMemory&) = delete;
  ChunkedMemory& operator=(const ChunkedMemory&) = delete;
  char* at(size_t offset = 0) const { return reinterpret_cast<char*>(address_) + offset; }

 private:
  static int Device() {
    CUdevice device = 0;
    (void)harness::EnterGpu();
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuCtxGetDevice)(&device), CUDA_SUCCESS);
    return device;
  }
  void Map(size_t chunk) {
    const CUdeviceptr at = address_ + chunk * kChunk;
    CUmemGenericAllocationHandle object = 0;
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemCreate)(&object, kChunk, &properties_, 0), CUDA_SUCCESS);
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemMap)(at, kChunk, 0, object, 0), CUDA_SUCCESS);
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemRelease)(object), CUDA_SUCCESS);
    Allow(chunk, properties_.location.id);
  }

  const size_t bytes_;
  CUmemAllocationProp properties_{};
  CUdeviceptr address_ = 0;
};

}  // namespace axccl::tests
