// Buffers in pinned memory of the host, and uploads of the library's own, with a driver that waits where CUDA lets it
// (CUDA driver API, "API synchronization behavior"): a copy from host memory to host memory returns when its stream has
// made it, and a copy from pageable memory may wait for kernels. And memory that devices see at another address.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "tests/cuda/chunked_memory.h"
#include "tests/cuda/pipeline_end.h"
#include "tests/cuda/words.h"
#include "tests/harness/gpus_here.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::ExpectLastErrorHas;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

// A real driver waits as it does.
RunOptions Unkind(const char* calls_that_wait, int gpus) {
  RunOptions options = Within("15");
  options.environment.emplace_back("SOFTGPU_DEVICES", std::to_string(gpus));
  options.environment.emplace_back(harness::kNeedsGpus, std::to_string(gpus));
  if (harness::GpusHere::Get().software) options.environment.emplace_back("SOFTGPU_IMPLICIT_SYNC", calls_that_wait);
  return options;
}

RunOptions Pinned(int gpus) {
  RunOptions options = Unkind("host-copy", gpus);
  options.environment.emplace_back("AXCCL_TEST_GPU_MEMORY", "pinned");
  return options;
}

// The ranks of one thread, each on a GPU of its own.
constexpr int kRanks = 2;
struct Ranks {
  Clique cliques[kRanks];

  bool Init() {
    constexpr int kDevices[kRanks] = {0, 1};
    ncclComm_t comms[kRanks] = {};
    bool good = ncclCommInitAll(comms, kRanks, kDevices) == ncclSuccess;
    for (int r = 0; r < kRanks && good; ++r) good = EnterGpu(r) != nullptr && cliques[r].Adopt(comms[r]);
    EXPECT_TRUE(good) << ncclGetLastError(nullptr);
    return good;
  }
  Clique& operator[](int r) {
    EXPECT_NE(EnterGpu(r), nullptr);
    return cliques[r];
  }
};

