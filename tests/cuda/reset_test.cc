// Programs that reset a device (cudaDeviceReset), as test suites do between tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::ExpectLastErrorHas;
using harness::GpuDriver;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

RunOptions TwoDevices() {
  RunOptions options;
  options.environment = {{"SOFTGPU_DEVICES", "2"}};
  return options;
}

void Reset(int device) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto reset = reinterpret_cast<int (*)(int)>(dlsym(library, "cuDevicePrimaryCtxReset_v2"));
  ASSERT_NE(reset, nullptr);
  ASSERT_EQ(reset(device), 0);
}

// The context that the device has now, unlike EnterGpu.
const GpuDriver* Enter(int device) {
  const GpuDriver* const driver = GpuDriver::Get();
  void* context = nullptr;
  EXPECT_EQ(driver->retain_context(&context, device), 0);
  EXPECT_EQ(driver->set_context(context), 0);
  return driver;
}

// Managed memory of this life of the device.
class Numbers {
 public:
  Numbers(int device, size_t count, int32_t value) : device_(device), count_(count) {
    EXPECT_EQ(Enter(device)->allocate_managed(&memory_, count * sizeof(int32_t), 1), 0);
    std::fill_n(get(), count, value);
  }
  ~Numbers() { EXPECT_EQ(Enter(device_)->free_memory(memory_), 0); }
  int32_t* get() const { return reinterpret_cast<int32_t*>(memory_); }
  bool AreAll(int32_t value) const {
    EXPECT_EQ(Enter(device_)->synchronize(nullptr), 0);
    return std::all_of(get(), get() + count_, [=](int32_t number) { return number == value; });
  }

 private:
  const int device_;
  const size_t count_;
  uint64_t memory_ = 0;
};

// A communicator of one rank for each of the first devices, whose calls need tables.
class Together {
 public:
  explicit Together(int ranks) : comms_(static_cast<size_t>(ranks)) {
    const int devices[] = {0, 1};
    EXPECT_OK(ncclCommInitAll(comms_.data(), ranks, devices));
  }
  ncclComm_t first() const { return comms_[0]; }

  ncclResult_t Sum() {
    constexpr size_t kCalls = 40;
    std::vector<std::unique_ptr<Numbers>> numbers;
    int32_t sum = 0;
    for (size_t r = 0; r < comms_.size(); ++r) {
      const auto value = static_cast<int32_t>(r + 1);
      numbers.push_back(std::make_unique<Numbers>(static_cast<int>(r), kCalls, value));
      sum += value;
    }
    EXPECT_OK(ncclGroupStart());
    for (size_t i = 0; i < kCalls; ++i) {
      for (size_t r = 0; r < comms_.size(); ++r)
        (void)ncclAllReduce(numbers[r]->get() + i, numbers[r]->get() + i, 1, ncclInt32, ncclSum, comms_[r], nullptr);
    }
    const ncclResult_t result = ncclGroupEnd();
    for (const auto& own : numbers) EXPECT_TRUE(own->AreAll(sum) || result != ncclSuccess) << own->get()[0];
    return result;
  }
  void Destroy() {
    for (ncclComm_t comm : comms_) EXPECT_OK(ncclCommDestroy(comm));
  }
  // After a failure.
  void End(bool abort) {
    for (ncclComm_t comm : comms_) {
      if (abort) {
        EXPECT_OK(ncclCommAbort(comm));
      } else {
        (void)ncclCommDestroy(comm);
      }
    }
  }

 private:
  std::vector<ncclComm_t> comms_;
};

TEST(Reset, CommunicatorsAreMadeAnew) {
  const auto body = [](RankContext& context) {
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      Together ranks(2);
      ASSERT_OK(ranks.Sum());
      ranks.Destroy();
      for (const int device : {0, 1}) ASSERT_NO_FATAL_FAILURE(Reset(device));
    }
  };
  RunRanks(harness::Processes(1), body, TwoDevices());
}

TEST(Reset, EndsTheCommunicatorsThere) {
  const auto body = [](RankContext& context) {
    for (const auto& [count, abort] : {std::pair(1, true), std::pair(1, false), std::pair(2, true)}) {
      ASSERT_TRUE(context.Step("%d ranks, then %s", count, abort ? "abort" : "destroy"));
      Together ranks(count);
      ASSERT_OK(ranks.Sum());
      ASSERT_NO_FATAL_FAILURE(Reset(0));
      EXPECT_EQ(AwaitError(ranks.first(), 5000), ncclUnhandledCudaError);
      EXPECT_EQ(ranks.Sum(), ncclUnhandledCudaError);
      ExpectLastErrorHas({"CUDA device 0", "was reset (cudaDeviceReset)", "abort"});
      Together others(count);
      ASSERT_OK(others.Sum());
      ranks.End(abort);
      ASSERT_OK(others.Sum());
      others.Destroy();
    }
  };
  RunRanks(harness::Processes(1), body, TwoDevices());
}

TEST(Reset, LeavesOtherDevicesAlone) {
  const auto body = [](RankContext&) {
    const int first = 0, second = 1;
    ncclComm_t here = nullptr, there = nullptr;
    ASSERT_OK(ncclCommInitAll(&here, 1, &first));
    ASSERT_OK(ncclCommInitAll(&there, 1, &second));
    ASSERT_OK(ncclCommDestroy(here));
    ASSERT_NO_FATAL_FAILURE(Reset(0));
    const Numbers words(1, 1000, 5), sums(1, 1000, 0);
    ASSERT_OK(ncclAllReduce(words.get(), sums.get(), 1000, ncclInt32, ncclSum, there, nullptr));
    EXPECT_TRUE(sums.AreAll(5));
    EXPECT_OK(ncclCommDestroy(there));
  };
  RunRanks(harness::Processes(1), body, TwoDevices());
}

}  // namespace
}  // namespace axccl::tests
