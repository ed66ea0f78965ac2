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
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = Device();
    if (shareable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemAddressReserve)(&address_, bytes_, 0, 0, 0), CUDA_SUCCESS);
    for (size_t i = 0; i < chunks; ++i) {
      CUmemGenericAllocationHandle object = 0;
      EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemCreate)(&object, kChunk, &properties, 0), CUDA_SUCCESS);
      EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemMap)(address_ + i * kChunk, kChunk, 0, object, 0), CUDA_SUCCESS);
      EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemRelease)(object), CUDA_SUCCESS);
    }
    EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemSetAccess)(address_, bytes_, &access, 1), CUDA_SUCCESS);
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
  const size_t bytes_;
  CUdeviceptr address_ = 0;
};

}  // namespace axccl::tests
