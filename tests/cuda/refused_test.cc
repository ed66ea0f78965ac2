// GPU ranks refuse what they do not support where it is requested, with a text that gives an alternative.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "axccl/channels.h"
#include "axccl/views.h"
#include "tests/cuda/chunked_memory.h"
#include "tests/cuda/words.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::ExpectLastErrorHas;
using harness::ExpectNoInit;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

RunOptions With(std::vector<std::pair<std::string, std::string>> environment) {
  RunOptions options;
  options.environment = std::move(environment);
  return options;
}

// ---- arguments ----

TEST(Arguments, MemoryOfTheHost) {
  RunRanks(harness::Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    std::vector<int32_t> host(100);
    Words data(100, 1);
    const auto sum = [&](const void* in, void* out) {
      return ncclAllReduce(in, out, 100, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream()));
    };
    EXPECT_EQ(sum(host.data(), data.get()), ncclInvalidArgument);
    ExpectLastErrorHas({"sendbuff", "CUDA device 0", "cudaMalloc"});
    EXPECT_EQ(sum(data.get(), host.data()), ncclInvalidArgument);
    ExpectLastErrorHas({"recvbuff"});
    // In a group, the group's end returns the error and nothing is launched.
    ASSERT_OK(ncclGroupStart());
    EXPECT_OK(sum(data.get(), data.get()));
    EXPECT_EQ(ncclSend(host.data(), 100, ncclInt32, 0, clique.comm(), Cuda(clique.stream())), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    // The communicator still works.
    ASSERT_OK(sum(data.get(), data.get()));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(data.AreAll(1));
  });
}

// Memory of cuMemCreate and of pools is for its own device until its owner says otherwise; an access by another one
// ends all work of the process.
TEST(Arguments, MemoryThatPeersMayNotAccess) {
  const auto body = [](bool refused) {
    constexpr int kRanks = 2, kDevices[kRanks] = {0, 1};
    constexpr size_t kWords = 100'000;
    ncclComm_t comms[kRanks] = {};
    ASSERT_OK(ncclCommInitAll(comms, kRanks, kDevices));
    const harness::GpuDriver* driver = nullptr;
    const auto sum = [&](void* const* data, size_t count) -> ncclResult_t {
      EXPECT_OK(ncclGroupStart());
      for (int r = 0; r < kRanks; ++r) {
        driver = EnterGpu(r);
        (void)ncclAllReduce(data[r], data[r], count, ncclInt32, ncclSum, comms[r], nullptr);
      }
      const ncclResult_t result = ncclGroupEnd();
      for (int r = 0; r < kRanks; ++r) {
        driver = EnterGpu(r);
        EXPECT_OK(harness::SynchronizeStream(nullptr));
      }
      return result;
    };
    const auto expect_sum = [&](void* const* data, size_t count, bool allowed) {
      for (int r = 0; r < kRanks; ++r)
        EXPECT_EQ(EnterGpu(r)->fill(reinterpret_cast<uint64_t>(data[r]), static_cast<unsigned>(r + 1), count, nullptr),
                  0);
      EXPECT_EQ(sum(data, count), allowed ? ncclSuccess : ncclInvalidArgument) << ncclGetLastError(nullptr);
      if (!allowed) {
        ExpectLastErrorHas({"sendbuff", "may not access", "NCCL_P2P_DIRECT_DISABLE=1"});
        return;
      }
      for (int r = 0; r < kRanks; ++r) {
        std::vector<int32_t> words(count);
        EXPECT_EQ(EnterGpu(r)->copy_to_host(words.data(), reinterpret_cast<uint64_t>(data[r]), count * 4), 0);
        EXPECT_EQ(words, std::vector<int32_t>(count, 3));
      }
    };
    std::unique_ptr<ChunkedMemory> mapped[kRanks];
    CUmemoryPool pools[kRanks] = {};
    void *of_objects[kRanks] = {}, *of_pools[kRanks] = {};
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_NE(EnterGpu(r), nullptr);
      mapped[r] = std::make_unique<ChunkedMemory>(1, false);
      of_objects[r] = mapped[r]->at();
      CUdeviceptr address = 0;
      ASSERT_EQ(AXCCL_TEST_DRIVER(cuDeviceGetDefaultMemPool)(&pools[r], r), CUDA_SUCCESS);
      ASSERT_EQ(AXCCL_TEST_DRIVER(cuMemAllocAsync)(&address, kWords * 4, nullptr), CUDA_SUCCESS);
      of_pools[r] = reinterpret_cast<void*>(address);
    }
    for (void* const* data : {of_objects, of_pools}) expect_sum(data, kWords, !refused);
    for (int r = 0; r < kRanks; ++r) {
      CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 1 - r}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      ASSERT_EQ(AXCCL_TEST_DRIVER(cuMemPoolSetAccess)(pools[r], &access, 1), CUDA_SUCCESS);
      mapped[r]->Allow(0, 1 - r);
    }
    for (void* const* data : {of_objects, of_pools}) expect_sum(data, kWords, true);
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_NE(EnterGpu(r), nullptr);
      EXPECT_EQ(AXCCL_TEST_DRIVER(cuMemFreeAsync)(reinterpret_cast<CUdeviceptr>(of_pools[r]), nullptr), CUDA_SUCCESS);
      EXPECT_OK(ncclCommDestroy(comms[r]));
    }
  };
  struct {
    const char *algorithms, *disabled;
    bool refused;
  } const kCases[] = {{"direct", "0", true}, {"direct", "1", false}, {"oneshot", "0", false}};
  for (const auto& c : kCases) {
    const RunOptions options =
        With({{"SOFTGPU_DEVICES", "2"}, {"NCCL_ALGO", c.algorithms}, {"NCCL_P2P_DIRECT_DISABLE", c.disabled}});
    RunRanks(
        harness::Processes(1), [=](RankContext&) { body(c.refused); }, options);
  }
}

