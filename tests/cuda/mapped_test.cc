// Buffers of GPU ranks in other processes: staged until all ranks have mapped them, then read and written directly.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda/chunked_memory.h"
#include "tests/cuda/words.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::EnterGpu;
using harness::GpuDriver;
using harness::Layout;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

// kInChunks: over the boundaries of several allocations of the application's.
enum class Kind { kOfApplication, kOfLibrary, kInChunks };

// Device memory as applications allocate it (not managed, unlike Words).
class DeviceWords {
 public:
  DeviceWords(Kind kind, size_t size) : kind_(kind), size_(size) {
    if (kind == Kind::kOfLibrary) {
      void* memory = nullptr;
      EXPECT_OK(ncclMemAlloc(&memory, size * sizeof(int32_t)));
      memory_ = reinterpret_cast<uint64_t>(memory);
    } else if (kind == Kind::kInChunks) {
      const size_t bytes = size * sizeof(int32_t), before = std::min(bytes / 2, kChunk) / 16 * 16;
      chunks_ = std::make_unique<ChunkedMemory>(2 + (bytes - before) / kChunk, true);
      memory_ = reinterpret_cast<uint64_t>(chunks_->at(kChunk - before));
    } else {
      EXPECT_EQ(EnterGpu()->allocate(&memory_, size * sizeof(int32_t)), 0);
    }
  }
  ~DeviceWords() {
    if (kind_ == Kind::kOfLibrary) {
      EXPECT_OK(ncclMemFree(get()));
    } else if (kind_ == Kind::kOfApplication) {
      EXPECT_EQ(EnterGpu()->free_memory(memory_), 0);
    }
  }
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;

  void* get() const { return reinterpret_cast<void*>(memory_); }
  size_t size() const { return size_; }
  void Fill(int32_t value, axcclStream_t stream) {
    ASSERT_EQ(EnterGpu()->fill(memory_, static_cast<unsigned>(value), size_, stream), 0);
  }
  // The number of words that have the value, out of `size()`.
  size_t Count(int32_t value) const {
    std::vector<int32_t> words(size_);
    EXPECT_EQ(EnterGpu()->copy_to_host(words.data(), memory_, size_ * sizeof(int32_t)), 0);
    return static_cast<size_t>(std::count(words.begin(), words.end(), value));
  }

 private:
  const Kind kind_;
  const size_t size_;
  uint64_t memory_ = 0;
  std::unique_ptr<ChunkedMemory> chunks_;
};

uint64_t Mapped(const Clique& clique) { return harness::InfoOf(clique.comm()).mapped; }

// The size of large calls, unless a test needs another.
constexpr size_t kWords = 150'000;

RunOptions Small(std::vector<std::pair<std::string, std::string>> more = {}) {
  RunOptions options = SmallGpu(2);
  options.environment.emplace_back("NCCL_P2P_DIRECT_DISABLE", "1");  // for ranks of one process
  for (auto& variable : more) options.environment.push_back(std::move(variable));
  return options;
}

// Makes a sum and a gather. Returns how many of them went from buffer to buffer.
uint64_t Round(RankContext& context, const Clique& clique, int round, DeviceWords* in, DeviceWords* out,
               DeviceWords* all) {
  const uint64_t before = Mapped(clique);
  const int n = context.nranks();
  const cudaStream_t stream = harness::Cuda(clique.stream());
  in->Fill(round + context.rank(), clique.stream());
  EXPECT_OK(ncclAllReduce(in->get(), out->get(), in->size(), ncclInt32, ncclSum, clique.comm(), stream));
  EXPECT_OK(ncclAllGather(in->get(), all->get(), in->size(), ncclInt32, clique.comm(), stream));
  EXPECT_OK(harness::SynchronizeStream(clique.stream()));
  EXPECT_EQ(out->Count(n * round + n * (n - 1) / 2), in->size()) << "round " << round;
  for (int r = 0; r < n; ++r) EXPECT_EQ(all->Count(round + r), in->size()) << "round " << round;
  EXPECT_TRUE(context.Barrier());
  return Mapped(clique) - before;
}

