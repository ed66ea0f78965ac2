// Pipelines of GPU ranks in several processes: which memory they take, and what is left of it.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "axccl/device.h"
#include "tests/cuda/pipeline_end.h"
#include "tests/cuda/words.h"
#include "tests/harness/channels.h"
#include "tests/harness/residue.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::ExpectLastErrorHas;
using harness::Layout;
using harness::NowNs;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

// Of cudaMalloc, of ncclMemAlloc, and managed.
enum class Kind { kOfApplication, kOfLibrary, kManaged };

class Memory {
 public:
  Memory(Kind kind, size_t bytes) : kind_(kind) {
    constexpr unsigned kAttachGlobal = 1;
    if (kind == Kind::kOfLibrary) {
      void* memory = nullptr;
      EXPECT_OK(ncclMemAlloc(&memory, bytes));
      address_ = reinterpret_cast<uint64_t>(memory);
    } else if (kind == Kind::kManaged) {
      EXPECT_EQ(EnterGpu()->allocate_managed(&address_, bytes, kAttachGlobal), 0);
    } else {
      EXPECT_EQ(EnterGpu()->allocate(&address_, bytes), 0);
    }
  }
  ~Memory() {
    if (kind_ == Kind::kOfLibrary) {
      EXPECT_OK(ncclMemFree(at(0)));
    } else {
      EXPECT_EQ(EnterGpu()->free_memory(address_), 0);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* at(size_t offset) const { return reinterpret_cast<char*>(address_) + offset; }

 private:
  const Kind kind_;
  uint64_t address_ = 0;
};

constexpr size_t kApart = 16384;  // bytes; more than any buffer here

void RunStart(End* end, const Clique& clique, int start) {
  end->Prepare(start);
  ASSERT_OK(axcclPipelineStart(end->handle(), Cuda(clique.stream())));
  ASSERT_OK(axcclPipelineFinish(end->handle(), Cuda(clique.stream())));
  ASSERT_OK(harness::SynchronizeStream(clique.stream()));
  for (int64_t chunk = 0; chunk < end->info().out_chunks; ++chunk) {
    ASSERT_EQ(end->Check(chunk), "");
    ASSERT_EQ(*end->word(axcclOut, chunk), 1u);
  }
}

class PipelineProcessesTest : public testing::TestWithParam<Layout> {};  // one rank a thread

// Two pipelines in one allocation, not at its start, on two devices.
TEST_P(PipelineProcessesTest, MemoryOfEveryKind) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
    for (const Kind kind : {Kind::kOfApplication, Kind::kOfLibrary}) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const Memory memory(kind, 5 * kApart);
      ASSERT_TRUE(context.Barrier());  // allocating may wait for kernels
      const Case a{axcclPipelineAllReduce, ncclInt32, 6, 8, 3}, b{axcclPipelineAllGather, ncclFloat32, 7, 16, 2};
      const int n = context.nranks(), rank = context.rank();
      End first(a, n, rank, memory.at(64), memory.at(kApart));
      End second(b, n, rank, memory.at(2 * kApart + 4), memory.at(3 * kApart + 256));
      for (End* end : {&first, &second}) ASSERT_OK(end->Create(axcclDefaultChannel(clique.comm())));
      for (int start = 0; start < 3; ++start) {
        ASSERT_NO_FATAL_FAILURE(RunStart(&first, clique, start));
        ASSERT_NO_FATAL_FAILURE(RunStart(&second, clique, start));
      }
      first.Destroy();
      ASSERT_NO_FATAL_FAILURE(RunStart(&second, clique, 3));
      second.Destroy();
      ASSERT_TRUE(context.Barrier());
    }
  };
  RunRanks(GetParam(), body, SmallGpu(2));
}