// The check sees all of a buffer, and what is there now, whatever context the calling thread has.
TEST(Arguments, ChunksThatPeersMayNotAccess) {
  const auto body = [](RankContext&) {
    constexpr int kRanks = 2, kDevices[kRanks] = {0, 1};
    constexpr size_t kWordsOfChunk = kChunk / sizeof(int32_t);
    ncclComm_t comms[kRanks] = {};
    ASSERT_OK(ncclCommInitAll(comms, kRanks, kDevices));
    std::unique_ptr<ChunkedMemory> memory[kRanks];
    axcclStream_t streams[kRanks] = {};
    for (int r = 0; r < kRanks; ++r) {
      void* stream = nullptr;
      ASSERT_EQ(EnterGpu(r)->create_stream(&stream, CU_STREAM_NON_BLOCKING), 0);
      streams[r] = static_cast<axcclStream_t>(stream);
      memory[r] = std::make_unique<ChunkedMemory>(2, false);
    }
    const auto sum = [&](size_t words) {
      EXPECT_OK(ncclGroupStart());
      for (int r = 0; r < kRanks; ++r)
        (void)ncclAllReduce(memory[r]->at(), memory[r]->at(), words, ncclInt32, ncclSum, comms[r], Cuda(streams[r]));
      return ncclGroupEnd();
    };
    const auto expect_refused = [&](size_t words) {
      EXPECT_EQ(sum(words), ncclInvalidArgument);
      ExpectLastErrorHas({"sendbuff", "may not access"});
    };
    const auto expect_sum = [&](size_t words) {
      EXPECT_EQ(sum(words), ncclSuccess) << ncclGetLastError(nullptr);
      for (int r = 0; r < kRanks; ++r) {
        EXPECT_NE(EnterGpu(r), nullptr);
        EXPECT_OK(harness::SynchronizeStream(streams[r]));
      }
    };
    std::thread([&] { expect_refused(kWordsOfChunk); }).join();  // which has no context
    for (int r = 0; r < kRanks; ++r) memory[r]->Allow(0, 1 - r);
    expect_sum(kWordsOfChunk);
    expect_refused(2 * kWordsOfChunk);
    ExpectLastErrorHas({("from byte " + std::to_string(kChunk) + " on").c_str()});
    for (int r = 0; r < kRanks; ++r) memory[r]->Allow(1, 1 - r);
    expect_sum(2 * kWordsOfChunk);
    for (int r = 0; r < kRanks; ++r) memory[r]->Replace(1);
    expect_refused(2 * kWordsOfChunk);
    expect_sum(kWordsOfChunk);
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_NE(EnterGpu(r), nullptr);
      EXPECT_OK(ncclCommDestroy(comms[r]));
      EXPECT_EQ(EnterGpu(r)->destroy_stream(streams[r]), 0);
      memory[r].reset();
    }
  };
  // Also where CUDA's numbers of allocations are those of addresses.
  for (const char* range_ids : {"0", "1"})
    RunRanks(harness::Processes(1), body,
             With({{"SOFTGPU_DEVICES", "2"}, {"NCCL_ALGO", "direct"}, {"SOFTGPU_RANGE_IDS", range_ids}}));
}