class MappedTest : public testing::TestWithParam<Layout> {};  // one rank a thread

// The rank that calls first cannot know what others have mapped; after two rounds all ranks know it.
TEST_P(MappedTest, StagedFirstThenFromBufferToBuffer) {
  for (const Kind kind : {Kind::kOfApplication, Kind::kOfLibrary, Kind::kInChunks}) {
    const auto body = [kind](RankContext& context) {
      ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      DeviceWords in(kind, kWords), out(kind, kWords), all(kind, kWords * static_cast<size_t>(context.nranks()));
      ASSERT_TRUE(context.Barrier());  // allocating may wait for kernels
      EXPECT_EQ(Round(context, clique, 1, &in, &out, &all), 0u);
      Round(context, clique, 2, &in, &out, &all);
      for (int round = 3; round < 6; ++round) EXPECT_EQ(Round(context, clique, round, &in, &out, &all), 2u) << round;
      const char* algorithm = nullptr;
      ASSERT_OK(axcclCommGetLastAlgorithm(clique.comm(), &algorithm));
      EXPECT_TRUE(std::string(algorithm) == "direct" || std::string(algorithm) == "pull") << algorithm;
      ASSERT_TRUE(context.Barrier());
    };
    RunRanks(GetParam(), body, Small());
  }
}

TEST_P(MappedTest, SmallCallsAreStaged) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        DeviceWords in(Kind::kOfApplication, 1000), out(Kind::kOfApplication, 1000),
            all(Kind::kOfApplication, 1000 * static_cast<size_t>(context.nranks()));
        ASSERT_TRUE(context.Barrier());  // allocating may wait for kernels
        for (int round = 1; round < 5; ++round) EXPECT_EQ(Round(context, clique, round, &in, &out, &all), 0u);
        ASSERT_TRUE(context.Barrier());
      },
      Small());
}

// If one rank's memory cannot be shared, the call stays staged on all ranks.
TEST_P(MappedTest, OutOfReachOnOneRank) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        DeviceWords in(Kind::kOfApplication, kWords), out(Kind::kOfApplication, kWords);
        Words managed(kWords);
        ASSERT_TRUE(context.Barrier());
        for (int round = 1; round < 5; ++round) {
          in.Fill(round, clique.stream());
          managed.Fill(round);
          void* const input = context.rank() == 0 ? managed.get() : in.get();
          ASSERT_OK(ncclAllReduce(input, out.get(), kWords, ncclInt32, ncclSum, clique.comm(),
                                  harness::Cuda(clique.stream())));
          ASSERT_TRUE(clique.Synchronize());
          EXPECT_EQ(out.Count(round * context.nranks()), kWords);
          ASSERT_TRUE(context.Barrier());
        }
        EXPECT_EQ(Mapped(clique), 0u);
        ASSERT_TRUE(context.Barrier());
      },
      Small());
}

// Allocates and frees more memory than can be published at a time; freed memory makes room.
TEST_P(MappedTest, MemoryThatComesAndGoes) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const cudaStream_t stream = harness::Cuda(clique.stream());
        constexpr size_t kFewer = 8000;
        for (int i = 0; i < 300; ++i) {
          {
            DeviceWords data(i % 2 == 0 ? Kind::kOfApplication : Kind::kInChunks, kFewer);
            ASSERT_TRUE(context.Barrier());  // allocating may wait for kernels
            data.Fill(i, clique.stream());
            ASSERT_OK(ncclAllReduce(data.get(), data.get(), data.size(), ncclInt32, ncclSum, clique.comm(), stream));
            ASSERT_TRUE(clique.Synchronize());
            ASSERT_EQ(data.Count(i * context.nranks()), data.size()) << i;
            ASSERT_TRUE(context.Barrier());
          }
          ASSERT_TRUE(context.Barrier());  // freeing may, too
        }
        DeviceWords in(Kind::kOfLibrary, kFewer), out(Kind::kOfLibrary, kFewer),
            all(Kind::kOfLibrary, kFewer * static_cast<size_t>(context.nranks()));
        ASSERT_TRUE(context.Barrier());
        Round(context, clique, 1, &in, &out, &all);
        Round(context, clique, 2, &in, &out, &all);
        EXPECT_EQ(Round(context, clique, 3, &in, &out, &all), 2u);
        ASSERT_TRUE(context.Barrier());
      },
      Small({{"AXCCL_MAP_BYTES", "1"}, {"NCCL_ALGO", "direct"}}));
}