// Calls that map the same memory, while a pipeline has it and after that. To deregister it takes it from neither.
TEST_P(PipelineProcessesTest, CallsOnTheSameMemory) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Memory memory(Kind::kOfLibrary, 2 * kApart);
    const Case c{axcclPipelineAllReduce, ncclInt32, 6, 8, 3};
    const auto call = [&](int value) {
      auto* const words = reinterpret_cast<int32_t*>(memory.at(0));
      std::fill_n(words, 2000, value);
      ASSERT_OK(ncclAllReduce(words, words, 2000, ncclInt32, ncclSum, clique.comm(), Cuda(clique.stream())));
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      EXPECT_EQ(std::count(words, words + 2000, value * context.nranks()), 2000);
      ASSERT_TRUE(context.Barrier());
    };
    void* handle = nullptr;
    ASSERT_OK(ncclCommRegister(clique.comm(), memory.at(0), kApart, &handle));
    End end(c, context.nranks(), context.rank(), memory.at(8192), memory.at(kApart));
    ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
    for (int round = 0; round < 3; ++round) {
      ASSERT_NO_FATAL_FAILURE(RunStart(&end, clique, round));
      ASSERT_NO_FATAL_FAILURE(call(round));
    }
    ASSERT_OK(ncclCommDeregister(clique.comm(), handle));
    ASSERT_TRUE(context.Barrier());
    ASSERT_NO_FATAL_FAILURE(call(3));
    ASSERT_NO_FATAL_FAILURE(RunStart(&end, clique, 3));
    end.Destroy();
    for (int round = 4; round < 7; ++round) ASSERT_NO_FATAL_FAILURE(call(round));
  };
  RunOptions options = SmallGpu();
  options.environment.emplace_back("AXCCL_MAP_BYTES", "1");
  options.environment.emplace_back("NCCL_ALGO", "direct");
  RunRanks(GetParam(), body, options);
}

// A message to the next process, and one from there.
TEST_P(PipelineProcessesTest, Permute) {
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        constexpr int64_t kSize = 60;
        const int n = context.nranks(), last = n - 1;
        const int64_t pairs[] = {0, last, last, 0};
        const Memory memory(Kind::kOfApplication, 2 * kApart);
        auto* const in = reinterpret_cast<int32_t*>(memory.at(128));
        auto* const out = reinterpret_cast<int32_t*>(memory.at(kApart));
        const bool sends = context.rank() == 0 || context.rank() == last;
        axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
        spec.kind = axcclPipelinePermute;
        spec.pairs = pairs;
        spec.num_pairs = 2;
        spec.in.datatype = spec.out.datatype = ncclInt32;
        spec.in.num_dims = spec.out.num_dims = 1;
        spec.in.sizes = spec.out.sizes = &kSize;
        spec.in.data = sends ? in : nullptr;
        spec.out.data = out;
        spec.slices = 4;
        axcclPipeline_t pipeline = nullptr;
        ASSERT_OK(axcclPipelineCreate(&pipeline, &spec, axcclDefaultChannel(clique.comm())));
        for (int start = 1; start < 4; ++start) {
          std::fill_n(in, kSize, 10 * start + context.rank());
          std::fill_n(out, kSize, -1);
          ASSERT_OK(axcclPipelineStart(pipeline, Cuda(clique.stream())));
          ASSERT_OK(axcclPipelineFinish(pipeline, Cuda(clique.stream())));
          ASSERT_OK(harness::SynchronizeStream(clique.stream()));
          const int wanted = sends ? 10 * start + last - context.rank() : 0;
          EXPECT_EQ(std::count(out, out + kSize, wanted), kSize);
        }
        ASSERT_OK(axcclPipelineDestroy(pipeline));
        ASSERT_TRUE(context.Barrier());
      },
      SmallGpu());
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineProcessesTest,
                         testing::Values(harness::Processes(2), harness::Processes(3), Layout{2, 2, 1}),
                         [](const auto& info) { return info.param.Text(); });

// ---- what is left ----

// Counts the memory of devices that this process has mapped, that of peers' exports included.
int MappedFiles() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("softgpu-memory") != std::string::npos;
  return count;
}

size_t FreeMemory() {
  size_t free = 0, total = 0;
  EXPECT_EQ(EnterGpu()->memory_info(&free, &total), 0);
  return free;
}

int Descriptors() { return harness::Entries("/proc/self/fd"); }

// Each rank notices by itself, soon, what its peers have taken back.
void ExpectSoon(const std::function<bool()>& is) {
  const uint64_t start = NowNs();
  while (!is() && NowNs() - start < AllowedNs(1000)) harness::LookLater();
  EXPECT_TRUE(is());
}