// A direct all-gather writes the output of others, and reads its own input alone.
TEST(Arguments, MemoryThatPeersDoNotUse) {
  const auto body = [](RankContext&) {
    constexpr int kRanks = 2, kDevices[kRanks] = {0, 1};
    constexpr size_t kWords = 100'000;
    ncclComm_t comms[kRanks] = {};
    ASSERT_OK(ncclCommInitAll(comms, kRanks, kDevices));
    std::unique_ptr<ChunkedMemory> own[kRanks];
    std::unique_ptr<Words> of_all[kRanks];
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_NE(EnterGpu(r), nullptr);
      own[r] = std::make_unique<ChunkedMemory>(1, false);
      of_all[r] = std::make_unique<Words>(kRanks * kWords, -1);
      const auto input = reinterpret_cast<uint64_t>(own[r]->at());
      ASSERT_EQ(EnterGpu(r)->fill(input, static_cast<unsigned>(r + 1), kWords, nullptr), 0);
    }
    const auto gather = [&](auto input, auto output) {
      EXPECT_OK(ncclGroupStart());
      for (int r = 0; r < kRanks; ++r) {
        EXPECT_NE(EnterGpu(r), nullptr);
        (void)ncclAllGather(input(r), output(r), kWords, ncclInt32, comms[r], nullptr);
      }
      return ncclGroupEnd();
    };
    const auto private_memory = [&](int r) -> void* { return own[r]->at(); };
    const auto memory_of_all = [&](int r) -> void* { return of_all[r]->get(); };
    EXPECT_EQ(gather(private_memory, memory_of_all), ncclSuccess) << ncclGetLastError(nullptr);
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_NE(EnterGpu(r), nullptr);
      EXPECT_OK(harness::SynchronizeStream(nullptr));
      std::vector<int32_t> words(kRanks * kWords), gathered(kWords, 1);
      gathered.resize(kRanks * kWords, 2);
      EXPECT_EQ(EnterGpu(r)->copy_to_host(words.data(), reinterpret_cast<uint64_t>(of_all[r]->get()), words.size() * 4),
                0);
      EXPECT_EQ(words, gathered);
    }
    EXPECT_EQ(gather(memory_of_all, private_memory), ncclInvalidArgument);
    ExpectLastErrorHas({"recvbuff", "may not access"});
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_NE(EnterGpu(r), nullptr);
      of_all[r].reset();
      EXPECT_OK(ncclCommDestroy(comms[r]));
    }
  };
  RunRanks(harness::Processes(1), body, With({{"SOFTGPU_DEVICES", "2"}, {"NCCL_ALGO", "direct"}}));
}

TEST(Arguments, ScalarOfTheHost) {
  RunRanks(harness::Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    auto host = std::make_unique<int32_t>(3);
    ncclRedOp_t op;
    EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, host.get(), ncclInt32, ncclScalarDevice, clique.comm()),
              ncclInvalidArgument);
    ExpectLastErrorHas({"ncclRedOpCreatePreMulSum", "argument scalar", "CUDA device 0", "cudaMalloc"});
    Words data(100, 2), scalar(1, 3);
    ASSERT_OK(ncclRedOpCreatePreMulSum(&op, scalar.get(), ncclInt32, ncclScalarDevice, clique.comm()));
    ASSERT_OK(ncclAllReduce(data.get(), data.get(), 100, ncclInt32, op, clique.comm(), Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(data.AreAll(6));
    EXPECT_OK(ncclRedOpDestroy(op, clique.comm()));
  });
}