// A graph keeps the state in which its calls were captured, even if other ranks know more.
TEST_P(MappedTest, Graphs) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        constexpr int kThreadLocal = 1;
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const GpuDriver* const driver = EnterGpu();
        const cudaStream_t stream = harness::Cuda(clique.stream());
        DeviceWords in(Kind::kOfApplication, kWords), out(Kind::kOfApplication, kWords);
        ASSERT_TRUE(context.Barrier());
        void* executables[2] = {};
        const auto capture = [&](void** executable) {
          void* graph = nullptr;
          ASSERT_EQ(driver->begin_capture(clique.stream(), kThreadLocal), 0);
          ASSERT_OK(ncclAllReduce(in.get(), out.get(), kWords, ncclInt32, ncclSum, clique.comm(), stream));
          ASSERT_EQ(driver->end_capture(clique.stream(), &graph), 0);
          ASSERT_EQ(driver->instantiate(executable, graph, 0), 0);
          ASSERT_EQ(driver->destroy_graph(graph), 0);
          ASSERT_TRUE(context.Barrier());
        };
        ASSERT_NO_FATAL_FAILURE(capture(&executables[0]));
        void* unused = nullptr;
        ASSERT_NO_FATAL_FAILURE(capture(&unused));
        ASSERT_NO_FATAL_FAILURE(capture(&executables[1]));
        for (int round = 1; round <= 6; ++round) {
          const uint64_t before = Mapped(clique);
          in.Fill(round, clique.stream());
          ASSERT_EQ(driver->launch_graph(executables[round % 2], clique.stream()), 0);
          ASSERT_TRUE(clique.Synchronize());
          EXPECT_EQ(out.Count(round * context.nranks()), kWords) << round;
          EXPECT_EQ(Mapped(clique) - before, round % 2 == 0 ? 0u : 1u) << round;
          ASSERT_TRUE(context.Barrier());
        }
        for (void* executable : {executables[0], executables[1], unused})
          ASSERT_EQ(driver->destroy_executable(executable), 0);
        ASSERT_TRUE(context.Barrier());
      },
      Small());
}

INSTANTIATE_TEST_SUITE_P(Layouts, MappedTest,
                         testing::Values(harness::Processes(2), harness::Processes(3), Layout{2, 2, 1},
                                         Layout{1, 2, 1}),
                         [](const auto& info) { return info.param.Text(); });

// Counts the mapped ncclMemAlloc memory of this process, its own and its peers'.
int MappedFiles() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("softgpu-memory") != std::string::npos;
  return count;
}

// Rank 0 gives up the input of the calls that went from buffer to buffer; rank 1 unmaps it, though neither calls
// anything.
void ExpectUnmapped(RankContext& context, const std::function<void()>& give_up) {
  const int before = MappedFiles();
  ASSERT_TRUE(context.Barrier());
  if (context.rank() == 0) give_up();
  ASSERT_TRUE(context.Barrier());
  if (context.rank() == 1) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5) * harness::TimeScale();
    while (MappedFiles() != before - 1 && std::chrono::steady_clock::now() < deadline) harness::LookLater();
    EXPECT_EQ(MappedFiles(), before - 1);
  }
  ASSERT_TRUE(context.Barrier());
}

