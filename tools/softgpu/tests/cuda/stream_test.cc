// The order of work: streams, events, callbacks, words of memory.
#include <atomic>
#include <thread>

#include "tools/softgpu/tests/cuda/fixture.h"

namespace softgpu::test {
namespace {

using Streams = DriverTest;

TEST_F(Streams, AreInOrder) {
  const CUstream stream = NewStream();
  const CUdeviceptr word = Zeroed(4);
  for (uint32_t i = 1; i <= 100; ++i) OK(cuMemsetD32Async(word, i, 1, stream));
  uint32_t seen = 0;
  OK(cuMemcpyDtoHAsync(&seen, word, 4, stream));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(seen, 100u);
}

TEST_F(Streams, PageableMemoryIsFreeAgainWhenTheCallReturns) {
  const CUstream stream = NewStream();
  CUdeviceptr flag = Zeroed(4), word = Zeroed(4);
  OK(Launch("wait_flag", stream, {&flag}));
  uint32_t value = 8;
  OK(cuMemcpyHtoDAsync(word, &value, 4, stream));
  value = 9;
  OK(Launch("set_flag", NewStream(), {&flag}));
  value = 0;
  OK(cuMemcpyDtoHAsync(&value, word, 4, stream));
  EXPECT_EQ(value, 8u);
}

// More kernels wait than there are threads to run them.
TEST_F(Streams, RunSideBySide) {
  constexpr int kStreams = 40;
  std::vector<CUdeviceptr> flags;
  for (int i = 0; i <= kStreams; ++i) flags.push_back(Zeroed(4));
  // Each waits for the kernel that is started after it.
  for (int i = 0; i < kStreams; ++i) {
    const CUstream stream = NewStream();
    OK(Launch("wait_flag", stream, {&flags[i + 1]}));
    OK(Launch("set_flag", stream, {&flags[i]}));
  }
  OK(Launch("set_flag", NewStream(), {&flags[kStreams]}));
  OK(cuCtxSynchronize());
  EXPECT_EQ(Word(flags[0]), 1u);
}

// "A kernel launch will fail if it is issued to a stream that is not associated to the current device" (CUDA C++
// Programming Guide, multi-device systems).
TEST_F(Streams, TakeKernelsWhileTheirContextIsCurrent) {
  const CUstream stream = NewStream();
  const CUfunction set_flag = Function("set_flag");
  CUdeviceptr flag = Zeroed(4);
  void* arguments[] = {&flag};
  const auto launch = [&] { return cuLaunchKernel(set_flag, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr); };
  CUcontext other = nullptr;
  OK(cuDevicePrimaryCtxRetain(&other, 1));
  for (const CUcontext context : {other, CUcontext{}}) {
    OK(cuCtxSetCurrent(context));
    EXPECT_EQ(launch(), CUDA_ERROR_INVALID_HANDLE);
  }
  OK(cuCtxSetCurrent(context_));
  EXPECT_EQ(Word(flag), 0u);
  OK(launch());
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(Word(flag), 1u);
}

TEST_F(Streams, LegacyStreamOrdersBlockingOnes) {
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT), other = NewStream(CU_STREAM_DEFAULT), free = NewStream();
  CUdeviceptr flag = Zeroed(4), word = Zeroed(4);
  OK(Launch("wait_flag", blocking, {&flag}));
  OK(cuMemsetD32Async(word, 1, 1, nullptr));
  OK(cuMemsetD32Async(word, 2, 1, other));
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuStreamQuery(other), CUDA_ERROR_NOT_READY) << "it follows the legacy stream, which follows the first";
  OK(Launch("set_flag", free, {&flag}));
  OK(cuStreamSynchronize(other));
  EXPECT_EQ(Word(word), 2u);
}

TEST_F(Streams, QueriesReturnWhetherWorkIsDone) {
  const CUstream stream = NewStream();
  CUdeviceptr flag = Zeroed(4);
  CUevent event = nullptr;
  OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS) << "never recorded";
  OK(Launch("wait_flag", stream, {&flag}));
  OK(cuEventRecord(event, stream));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  OK(Launch("set_flag", NewStream(), {&flag}));
  OK(cuEventSynchronize(event));
  EXPECT_EQ(cuEventQuery(event), CUDA_SUCCESS);
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
  OK(cuEventDestroy(event));
}

TEST_F(Streams, EventsOrderStreamsOfAllDevices) {
  CUcontext peer = nullptr;
  OK(cuDevicePrimaryCtxRetain(&peer, 1));
  OK(cuCtxSetCurrent(peer));
  const CUstream there = NewStream();
  OK(cuCtxSetCurrent(context_));
  const CUstream here = NewStream();
  CUdeviceptr flag = Zeroed(4), word = Zeroed(4);
  CUevent event = nullptr;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(Launch("wait_flag", here, {&flag}));
  OK(cuMemsetD32Async(word, 11, 1, here));
  OK(cuEventRecord(event, here));
  OK(cuStreamWaitEvent(there, event, 0));
  uint32_t* seen = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&seen), 4, 0));
  OK(cuMemcpyDtoHAsync(seen, word, 4, there));
  EXPECT_EQ(cuStreamQuery(there), CUDA_ERROR_NOT_READY);
  OK(Launch("set_flag", NewStream(), {&flag}));
  OK(cuStreamSynchronize(there));
  EXPECT_EQ(*seen, 11u);
}