TEST(Arguments, MemoryOfAnotherDevice) {
  const auto body = [](RankContext& context) {
    const harness::GpuDriver* const driver = EnterGpu(1);
    ASSERT_NE(driver, nullptr);
    uint64_t memory = 0;
    ASSERT_EQ(driver->allocate(&memory, 4096), 0);
    ASSERT_NE(EnterGpu(0), nullptr);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    void* const elsewhere = reinterpret_cast<void*>(memory);
    EXPECT_EQ(ncclAllReduce(elsewhere, elsewhere, 100, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())),
              ncclInvalidArgument);
    ExpectLastErrorHas({"CUDA device 1", "device 0"});
    ASSERT_EQ(driver->free_memory(memory), 0);
  };
  RunRanks(harness::Processes(1), body, With({{"SOFTGPU_DEVICES", "2"}}));
}

// A communicator is none the worse for a call on a stream that it cannot use.
TEST(Arguments, StreamOfAnotherDevice) {
  const auto body = [](RankContext&) {
    constexpr int kRanks = 2, kDevices[kRanks] = {0, 1};
    ncclComm_t comms[kRanks] = {};
    ASSERT_OK(ncclCommInitAll(comms, kRanks, kDevices));
    void* streams[kRanks] = {};
    Words data(100, 1), other(100, 2);
    for (int r = 0; r < kRanks; ++r) ASSERT_EQ(EnterGpu(r)->create_stream(&streams[r], CU_STREAM_NON_BLOCKING), 0);
    const auto sum = [&](int rank, int of) {
      void* const memory = (rank == 0 ? data : other).get();
      const auto stream = static_cast<axcclStream_t>(streams[of]);
      return ncclAllReduce(memory, memory, 100, ncclInt32, ncclSum, comms[rank], Cuda(stream));
    };
    EXPECT_EQ(sum(0, 1), ncclInvalidArgument);
    ExpectLastErrorHas(
        {"rank 0 calls ncclAllReduce", "argument stream", "of CUDA device 1", "on device 0", "cudaSetDevice"});
    const auto sums = [&](int of) {
      EXPECT_OK(ncclGroupStart());
      for (int r = 0; r < kRanks; ++r) EXPECT_OK(sum(r, r == 1 ? of : 0));
      return ncclGroupEnd();
    };
    EXPECT_EQ(sums(0), ncclInvalidArgument);
    ExpectLastErrorHas({"rank 1 calls ncclAllReduce", "of CUDA device 0"});
    EXPECT_EQ(sums(1), ncclSuccess) << ncclGetLastError(nullptr);
    // A stream that takes the place of another one.
    ASSERT_EQ(EnterGpu(1)->synchronize(streams[1]), 0);
    ASSERT_EQ(EnterGpu(1)->destroy_stream(streams[1]), 0);
    ASSERT_EQ(EnterGpu(0)->create_stream(&streams[1], CU_STREAM_NON_BLOCKING), 0);
    EXPECT_EQ(sums(1), ncclInvalidArgument);
    for (int r = 0; r < kRanks; ++r) {
      EXPECT_EQ(EnterGpu(0)->synchronize(streams[r]), 0);
      EXPECT_EQ(EnterGpu(0)->destroy_stream(streams[r]), 0);
      ncclResult_t state = ncclInProgress;
      EXPECT_OK(ncclCommGetAsyncError(comms[r], &state));
      EXPECT_EQ(state, ncclSuccess);
      EXPECT_OK(ncclCommDestroy(comms[r]));
    }
    EXPECT_TRUE(data.AreAll(3) && other.AreAll(3)) << data.get()[0] << " " << other.get()[0];
  };
  RunRanks(harness::Processes(1), body, With({{"SOFTGPU_DEVICES", "2"}}));
}

// Ranks live in the primary context, whose streams and memory others do not share.
TEST(Arguments, ContextsOfTheApplication) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(100, 1);
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    const auto create = reinterpret_cast<int (*)(void**, unsigned, int)>(dlsym(library, "cuCtxCreate_v2"));
    const auto destroy = reinterpret_cast<int (*)(void*)>(dlsym(library, "cuCtxDestroy_v2"));
    void* own = nullptr;
    ASSERT_EQ(create(&own, 0, 0), 0);
    void* stream = nullptr;
    ASSERT_EQ(harness::GpuDriver::Get()->create_stream(&stream, CU_STREAM_NON_BLOCKING), 0);
    EXPECT_EQ(Sum(&data, &data, clique.comm(), static_cast<axcclStream_t>(stream)), ncclInvalidArgument);
    ExpectLastErrorHas({"argument stream", "that the application has made on CUDA device 0", "primary context"});
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);  // which names its devices
    EXPECT_OK(ncclCommDestroy(comm));
    ncclUniqueId id;
    ASSERT_OK(ncclGetUniqueId(&id));
    EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage);
    ExpectLastErrorHas({"context", "that the application has made on CUDA device 0", "primary context"});
    EXPECT_EQ(harness::GpuDriver::Get()->destroy_stream(stream), 0);
    EXPECT_EQ(destroy(own), 0);
    ASSERT_NE(EnterGpu(0), nullptr);
    ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream()));
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_TRUE(data.AreAll(1));
  };
  RunRanks(harness::Processes(1), body);
}