// An object of virtual memory management is exchanged for another one at the same addresses, as allocators with
// expandable segments do. CUDA's number of the allocation may be the same.
TEST(Mapped, MemoryThatIsExchangedAtItsAddress) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank()), nullptr);
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr size_t kCount = kChunk / sizeof(int32_t);
    ChunkedMemory in(1, true), out(1, true);
    std::vector<int32_t> words(kCount);
    for (int round = 0; round < 12; ++round) {
      if (round == 6) {
        EXPECT_GT(Mapped(clique), 0u);
        in.Replace(0);
      }
      ASSERT_EQ(
          EnterGpu()->fill(reinterpret_cast<uint64_t>(in.at()), static_cast<unsigned>(round), kCount, clique.stream()),
          0);
      ASSERT_OK(
          ncclAllReduce(in.at(), out.at(), kCount, ncclInt32, ncclSum, clique.comm(), harness::Cuda(clique.stream())));
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      ASSERT_EQ(EnterGpu()->copy_to_host(words.data(), reinterpret_cast<uint64_t>(out.at()), kChunk), 0);
      ASSERT_EQ(std::count(words.begin(), words.end(), 2 * round), static_cast<int64_t>(kCount)) << round;
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunOptions options = Small({{"NCCL_ALGO", "direct"}, {"SOFTGPU_RANGE_IDS", "1"}});
  RunRanks(harness::Processes(2), body, options);
}

// Drivers refuse to open a handle of memory where other memory was that is still open in the process, in this
// communicator or another one, which then needs no call to let go of it.
TEST(Mapped, MemoryWhereOtherWasFreed) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique first, second;
        ASSERT_TRUE(first.Init(context));
        ASSERT_TRUE(second.Init(context));
        std::set<void*> inputs;
        for (int turn = 0; turn < 4; ++turn) {
          const Clique& clique = turn < 2 ? first : second;
          {
            DeviceWords in(Kind::kOfApplication, kWords), out(Kind::kOfApplication, kWords),
                all(Kind::kOfApplication, 2 * kWords);
            inputs.insert(in.get());
            ASSERT_TRUE(context.Barrier());
            // What was there is closed in the background.
            int round = 1;
            while (round < 500 && Round(context, clique, round, &in, &out, &all) != 2) ++round;
            EXPECT_EQ(Round(context, clique, round, &in, &out, &all), 2u) << turn;
            ASSERT_TRUE(context.Barrier());
          }
          ASSERT_TRUE(context.Barrier());
        }
        EXPECT_LT(inputs.size(), 4u) << "no address was used again";
      },
      Small({{"SOFTGPU_REUSE", "1"}}));
}

TEST(Mapped, PeersUnmapFreedMemory) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        auto in = std::make_unique<DeviceWords>(Kind::kOfLibrary, kWords);
        DeviceWords out(Kind::kOfLibrary, kWords), all(Kind::kOfLibrary, 2 * kWords);
        for (int round = 1; round < 4; ++round) Round(context, clique, round, in.get(), &out, &all);
        ExpectUnmapped(context, [&] { in = nullptr; });
      },
      Small());
}