TEST_F(Streams, EventsMeasureTime) {
  CUevent first = nullptr, last = nullptr, silent = nullptr;
  OK(cuEventCreate(&first, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&last, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&silent, CU_EVENT_DISABLE_TIMING));
  const CUstream stream = NewStream();
  OK(cuEventRecord(first, stream));
  OK(cuEventRecord(last, stream));
  OK(cuEventRecord(silent, stream));
  OK(cuStreamSynchronize(stream));
  float milliseconds = -1;
  OK(cuEventElapsedTime(&milliseconds, first, last));
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, first, silent), CUDA_ERROR_INVALID_HANDLE);
}

struct Seen {
  std::atomic<bool> go{false};
  std::atomic<int> calls{0};
};

TEST_F(Streams, HostFunctionsMayBlock) {
  const CUstream stream = NewStream(), other = NewStream();
  Seen seen;
  const CUdeviceptr word = Zeroed(4);
  OK(cuLaunchHostFunc(
      stream,
      [](void* data) {
        auto* state = static_cast<Seen*>(data);
        state->go.wait(false);
        ++state->calls;
      },
      &seen));
  OK(cuMemsetD32Async(word, 1, 1, stream));
  OK(cuMemsetD32Async(word, 2, 1, other));
  OK(cuStreamSynchronize(other)) << "another stream is not delayed";
  EXPECT_EQ(seen.calls, 0);
  seen.go = true;
  seen.go.notify_all();
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(Word(word), 1u);
}

TEST_F(Streams, CallbacksGetStreamAndStatus) {
  const CUstream stream = NewStream();
  Seen seen;
  OK(cuStreamAddCallback(
      stream,
      [](CUstream, CUresult status, void* data) {
        if (status == CUDA_SUCCESS) ++static_cast<Seen*>(data)->calls;
      },
      &seen, 0));
  OK(cuStreamSynchronize(stream));
  EXPECT_EQ(seen.calls, 1);
}

TEST_F(Streams, WaitForWordsAndWriteThem) {
  const CUstream waiter = NewStream(), writer = NewStream();
  const CUdeviceptr words = Zeroed(16), result = Zeroed(4);
  OK(cuStreamWaitValue32(waiter, words, 3, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuStreamWaitValue64(waiter, words + 8, 1, CU_STREAM_WAIT_VALUE_EQ));
  OK(cuMemsetD32Async(result, 1, 1, waiter));
  OK(cuStreamWriteValue32(writer, words, 4, CU_STREAM_WRITE_VALUE_DEFAULT));
  OK(cuStreamSynchronize(writer));
  EXPECT_EQ(cuStreamQuery(waiter), CUDA_ERROR_NOT_READY);
  OK(cuStreamWriteValue64(writer, words + 8, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  OK(cuStreamSynchronize(waiter));
  EXPECT_EQ(Word(result), 1u);
  EXPECT_EQ(cuStreamWaitValue32(waiter, words + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Streams, DestroyedOnesFinishTheirWork) {
  CUdeviceptr flag = Zeroed(4), word = Zeroed(4);
  const CUstream stream = NewStream();
  OK(Launch("wait_flag", stream, {&flag}));
  OK(cuMemsetD32Async(word, 6, 1, stream));
  OK(cuStreamDestroy(stream));
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  OK(Launch("set_flag", NewStream(), {&flag}));
  OK(cuCtxSynchronize());
  EXPECT_EQ(Word(word), 6u);
}

TEST_F(Streams, PerThreadStreamsBelongToTheirThread) {
  unsigned long long first = 0, second = 0, again = 0;
  OK(cuStreamGetId(CU_STREAM_PER_THREAD, &first));
  OK(cuStreamGetId(CU_STREAM_PER_THREAD, &again));
  EXPECT_EQ(first, again);
  std::thread([&] {
    cuCtxSetCurrent(context_);
    cuStreamGetId(CU_STREAM_PER_THREAD, &second);
  }).join();
  EXPECT_NE(first, second);
  EXPECT_NE(second, 0u);
}

TEST_F(Streams, ManyThreadsManyStreams) {
  CUdeviceptr word = Zeroed(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      cuCtxSetCurrent(context_);
      CUstream stream = nullptr;
      cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
      uint32_t one = 1;
      CUdeviceptr to = word;
      for (int i = 0; i < 100; ++i) Launch("add", stream, {&to, &one});
      cuStreamSynchronize(stream);
      cuStreamDestroy(stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Word(word), 800u);
}

}  // namespace
}  // namespace softgpu::test