// The copy of a rank's message to itself waits for nothing that the thread launches only then.
TEST(HostMemory, MessagesToOneself) {
  const auto body = [](RankContext&) {
    Ranks ranks;
    ASSERT_TRUE(ranks.Init());
    for (const size_t count : {size_t{1}, size_t{1024}, size_t{30'001}}) {
      std::vector<Words*> in, out;  // which stay
      for (int r = 0; r < kRanks; ++r) {
        in.push_back(new Words(kRanks * count));
        out.push_back(new Words(kRanks * count, -1));
        for (size_t i = 0; i < in[r]->size(); ++i) in[r]->get()[i] = 100'000 * r + static_cast<int32_t>(i);
      }
      ASSERT_OK(ncclGroupStart());
      for (int r = 0; r < kRanks; ++r) {
        Clique& clique = ranks[r];
        for (int peer = 0; peer < kRanks; ++peer) {
          const size_t at = static_cast<size_t>(peer) * count;
          ASSERT_OK(ncclSend(in[r]->get() + at, count, ncclInt32, peer, clique.comm(), Cuda(clique.stream())));
          ASSERT_OK(ncclRecv(out[r]->get() + at, count, ncclInt32, peer, clique.comm(), Cuda(clique.stream())));
        }
      }
      ASSERT_OK(ncclGroupEnd());
      for (int r = 0; r < kRanks; ++r) {
        ASSERT_TRUE(ranks[r].Synchronize());
        for (size_t i = 0; i < out[r]->size(); ++i) {
          const size_t block = i / count, at = static_cast<size_t>(r) * count + i % count;
          ASSERT_EQ(out[r]->get()[i], 100'000 * static_cast<int32_t>(block) + static_cast<int32_t>(at));
        }
      }
    }
  };
  RunRanks(harness::OneThread(1), body, Pinned(kRanks));
}

// The copy comes behind what the stream waits for, wherever its buffers begin.
TEST(HostMemory, MessagesToOneselfTakeTheirTurn) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    auto* const in = new Words(1000, 1);  // which stay
    auto* const out = new Words(1000);
    static std::atomic<bool> open{false};
    const auto await = [](void*) { open.wait(false); };
    ASSERT_EQ(EnterGpu()->call_host(clique.stream(), await, nullptr), 0);
    constexpr size_t kBytes = 997 * sizeof(int32_t);
    auto* const from = reinterpret_cast<char*>(in->get()) + 1;
    auto* const to = reinterpret_cast<char*>(out->get()) + 3;
    const cudaStream_t stream = Cuda(clique.stream());
    ASSERT_OK(ncclGroupStart());
    ASSERT_OK(ncclSend(from, kBytes, ncclInt8, 0, clique.comm(), stream));
    ASSERT_OK(ncclRecv(to, kBytes, ncclInt8, 0, clique.comm(), stream));
    ASSERT_OK(ncclGroupEnd());
    EXPECT_TRUE(out->AreAll(0)) << "made before its turn";
    in->Fill(2);
    open = true;
    open.notify_all();
    ASSERT_TRUE(clique.Synchronize());
    EXPECT_EQ(std::memcmp(from, to, kBytes), 0);
    EXPECT_EQ(to[-1], 0);
    EXPECT_EQ(to[kBytes], 0);
  };
  RunRanks(harness::OneThread(1), body, Pinned(1));
}

// Copy engines would wait in the second start.
TEST(HostMemory, PipelinesHaveKernels) {
  const auto body = [](RankContext&) {
    Ranks ranks;
    ASSERT_TRUE(ranks.Init());
    std::vector<End*> ends;
    for (int r = 0; r < kRanks; ++r) {
      ends.push_back(new End(
          {axcclPipelineAllGather, ncclInt32, 64, 64, 2, axcclDefaultOrder, false, How::kThread, axcclEngineCopy},
          kRanks, r));
      ASSERT_OK(ends[r]->Create(axcclDefaultChannel(ranks[r].comm())));
    }
    for (int start = 0; start < 3; ++start) {
      for (End* end : ends) end->Prepare(start);
      for (int r = 0; r < kRanks; ++r) ASSERT_OK(axcclPipelineStart(ends[r]->handle(), Cuda(ranks[r].stream())));
      for (int r = 0; r < kRanks; ++r) ASSERT_OK(axcclPipelineFinish(ends[r]->handle(), Cuda(ranks[r].stream())));
      for (int r = 0; r < kRanks; ++r) ASSERT_TRUE(ranks[r].Synchronize());
      for (const End* end : ends) {
        for (int64_t chunk = 0; chunk < end->info().out_chunks; ++chunk) ASSERT_EQ(end->Check(chunk), "");
      }
    }
    for (End* end : ends) {
      EXPECT_EQ(end->engine(), axcclEngineKernel);
      end->Destroy();
    }
  };
  RunRanks(harness::OneThread(1), body, Pinned(kRanks));
}

// A kernel cannot use the address that the program passes.
TEST(HostMemory, AtAnotherAddressIsRefused) {
  const auto body = [](RankContext& context) {
    constexpr unsigned kWriteCombined =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    void* memory = nullptr;
    ASSERT_EQ(EnterGpu()->allocate_host(&memory, 4096, kWriteCombined), 0);
    const auto sum = [&](void* buffer) {
      return ncclAllReduce(buffer, buffer, 1000, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream()));
    };
    EXPECT_EQ(sum(memory), ncclInvalidArgument);
    ExpectLastErrorHas({"argument sendbuff", "at another address", "cudaHostAllocWriteCombined"});
    CUdeviceptr there = 0;
    ASSERT_EQ(AXCCL_TEST_DRIVER(cuPointerGetAttribute)(&there, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                                       reinterpret_cast<CUdeviceptr>(memory)),
              CUDA_SUCCESS);
    std::fill_n(static_cast<int32_t*>(memory), 1000, 3);
    ASSERT_TRUE(context.Barrier());
    ASSERT_OK(sum(reinterpret_cast<void*>(there)));
    ASSERT_TRUE(clique.Synchronize());
    const auto* const words = static_cast<const int32_t*>(memory);
    EXPECT_EQ(std::count(words, words + 1000, 3 * context.nranks()), 1000);
    ASSERT_TRUE(context.Barrier());
  };
  RunOptions options;
  options.environment = {{"SOFTGPU_ALIASES", "1"}};
  RunRanks(harness::Threads(2), body, options);
}

// What calls of new sizes upload comes from pinned memory, so it waits for no kernel of a rank that has called already.
TEST(Uploads, WaitForNoKernel) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    Words data(1 << 16);
    for (size_t count = 64; count <= data.size(); count *= 32) {
      data.Fill(1);
      ASSERT_TRUE(context.Barrier());
      const auto sum = [&] {
        ASSERT_OK(
            ncclAllReduce(data.get(), data.get(), count, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
      };
      if (context.rank() == 0) sum();
      ASSERT_TRUE(context.Barrier());
      if (context.rank() != 0) sum();
      ASSERT_OK(harness::EndOf(clique.stream(), clique.comm()));
      EXPECT_EQ(std::count(data.get(), data.get() + count, 2), static_cast<int64_t>(count));
    }
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(2), body, Unkind("pageable", 1));
}

}  // namespace
}  // namespace axccl::tests
