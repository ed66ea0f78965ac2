// A current context on device 0 and a module of kernels that the tests register.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tools/softgpu/tests/cuda/fake_engine.h"

namespace softgpu::test {

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS)

template <typename T>
T Argument(const fake::Launch& launch, size_t offset) {
  T value;
  std::memcpy(&value, launch.parameters + offset, sizeof value);
  return value;
}

inline constexpr char kPtx[] = R"(
.version 9.0
.target sm_75
.global .b8 counter[8];
.entry add(.param .u64 to, .param .u32 value) {}
.entry wait_flag(.param .u64 flag) {}
.entry set_flag(.param .u64 flag) {}
.entry fail() {}
.entry touch(.param .u64 at) {}
.entry shared() {}
)";

// *to += value
inline fake::Step Add(fake::Launch* launch) {
  auto* to = Argument<uint32_t*>(*launch, 0);
  __atomic_fetch_add(to, Argument<uint32_t>(*launch, 8), __ATOMIC_RELAXED);
  return fake::Step::kDone;
}
inline fake::Step WaitFlag(fake::Launch* launch) {
  const auto* flag = Argument<uint32_t*>(*launch, 0);
  return __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 0 ? fake::Step::kDone : fake::Step::kWaiting;
}
inline fake::Step SetFlag(fake::Launch* launch) {
  __atomic_store_n(Argument<uint32_t*>(*launch, 0), 1, __ATOMIC_RELEASE);
  return fake::Step::kDone;
}
inline fake::Step Fail(fake::Launch*) { return fake::Step::kFailed; }
// Fails if the device may not access the address.
inline fake::Step Touch(fake::Launch* launch) {
  return launch->allowed(*launch, Argument<uint64_t>(*launch, 0)) ? fake::Step::kDone : fake::Step::kFailed;
}

// The fake engine gives it 32 KiB of static shared memory.
inline fake::Step Shared(fake::Launch*) { return fake::Step::kDone; }

inline void RegisterKernels() {
  softgpu_fake_kernel("add", Add);
  softgpu_fake_kernel("wait_flag", WaitFlag);
  softgpu_fake_kernel("set_flag", SetFlag);
  softgpu_fake_kernel("fail", Fail);
  softgpu_fake_kernel("touch", Touch);
  softgpu_fake_kernel("shared", Shared);
}

class DriverTest : public testing::Test {
 protected:
  void SetUp() override {
    RegisterKernels();
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context_, 0));
    OK(cuCtxSetCurrent(context_));
    OK(cuModuleLoadData(&module_, kPtx));
  }
  void TearDown() override {
    cuCtxSetCurrent(nullptr);
    for (int device = 0; device < 4; ++device) cuDevicePrimaryCtxReset(device);
  }

  CUfunction Function(const char* name) {
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, module_, name), CUDA_SUCCESS);
    return function;
  }
  CUresult Launch(const char* name, CUstream stream, std::vector<void*> arguments = {}) {
    return cuLaunchKernel(Function(name), 1, 1, 1, 32, 1, 1, 0, stream, arguments.data(), nullptr);
  }
  CUdeviceptr Zeroed(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemsetD8(address, 0, bytes), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    return address;
  }
  uint32_t Word(CUdeviceptr address) {
    uint32_t word = 0;
    EXPECT_EQ(cuMemcpyDtoH(&word, address, sizeof word), CUDA_SUCCESS);
    return word;
  }
  CUstream NewStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    EXPECT_EQ(cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
  }

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

}  // namespace softgpu::test