// Peers also unmap deregistered memory, which still works afterwards. Memory used in a graph stays mapped.
TEST(Mapped, PeersUnmapDeregisteredMemory) {
  RunRanks(
      harness::Processes(2),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const GpuDriver* const driver = EnterGpu();
        const cudaStream_t stream = harness::Cuda(clique.stream());
        DeviceWords in(Kind::kOfLibrary, kWords), out(Kind::kOfLibrary, kWords), all(Kind::kOfLibrary, 2 * kWords),
            other(Kind::kOfLibrary, kWords);
        void *handle = nullptr, *graph = nullptr, *executable = nullptr;
        ASSERT_OK(ncclCommRegister(clique.comm(), in.get(), kWords * sizeof(int32_t), &handle));
        for (int round = 1; round < 4; ++round) Round(context, clique, round, &in, &out, &all);
        ExpectUnmapped(context, [&] { EXPECT_OK(ncclCommDeregister(clique.comm(), handle)); });
        if (context.rank() == 1) {
          ASSERT_OK(ncclCommDeregister(clique.comm(), handle));
        }
        for (int round = 1; round < 3; ++round) Round(context, clique, round, &in, &out, &all);
        EXPECT_EQ(Round(context, clique, 3, &in, &out, &all), 2u);

        constexpr int kThreadLocal = 1;
        ASSERT_OK(ncclCommRegister(clique.comm(), in.get(), kWords * sizeof(int32_t), &handle));
        ASSERT_EQ(driver->begin_capture(clique.stream(), kThreadLocal), 0);
        ASSERT_OK(ncclAllReduce(in.get(), out.get(), kWords, ncclInt32, ncclSum, clique.comm(), stream));
        ASSERT_EQ(driver->end_capture(clique.stream(), &graph), 0);
        ASSERT_EQ(driver->instantiate(&executable, graph, 0), 0);
        ASSERT_OK(ncclCommDeregister(clique.comm(), handle));
        ASSERT_TRUE(context.Barrier());
        // Reads what the other rank has published, if anything.
        ASSERT_OK(ncclAllReduce(other.get(), out.get(), kWords, ncclInt32, ncclSum, clique.comm(), stream));
        in.Fill(7, clique.stream());
        const uint64_t before = Mapped(clique);
        ASSERT_EQ(driver->launch_graph(executable, clique.stream()), 0);
        ASSERT_TRUE(clique.Synchronize());
        EXPECT_EQ(out.Count(14), kWords);
        EXPECT_GT(Mapped(clique), before) << "the graph's call did not go from buffer to buffer";
        ASSERT_EQ(driver->destroy_executable(executable), 0);
        ASSERT_EQ(driver->destroy_graph(graph), 0);
        ASSERT_TRUE(context.Barrier());
      },
      Small());
}

// Without legacy handles, memory of cudaMalloc stays staged, and that of ncclMemAlloc is passed as files, whether one
// rank lacks them or all do.
TEST(Mapped, WhereIpcIsForbidden) {
  for (const bool everywhere : {true, false}) {
    const auto body = [everywhere](RankContext& context) {
      if (everywhere || context.rank() == 1) {
        ASSERT_EQ(setenv("SOFTGPU_IPC", "0", 1), 0);
      }
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      for (const Kind kind : {Kind::kOfApplication, Kind::kOfLibrary}) {
        DeviceWords in(kind, kWords), out(kind, kWords), all(kind, kWords * 3);
        uint64_t mapped = 0;
        for (int round = 1; round < 5; ++round) mapped = Round(context, clique, round, &in, &out, &all);
        EXPECT_EQ(mapped, kind == Kind::kOfLibrary ? 2u : 0u);
        ASSERT_TRUE(context.Barrier());
      }
    };
    RunRanks(harness::Processes(3), body, Small());
  }
}

// Memory of ncclMemAlloc is for adapters, and for other machines where fabric handles can be had.
TEST(Mapped, MemoryOfTheLibraryIsForAdapters) {
  for (const int fabric : {0, 1, 2}) {
    RunOptions options = Small();
    options.environment.emplace_back("SOFTGPU_FABRIC", std::to_string(fabric));
    const auto body = [fabric](RankContext&) {
      ASSERT_NE(EnterGpu(0), nullptr);
      void* memory = nullptr;
      ASSERT_OK(ncclMemAlloc(&memory, 1000));
      CUmemGenericAllocationHandle object = 0;
      ASSERT_EQ(AXCCL_TEST_DRIVER(cuMemRetainAllocationHandle)(&object, memory), CUDA_SUCCESS);
      CUmemAllocationProp properties{};
      ASSERT_EQ(AXCCL_TEST_DRIVER(cuMemGetAllocationPropertiesFromHandle)(&properties, object), CUDA_SUCCESS);
      ASSERT_EQ(AXCCL_TEST_DRIVER(cuMemRelease)(object), CUDA_SUCCESS);
      constexpr int kFile = 1, kFabric = 8;  // CUmemAllocationHandleType
      EXPECT_EQ(static_cast<int>(properties.requestedHandleTypes), fabric == 1 ? kFile | kFabric : kFile);
      EXPECT_EQ(properties.allocFlags.gpuDirectRDMACapable, 1);
      ASSERT_OK(ncclMemFree(memory));
    };
    RunRanks(harness::Processes(1), body, options);
  }
}

}  // namespace
}  // namespace axccl::tests