// Each round has memory that is new, or has the addresses of the last one's.
TEST(Lifecycle, NothingIsLeft) {
  for (const Kind kind : {Kind::kOfApplication, Kind::kOfLibrary}) {
    const auto body = [kind](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const auto round = [&](int n) {
        const Memory memory(kind, 2 * kApart);
        const Case c{n % 2 == 0 ? axcclPipelineAllGather : axcclPipelineAllReduce, ncclInt32, 6, 8, 3};
        End end(c, context.nranks(), context.rank(), memory.at(64), memory.at(kApart));
        ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
        ASSERT_NO_FATAL_FAILURE(RunStart(&end, clique, n));
        end.Destroy();
      };
      ASSERT_TRUE(context.Barrier());
      const int mapped = MappedFiles();
      ASSERT_TRUE(context.Barrier());
      for (int n = 0; n < 3; ++n) ASSERT_NO_FATAL_FAILURE(round(n));
      ASSERT_TRUE(context.Barrier());
      const size_t free = FreeMemory();
      const int descriptors = Descriptors();
      ASSERT_TRUE(context.Barrier());
      for (int n = 0; n < 50; ++n) {
        ASSERT_TRUE(context.Step("round %d", n));
        ASSERT_NO_FATAL_FAILURE(round(n));
      }
      ASSERT_TRUE(context.Barrier());
      ExpectSoon([&] { return MappedFiles() == mapped && FreeMemory() >= free && Descriptors() <= descriptors; });
      EXPECT_EQ(MappedFiles(), mapped);
      EXPECT_GE(FreeMemory(), free);
      EXPECT_LE(Descriptors(), descriptors);
      ASSERT_TRUE(context.Barrier());
    };
    RunRanks(harness::Processes(2), body);
  }
}

// More allocations than can be shared at a time, each for one pipeline, and none of them is freed before the end.
TEST(Lifecycle, ManyAllocationsInTurn) {
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int mapped = MappedFiles();
    std::vector<std::unique_ptr<Memory>> all;
    for (int n = 0; n < 300; ++n) {
      ASSERT_TRUE(context.Step("pipeline %d", n));
      all.push_back(std::make_unique<Memory>(Kind::kOfApplication, 4096));
      const Case c{axcclPipelineAllGather, ncclInt32, 2, 4, 1};
      End end(c, context.nranks(), context.rank(), all.back()->at(64), all.back()->at(2048));
      ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
      for (int start = 0; n % 10 == 0 && start < 2; ++start) ASSERT_NO_FATAL_FAILURE(RunStart(&end, clique, start));
      end.Destroy();
    }
    ExpectSoon([&] { return MappedFiles() == mapped; });
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Processes(2), body, options);
}

// ---- refused ----

// Only rank 0 has memory that cannot be shared, and tries again with other memory. That shifts no later pipeline.
TEST(Refused, MemoryThatCannotBeShared) {
  for (const bool forbidden : {false, true}) {
    const auto body = [forbidden](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
      const int n = context.nranks(), rank = context.rank();
      const Memory bad(forbidden ? Kind::kOfApplication : Kind::kManaged, 2 * kApart);
      const Memory good(Kind::kOfLibrary, 2 * kApart);
      const Case c{axcclPipelineAllReduce, ncclInt32, 6, 8, 3};
      if (rank == 0) {
        const int descriptors = Descriptors(), mapped = MappedFiles();
        const size_t free = FreeMemory();
        for (int i = 0; i < 300; ++i) {
          // The input alone, or the output alone, which peers of an all-reduce read, too.
          const bool input = i % 2 == 0;
          End end(c, n, rank, (input ? bad : good).at(0), (input ? good : bad).at(kApart));
          ASSERT_EQ(end.Create(channel), ncclInvalidUsage);
          ExpectLastErrorHas({"axcclPipelineCreate", input ? "argument spec->in" : "argument spec->out", "rank 1",
                              "cuIpcGetMemHandle", "ncclMemAlloc", "cudaMalloc", "axcclAllGather"});
        }
        EXPECT_LE(Descriptors(), descriptors);
        EXPECT_EQ(MappedFiles(), mapped);
        EXPECT_GE(FreeMemory(), free);
      }
      // What the others offer is mapped at once, and would be counted above.
      ASSERT_TRUE(context.Barrier());
      for (int i = 0; i < 2; ++i) {
        End end(c, n, rank, good.at(0), good.at(kApart));
        ASSERT_OK(end.Create(channel));
        ASSERT_NO_FATAL_FAILURE(RunStart(&end, clique, i));
        end.Destroy();
      }
      // The output of an all-gather is not read by others.
      const Case gather{axcclPipelineAllGather, ncclInt32, 6, 8, 3};
      End end(gather, n, rank, good.at(0), bad.at(0));
      ASSERT_OK(end.Create(channel));
      ASSERT_NO_FATAL_FAILURE(RunStart(&end, clique, 2));
      end.Destroy();
      ASSERT_TRUE(context.Barrier());
    };
    RunOptions options;
    if (forbidden) options.environment.emplace_back("SOFTGPU_IPC", "0");
    RunRanks(harness::Processes(2), body, options);
  }
}

