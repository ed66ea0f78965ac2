// Windows and registrations of GPU memory. Runs with AXCCL_TEST_DEVICE=cuda only; windows are refused unless
// AXCCL_GPU_WINDOWS is 1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "nccl.h"
#include "tests/harness/client.h"
#include "tests/harness/gpu.h"

namespace axccl::harness {
namespace {

class GpuWindow : public testing::Test {
 protected:
  void SetUp() override {
    if (!OnGpu()) GTEST_SKIP() << "AXCCL_TEST_DEVICE is not cuda";
    void* managed = GpuAllocate(64);  // makes device 0 the thread's device
    ASSERT_NE(managed, nullptr);
    GpuFree(managed);
    const int device = 0;
    ASSERT_OK(ncclCommInitAll(&comm_, 1, &device));
  }
  void TearDown() override {
    if (comm_ == nullptr) return;
    EXPECT_OK(ncclCommDestroy(comm_));
  }

  ncclResult_t Register(void* memory, size_t bytes) {
    return ncclCommWindowRegister(comm_, memory, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC);
  }

  ncclComm_t comm_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

constexpr size_t kBytes = 1 << 20;
const bool kTaken = std::getenv("AXCCL_GPU_WINDOWS") != nullptr;

// A kernel that used it as one of NCCL would access an illegal address.
TEST_F(GpuWindow, IsRefusedUnlessTheProgramSaysThatNoKernelUsesIt) {
  if (kTaken) GTEST_SKIP() << "AXCCL_GPU_WINDOWS is set";
  void* memory = nullptr;
  ASSERT_OK(ncclMemAlloc(&memory, kBytes));
  EXPECT_EQ(Register(memory, kBytes), ncclInvalidUsage);
  EXPECT_EQ(window_, nullptr);
  ExpectLastErrorHas({"ncclCommWindowRegister", "kernels", "AXCCL_GPU_WINDOWS=1"});
  void* handle = nullptr;
  ASSERT_OK(ncclCommRegister(comm_, memory, kBytes, &handle));
  EXPECT_OK(ncclCommDeregister(comm_, handle));
  EXPECT_OK(ncclMemFree(memory));
}

TEST_F(GpuWindow, TakesMemoryOfTheDevice) {
  if (!kTaken) GTEST_SKIP() << "AXCCL_GPU_WINDOWS is not set";
  void* allocated = nullptr;
  ASSERT_OK(ncclMemAlloc(&allocated, kBytes));
  void* managed = GpuAllocate(kBytes);
  ASSERT_NE(managed, nullptr);
  for (void* memory : {allocated, managed}) {
    ASSERT_OK(Register(memory, kBytes));
    void* found = nullptr;
    EXPECT_OK(ncclWinGetUserPtr(comm_, window_, &found));
    EXPECT_EQ(found, memory);
    EXPECT_OK(ncclCommWindowDeregister(comm_, window_));
    ASSERT_OK(Register(static_cast<char*>(memory) + 4096, 8192));
    EXPECT_OK(ncclCommWindowDeregister(comm_, window_));
    void* handle = nullptr;
    ASSERT_OK(ncclCommRegister(comm_, memory, kBytes, &handle));
    EXPECT_OK(ncclCommDeregister(comm_, handle));
  }
  GpuFree(managed);
  EXPECT_OK(ncclMemFree(allocated));
}

// Some systems let kernels use any host memory; a freed address is invalid everywhere.
TEST_F(GpuWindow, RefusesInvalidMemory) {
  EXPECT_EQ(Register(nullptr, kBytes), ncclInvalidArgument);
  EXPECT_EQ(window_, nullptr);
  std::vector<char> host(4096);
  const ncclResult_t result = Register(host.data(), host.size());
  if (result == ncclSuccess || result == ncclInvalidUsage) {
    if (result == ncclSuccess) {
      EXPECT_OK(ncclCommWindowDeregister(comm_, window_));
    }
    GTEST_SKIP() << "this device can use all memory of the host";
  }
  EXPECT_EQ(result, ncclInvalidArgument);
  EXPECT_EQ(window_, nullptr);
  EXPECT_NE(std::string(ncclGetLastError(comm_)).find("ncclCommWindowRegister: argument buff"), std::string::npos)
      << ncclGetLastError(comm_);
}

}  // namespace
}  // namespace axccl::harness
