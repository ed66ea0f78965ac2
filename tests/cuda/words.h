// Shared by the tests of GPU ranks: memory of the GPU that the test reads and writes, and small calls on it.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/gpu_driver.h"
#include "tests/harness/timing.h"

namespace axccl::tests {

// Managed memory. Freeing it waits for all work on the device, so a test frees nothing while peers of its process wait
// for its calls.
class Words {
 public:
  explicit Words(size_t size, int32_t value = 0)
      : size_(size), data_(static_cast<int32_t*>(harness::GpuAllocate(size * sizeof(int32_t)))) {
    Fill(value);
  }
  ~Words() { harness::GpuFree(data_); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  int32_t* get() { return data_; }
  const int32_t* get() const { return data_; }
  size_t size() const { return size_; }
  void Fill(int32_t value) { std::fill_n(data_, size_, value); }
  bool AreAll(int32_t value) const {
    return std::all_of(data_, data_ + size_, [value](int32_t word) { return word == value; });
  }

 private:
  const size_t size_;
  int32_t* const data_;
};

inline ncclResult_t Sum(Words* in, Words* out, ncclComm_t comm, axcclStream_t stream) {
  return ncclAllReduce(in->get(), out->get(), in->size(), ncclInt32, ncclSum, comm, harness::Cuda(stream));
}

// How long an all-reduce of so many floats would take, in us.
inline float EstimateOf(const harness::Clique& clique, size_t count, ncclRedOp_t op) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  Words words(1);  // of the first ones
  EXPECT_OK(ncclGroupStart());
  EXPECT_OK(
      ncclAllReduce(words.get(), words.get(), count, ncclFloat32, op, clique.comm(), harness::Cuda(clique.stream())));
  EXPECT_OK(ncclGroupSimulateEnd(&info));
  return info.estimatedTime;
}

// Returns the first result of ncclCommGetAsyncError other than success, or success after `limit_ms` (and the tolerance
// of tests).
inline ncclResult_t AwaitError(ncclComm_t comm, uint64_t limit_ms) {
  ncclResult_t state = ncclSuccess;
  for (const uint64_t start = harness::NowNs();
       state == ncclSuccess && harness::NowNs() < start + harness::AllowedNs(limit_ms);) {
    EXPECT_OK(ncclCommGetAsyncError(comm, &state));
    harness::LookLater();
  }
  return state;
}

// Aborts the communicator of the thread's rank.
inline void Abort(harness::Clique* clique) {
  ASSERT_OK(ncclCommAbort(clique->comm()));
  clique->ForgetComms();
}

// All ranks have seen a failure: they abort their communicators, and none goes on before all have.
// An abort frees memory of the GPU, which waits for other work of the process there.
inline void AbortTogether(harness::RankContext& context, harness::Clique* clique) {
  ASSERT_TRUE(context.Barrier());
  ASSERT_NO_FATAL_FAILURE(Abort(clique));
  ASSERT_TRUE(context.Barrier());
}

// A deadline that no call misses by itself: 1.5 s, or a few more on a loaded machine.
inline std::string Deadline() { return std::to_string(std::lround(harness::Crowding())) + ".5"; }

inline harness::RunOptions Within(const std::string& seconds) {
  harness::RunOptions options;
  options.environment = {{"AXCCL_TIMEOUT", seconds}};
  return options;
}

// A counter of the software GPU (tools/softgpu/cuda/driver), null elsewhere.
using GpuCounter = uint64_t (*)();
inline GpuCounter CounterOf(const char* name) {
  return reinterpret_cast<GpuCounter>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

// Makes `then` wait for what is on `first` now.
inline void Follow(axcclStream_t first, axcclStream_t then) {
  const harness::GpuDriver* const driver = harness::EnterGpu();
  void* event = nullptr;
  ASSERT_EQ(driver->create_event(&event, 2), 0);
  ASSERT_EQ(driver->record_event(event, first), 0);
  ASSERT_EQ(driver->stream_wait_event(then, event, 0), 0);
  ASSERT_EQ(driver->destroy_event(event), 0);
}

// All ranks share one multiprocessor.
inline harness::RunOptions SmallGpu(int devices = 1) {
  harness::RunOptions options;
  options.environment = {{"SOFTGPU_DEVICES", std::to_string(devices)}, {"SOFTGPU_MULTIPROCESSORS", "1"}};
  return options;
}

}  // namespace axccl::tests