// Where all ranks of a pipeline are in one process, it takes any memory, wherever others of the communicator are.
TEST(Refused, NoMemoryWithinAProcess) {
  RunRanks(Layout{2, 2, 1}, [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const axcclChannel_t pair = harness::MakeChannel(clique.comm(), 4, {{0, 1}, {2, 3}}, 1);
    const Memory memory(Kind::kManaged, 2 * kApart);
    ASSERT_TRUE(context.Barrier());  // allocating may wait for kernels
    const Case c{axcclPipelineAllReduce, ncclInt32, 6, 8, 3};
    End end(c, 2, context.rank() % 2, memory.at(0), memory.at(kApart));
    ASSERT_OK(end.Create(pair));
    for (int start = 0; start < 2; ++start) ASSERT_NO_FATAL_FAILURE(RunStart(&end, clique, start));
    end.Destroy();
    ASSERT_OK(axcclChannelDestroy(pair));
    ASSERT_TRUE(context.Barrier());
  });
}

// ---- failures ----

// The first chunk of the others comes. Then a process ends, and the rest never does.
TEST(Failures, AProcessDiesInTheMiddleOfAStart) {
  for (const Layout& layout : {harness::Processes(2), harness::Processes(3)}) {
    for (const axcclPipelineKind_t kind : {axcclPipelineAllGather, axcclPipelineAllReduce}) {
      const auto body = [&](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const int n = context.nranks(), alive = n - 1;
        const bool dies = context.rank() == alive;
        const Memory memory(Kind::kOfLibrary, 2 * kApart);
        const Case c{kind, ncclInt32, 4, 8, 4, axcclDefaultOrder, true};
        End end(c, n, context.rank(), memory.at(64), memory.at(kApart));
        ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
        end.Prepare(0);
        ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
        ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
        const int64_t declared = dies ? 1 : end.info().in_chunks;
        for (int64_t chunk = 0; chunk < declared; ++chunk) {
          end.Produce(chunk);
          ASSERT_OK(axcclPipelineReady(end.handle(), chunk));
        }
        // The first chunk of the last rank, or of the sum.
        const int64_t first = end.info().out_chunks - c.slices;
        ASSERT_OK(axcclPipelineWait(end.handle(), first));
        ASSERT_TRUE(context.Barrier());
        if (dies) context.Die();
        EXPECT_EQ(AwaitError(clique.comm(), 3000), ncclRemoteError) << ncclGetLastError(nullptr);
        EXPECT_EQ(end.Check(first), "");
        for (int64_t chunk = 0; chunk < end.info().out_chunks; ++chunk) {
          const uint32_t word = axcclDeviceAwait(end.word(axcclOut, chunk));
          EXPECT_EQ(axcclPipelineWait(end.handle(), chunk), word == 1 ? ncclSuccess : ncclRemoteError);
          EXPECT_EQ(word, chunk > first ? 2u : word);
        }
        ASSERT_OK(harness::SynchronizeStream(clique.stream()));
        end.Destroy();
        ASSERT_TRUE(context.Barrier(1, alive));
        ASSERT_OK(ncclCommAbort(clique.comm()));
        clique.ForgetComms();
        ASSERT_TRUE(context.Barrier(2, alive));
      };
      RunRanks(layout, body);
    }
  }
}