void Callback(void*, const void*, size_t, void*) {}

TEST(Arguments, RootsInMemoryAndCallbacks) {
  RunRanks(harness::Processes(1), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(100);
    const int64_t size = 50, stride = 2;
    const int32_t root = 0;
    axcclView_t view = AXCCL_VIEW_INITIALIZER;
    view.data = data.get();
    view.datatype = ncclInt32;
    view.num_dims = 1;
    view.sizes = &size;
    view.strides = &stride;
    EXPECT_EQ(
        axcclBroadcastFrom(1, &view, &view, &root, axcclDefaultChannel(clique.comm()), nullptr, Cuda(clique.stream())),
        ncclInvalidUsage);
    ExpectLastErrorHas({"axcclBroadcastFrom", "read when the call starts", "host ranks"});
    ncclRedOp_t op;
    ASSERT_OK(axcclRedOpCreateCallback(&op, Callback, nullptr, ncclInt32, clique.comm()));
    EXPECT_EQ(ncclAllReduce(data.get(), data.get(), 100, ncclInt32, op, clique.comm(), Cuda(clique.stream())),
              ncclInvalidUsage);
    ExpectLastErrorHas({"callback", "host ranks"});
  });
}

// ---- ranks and machines that do not fit ----

TEST(Init, RanksOnTheHostAndOnGpus) {
  RunRanks(harness::Processes(3), [](RankContext& context) {
    setenv("AXCCL_DEVICE", context.rank() == 1 ? "host" : "cuda", 1);
    ASSERT_NO_FATAL_FAILURE(ExpectNoInit(context, ncclInvalidUsage, {"rank 0", "CUDA device 0", "rank 1", "the host"}));
  });
}

TEST(Init, DriverTooOld) {
  const auto body = [](RankContext& context) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclInvalidUsage);
    ExpectLastErrorHas({"the CUDA driver is of CUDA 11.8, at least", "update it", "AXCCL_DEVICE=host"});
  };
  RunRanks(harness::Processes(1), body, With({{"SOFTGPU_DRIVER_VERSION", "11080"}}));
}

TEST(Init, NoDevice) {
  const auto body = [](RankContext& context) {
    ncclComm_t comm = nullptr;
    EXPECT_NE(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
    ExpectLastErrorHas({"AXCCL_DEVICE"});
  };
  RunRanks(harness::Processes(1), body, With({{"SOFTGPU_DEVICES", "0"}}));
}

TEST(Init, TooLittleMemory) {
  const auto body = [](RankContext& context) {
    ASSERT_NO_FATAL_FAILURE(ExpectNoInit(context, ncclUnhandledCudaError, {"bytes are needed", "AXCCL_SCRATCH_BYTES"}));
  };
  RunRanks(harness::Processes(2), body, With({{"SOFTGPU_MEMORY", "1M"}}));
}

// Run without the software GPU.
TEST(NoDriver, IsReported) {
  if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) GTEST_SKIP() << "there is a CUDA driver";
  const auto body = [](RankContext& context) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclInvalidUsage);
    ExpectLastErrorHas({"no CUDA driver", "AXCCL_DEVICE=host"});
  };
  RunRanks(harness::Processes(1), body, With({{"AXCCL_DEVICE", "cuda"}}));
  const auto automatic = [](RankContext& context) {
    ncclComm_t comm = nullptr;
    ASSERT_OK(ncclCommInitAll(&comm, 1, nullptr));
    ASSERT_OK(ncclCommDestroy(comm));
  };
  RunRanks(harness::Processes(1), automatic, With({{"AXCCL_DEVICE", "auto"}}));
}

}  // namespace
}  // namespace axccl::tests