// Rank 1 has created its end, then leaves or dies. Rank 0 has started.
TEST(Failures, ARankThatLeavesBeforeItStarts) {
  for (const bool dies : {false, true}) {
    RunRanks(harness::Processes(2), [dies](RankContext& context) {
      Clique clique;
      ASSERT_TRUE(clique.Init(context));
      const Memory memory(Kind::kOfApplication, 2 * kApart);
      const Case c{axcclPipelineAllReduce, ncclInt32, 4, 8, 2};
      End end(c, 2, context.rank(), memory.at(0), memory.at(kApart));
      if (context.rank() == 1) {
        ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
        ASSERT_TRUE(context.Barrier());
        if (dies) context.Die();
        end.Destroy();
      } else {
        ASSERT_TRUE(context.Barrier());
        ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
        // May have noticed it already.
        const ncclResult_t started = axcclPipelineStart(end.handle(), Cuda(clique.stream()));
        EXPECT_TRUE(started == ncclSuccess || started == ncclRemoteError) << started;
        EXPECT_EQ(AwaitError(clique.comm(), 3000), ncclRemoteError) << ncclGetLastError(nullptr);
        ExpectLastErrorHas({"rank 1"});
        for (int64_t chunk = 0; started == ncclSuccess && chunk < end.info().out_chunks; ++chunk)
          EXPECT_EQ(axcclDeviceAwait(end.word(axcclOut, chunk)), 2u);
        ASSERT_OK(harness::SynchronizeStream(clique.stream()));
        end.Destroy();
      }
      const int left = dies ? 1 : 2;
      ASSERT_TRUE(context.Barrier(1, left));
      ASSERT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
      ASSERT_TRUE(context.Barrier(2, left));
    });
  }
}

// Rank 0 gives up and frees its memory while kernels of rank 1 read it.
TEST(Failures, MemoryThatIsStillRead) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr int64_t kRows = 64, kWidth = 1 << 16;
    constexpr size_t kBytes = kRows * kWidth * sizeof(int32_t);
    auto memory = std::make_unique<Memory>(Kind::kOfLibrary, 3 * kBytes);
    const Case c{axcclPipelineAllGather, ncclInt32, kRows, kWidth, kRows};
    End end(c, 2, context.rank(), memory->at(0), memory->at(kBytes));
    ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
    ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
    ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
    if (context.rank() == 0) {
      ASSERT_NE(context.Await(0), 0u);
      ASSERT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
      end.Destroy();
      memory = nullptr;
    } else {
      ASSERT_OK(axcclPipelineWait(end.handle(), 0));
      context.Set(0, 1);
      for (int64_t chunk = 0; chunk < end.info().out_chunks; ++chunk) {
        const ncclResult_t waited = axcclPipelineWait(end.handle(), chunk);
        EXPECT_TRUE(waited == ncclSuccess || waited == ncclRemoteError) << waited;
      }
    }
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 1) {
      ASSERT_OK(ncclCommAbort(clique.comm()));
      clique.ForgetComms();
      end.Destroy();
    }
    ASSERT_TRUE(context.Barrier());
  });
}

// Rank 1 has no descriptor left with which to map what rank 0 offers.
TEST(Failures, APeerThatCannotMapTheMemory) {
  RunRanks(harness::Processes(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Memory memory(Kind::kOfLibrary, 2 * kApart);
    const Case c{axcclPipelineAllReduce, ncclInt32, 4, 8, 2};
    End end(c, 2, context.rank(), memory.at(0), memory.at(kApart));
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (context.rank() == 1) {
      ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
      const rlimit none{0, before.rlim_max};
      ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    ASSERT_TRUE(context.Barrier());
    if (context.rank() == 0) {
      ASSERT_OK(end.Create(axcclDefaultChannel(clique.comm())));
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      EXPECT_EQ(AwaitError(clique.comm(), 3000), ncclUnhandledCudaError) << ncclGetLastError(nullptr);
      ExpectLastErrorHas({"rank 1 cannot map the memory of rank 0", "NCCL_DEBUG"});
      for (int64_t chunk = 0; chunk < end.info().out_chunks; ++chunk)
        EXPECT_EQ(axcclDeviceAwait(end.word(axcclOut, chunk)), 2u);
    }
    ASSERT_TRUE(context.Barrier());
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    end.Destroy();
    ASSERT_NO_FATAL_FAILURE(AbortTogether(context, &clique));
  });
}

}  // namespace
}  // namespace axccl::tests
