// Pipelines of GPU ranks: what models do with them, chunk by chunk, by thread and by stream; and how they end early.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "axccl/device.h"
#include "tests/cuda/pipeline_end.h"
#include "tests/cuda/words.h"
#include "tests/harness/timing.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::Cuda;
using harness::EnterGpu;
using harness::GpuDriver;
using harness::Layout;
using harness::NowNs;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;

// ---- complete runs ----

void Declare(End* end, int64_t chunk, axcclStream_t stream) {
  end->Produce(chunk);
  if (end->c().how == How::kThread) {
    ASSERT_OK(axcclPipelineReady(end->handle(), chunk));
  } else if (end->c().how == How::kStream) {
    ASSERT_OK(axcclPipelineStreamReady(end->handle(), chunk, Cuda(stream)));
  } else {
    axcclDeviceReady(end->word(axcclIn, chunk));
  }
}

// What a host function of a stream finds when it runs.
struct Seen {
  const End* end;
  int64_t chunk;
  std::string wrong = "nothing was seen";
};
void Look(void* seen) {
  auto* const s = static_cast<Seen*>(seen);
  s->wrong = s->end->Check(s->chunk);
}

void Consume(const End& end, int64_t chunk, axcclStream_t stream, std::vector<std::unique_ptr<Seen>>* seen) {
  if (end.c().how == How::kThread) {
    ASSERT_OK(axcclPipelineWait(end.handle(), chunk));
    int done = 0;
    EXPECT_OK(axcclPipelineTest(end.handle(), chunk, &done));
    EXPECT_EQ(done, 1);
  } else if (end.c().how == How::kStream) {
    ASSERT_OK(axcclPipelineStreamWait(end.handle(), chunk, Cuda(stream)));
    seen->push_back(std::make_unique<Seen>(Seen{&end, chunk}));
    ASSERT_EQ(EnterGpu()->call_host(stream, Look, seen->back().get()), 0);
    return;
  } else {
    ASSERT_EQ(axcclDeviceAwait(end.word(axcclOut, chunk)), 1u);
  }
  ASSERT_EQ(end.Check(chunk), "");
}

// One rank a thread. The second stream consumes, the third produces.
void RunStart(End* end, const Clique& clique, int start) {
  end->Prepare(start);
  ASSERT_OK(axcclPipelineStart(end->handle(), Cuda(clique.stream(0, 0))));
  if (end->c().how == How::kWords) {
    ASSERT_OK(harness::SynchronizeStream(clique.stream(0, 0)));  // words are reset
  }
  for (int64_t p = 0; end->c().produced && p < end->info().in_chunks; ++p)
    ASSERT_NO_FATAL_FAILURE(Declare(end, end->ChunkAt(axcclIn, p), clique.stream(0, 2)));
  std::vector<std::unique_ptr<Seen>> seen;
  for (int64_t p = 0; p < end->info().out_chunks; ++p)
    ASSERT_NO_FATAL_FAILURE(Consume(*end, end->ChunkAt(axcclOut, p), clique.stream(0, 1), &seen));
  ASSERT_OK(axcclPipelineFinish(end->handle(), Cuda(clique.stream(0, 0))));
  ASSERT_OK(harness::SynchronizeStream(clique.stream(0, 0)));
  ASSERT_OK(harness::SynchronizeStream(clique.stream(0, 1)));
  for (const auto& s : seen) ASSERT_EQ(s->wrong, "");
  for (int64_t chunk = 0; chunk < end->info().out_chunks; ++chunk) {
    ASSERT_EQ(end->Check(chunk), "");
    ASSERT_EQ(*end->word(axcclOut, chunk), 1u);
  }
}

void RunCases(RankContext& context, const std::vector<Case>& cases) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context, 3));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.Text());
    ASSERT_TRUE(context.Step("%s", c.Text().c_str()));
    End end(c, clique, 0);
    ASSERT_NE(end.handle(), nullptr);
    ASSERT_TRUE(context.Barrier());  // allocating may wait for kernels
    const bool copies = c.engine == axcclEngineCopy;
    EXPECT_GE(end.info().blocks, 1);
    EXPECT_STREQ(end.info().algorithm, "chunked_direct");
    for (int start = 0; start < 2; ++start) ASSERT_NO_FATAL_FAILURE(RunStart(&end, clique, start));
    EXPECT_EQ(end.engine(), copies ? axcclEngineCopy : axcclEngineKernel);
    EXPECT_EQ(end.info().blocks == 0, copies);
    end.Destroy();
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  ASSERT_TRUE(context.Barrier());
}

// The shapes of a transformer whose weights are spread over the ranks: [S, D] gathered along D, sums of [S, D, 8], and
// blocks that all ranks need in turn. What is not reduced is moved by kernels and, within a process, by copy engines.
std::vector<Case> Shapes(const Layout& layout) {
  const int ranks = layout.nranks();
  std::vector<Case> cases;
  const auto add = [&](Case c) {
    cases.push_back(c);
    c.engine = axcclEngineCopy;
    if (!c.reduces() && layout.processes == 1) cases.push_back(c);
  };
  int n = 0;
  for (const int64_t slices : {1, 2, 7, 8}) {
    for (const ncclDataType_t type : {ncclFloat32, ncclBfloat16, ncclInt32}) {
      const How how = static_cast<How>(n % 3);
      const bool produced = n++ % 2 != 0;
      add({axcclPipelineAllGather, type, slices, 1, slices, axcclDefaultOrder, produced, how});
      add({axcclPipelineAllReduce, type, slices, ranks * 8, slices, axcclDefaultOrder, produced, how});
      add({axcclPipelineReduceScatter, type, slices, 8, slices, axcclDefaultOrder, !produced, how});
    }
  }
  for (const axcclChunkOrder_t order : {axcclOwnFirst, axcclOwnLast, axcclByRank}) {
    add({axcclPipelineAllGather, ncclBfloat16, 2, 2048, 2, order, order == axcclOwnLast, How::kStream});
    add({axcclPipelineAllToAll, ncclInt32, 5, 64, 2, order, order != axcclOwnLast, How::kThread});
  }
  add({axcclPipelineBroadcast, ncclFloat32, 9, 500, 7, axcclDefaultOrder, true, How::kThread});
  return cases;
}

class PipelineTest : public testing::TestWithParam<Layout> {};

TEST_P(PipelineTest, ShapesOfModels) {
  const Layout layout = GetParam();
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  if (layout.processes > 1) options.environment = {{"AXCCL_TEST_GPU_MEMORY", "device"}};
  RunRanks(
      layout, [&](RankContext& context) { RunCases(context, Shapes(layout)); }, options);
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineTest,
                         testing::Values(harness::Threads(2), harness::Threads(3), harness::Threads(4),
                                         harness::Threads(8), harness::Processes(2), harness::Processes(3),
                                         Layout{2, 2, 1}),
                         [](const auto& info) { return info.param.Text(); });

// ---- kernels that wait for words ----

// Waits until *word is not 0, stores its value at `to`, and behind it `count` words from `from`.
constexpr const char* kConsume = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry consume(.param .u64 word, .param .u64 from, .param .u64 to, .param .u32 count) {
  .reg .pred %p;
  .reg .u32 %value, %left;
  .reg .u64 %word, %from, %to;
  ld.param.u64 %word, [word];
  ld.param.u64 %from, [from];
  ld.param.u64 %to, [to];
  ld.param.u32 %left, [count];
look:
  ld.acquire.sys.global.u32 %value, [%word];
  setp.eq.u32 %p, %value, 0;
  @%p bra look;
  st.global.u32 [%to], %value;
copy:
  setp.eq.u32 %p, %left, 0;
  @%p bra done;
  ld.global.u32 %value, [%from];
  add.u64 %to, %to, 4;
  st.global.u32 [%to], %value;
  add.u64 %from, %from, 4;
  sub.u32 %left, %left, 1;
  bra copy;
done:
  ret;
}
)";

class Consumer {
 public:
  Consumer() {
    void* module = nullptr;
    EXPECT_EQ(driver_->load_module(&module, kConsume), 0);
    EXPECT_EQ(driver_->get_function(&function_, module, "consume"), 0);
  }
  void Launch(uint32_t* word, const void* from, int32_t* to, uint32_t count, axcclStream_t stream) const {
    void* parameters[] = {&word, &from, &to, &count};
    ASSERT_EQ(driver_->launch(function_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr), 0);
  }

 private:
  const GpuDriver* const driver_ = EnterGpu();
  void* function_ = nullptr;
};

// Behind the start on the same stream, all at once; each waits for its chunk.
TEST(Kernels, WaitForWords) {
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c{axcclPipelineAllGather, ncclInt32, 6, 16, 3, axcclDefaultOrder, true};
    End end(c, clique, 0);
    const Consumer consumer;
    const auto chunks = static_cast<size_t>(end.info().out_chunks);
    Words seen(chunks * 17), ready(1, 1);
    // A driver may let the first launch of a function wait for all kernels: it comes before those of the library.
    ASSERT_NO_FATAL_FAILURE(
        consumer.Launch(reinterpret_cast<uint32_t*>(ready.get()), ready.get(), seen.get(), 0, clique.stream()));
    ASSERT_OK(harness::SynchronizeStream(clique.stream()));
    ASSERT_TRUE(context.Barrier());
    for (int start = 0; start < 3; ++start) {
      end.Prepare(start);
      seen.Fill(-1);
      ASSERT_OK(axcclPipelineStart(end.handle(), Cuda(clique.stream())));
      for (int64_t p = 0; p < end.info().out_chunks; ++p) {
        axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
        ASSERT_OK(axcclPipelineGetChunk(end.handle(), axcclOut, p, &chunk));
        ASSERT_NO_FATAL_FAILURE(consumer.Launch(end.word(axcclOut, chunk.number), chunk.view.data,
                                                seen.get() + chunk.number * 17, 16, clique.stream()));
      }
      ASSERT_OK(axcclPipelineFinish(end.handle(), Cuda(clique.stream())));
      for (int64_t chunk = 0; chunk < end.info().in_chunks; ++chunk) {
        end.Produce(chunk);
        ASSERT_OK(axcclPipelineReady(end.handle(), chunk));
      }
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      for (int64_t chunk = 0; chunk < end.info().out_chunks; ++chunk) {
        const int32_t* const found = seen.get() + chunk * 17;
        ASSERT_EQ(found[0], 1);
        ASSERT_EQ(end.Check(chunk), "");
        for (int64_t column = 0; column < 16; ++column)
          ASSERT_EQ(found[1 + column], end.Wanted(chunk / 3, chunk % 3 * 2, column));
      }
    }
    end.Destroy();
    ASSERT_TRUE(context.Barrier());
  };
  RunRanks(harness::Threads(2), body);
}

// ---- devices, channels, groups ----

TEST(Devices, TwoInOneProcess) {
  const auto body = [](RankContext& context) {
    ASSERT_NE(EnterGpu(context.rank() % 2), nullptr);
    std::vector<Case> cases;
    for (const bool produced : {false, true}) {
      cases.push_back({axcclPipelineAllGather, ncclInt32, 7, 100, 7, axcclOwnLast, produced, How::kThread});
      cases.push_back({axcclPipelineAllReduce, ncclFloat32, 7, 100, 2, axcclDefaultOrder, produced, How::kStream});
    }
    RunCases(context, cases);
  };
  RunRanks(harness::Threads(2), body, SmallGpu(2));
  RunRanks(harness::Threads(4), body, SmallGpu(2));
}

// Two pipelines under way at a time, and calls on the default channel beside them, in another order on each rank.
TEST(Channels, RunBesideEachOther) {
  RunRanks(harness::Threads(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 3));
    axcclChannel_t channels[2] = {};
    for (int i = 0; i < 2; ++i) ASSERT_OK(axcclChannelCreate(&channels[i], clique.comm(), nullptr, i + 1, 0));
    const Case c{axcclPipelineReduceScatter, ncclInt32, 8, 8, 4, axcclDefaultOrder, true};
    End a(c, clique, 0, channels[0]), b(c, clique, 0, channels[1]);
    for (axcclChannel_t channel : channels) EXPECT_OK(axcclChannelDestroy(channel));  // pipelines keep them
    Words data(3000);
    for (int start = 0; start < 3; ++start) {
      data.Fill(1);
      const auto begin = [&](End* end, int stream) {
        end->Prepare(start);
        ASSERT_OK(axcclPipelineStart(end->handle(), Cuda(clique.stream(0, stream))));
      };
      const auto finish = [&](End* end, int stream) {
        for (int64_t p = 0; p < end->info().in_chunks; ++p)
          ASSERT_NO_FATAL_FAILURE(Declare(end, end->ChunkAt(axcclIn, p), nullptr));
        ASSERT_OK(axcclPipelineFinish(end->handle(), Cuda(clique.stream(0, stream))));
      };
      const bool first = context.rank() == 0;
      ASSERT_NO_FATAL_FAILURE(begin(first ? &a : &b, 0));
      ASSERT_NO_FATAL_FAILURE(begin(first ? &b : &a, 1));
      ASSERT_OK(Sum(&data, &data, clique.comm(), clique.stream(0, 2)));
      ASSERT_OK(harness::SynchronizeStream(clique.stream(0, 2)));
      EXPECT_TRUE(data.AreAll(2));
      ASSERT_NO_FATAL_FAILURE(finish(first ? &b : &a, 1));
      ASSERT_NO_FATAL_FAILURE(finish(first ? &a : &b, 0));
      ASSERT_TRUE(clique.Synchronize());
      for (int64_t chunk = 0; chunk < a.info().out_chunks; ++chunk) {
        ASSERT_EQ(a.Check(chunk), "");
        ASSERT_EQ(b.Check(chunk), "");
      }
    }
    a.Destroy();
    b.Destroy();
    ASSERT_TRUE(context.Barrier());
  });
}

// Pipelines start at the end of a group, after its calls, whose results they need.
TEST(Groups, StartPipelinesAtTheirEnd) {
  RunRanks(harness::OneThread(3), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const Case c{axcclPipelineAllGather, ncclInt32, 4, 5, 2};
    std::vector<std::unique_ptr<End>> ends;
    std::vector<std::unique_ptr<Words>> data;
    for (int i = 0; i < clique.size(); ++i) {
      ends.push_back(std::make_unique<End>(c, clique, i));
      data.push_back(std::make_unique<Words>(2000));
    }
    for (int start = 0; start < 3; ++start) {
      ASSERT_OK(ncclGroupStart());
      for (int i = 0; i < clique.size(); ++i) {
        const auto at = static_cast<size_t>(i);
        data[at]->Fill(1);
        ends[at]->Prepare(start);
        ASSERT_OK(axcclPipelineStart(ends[at]->handle(), Cuda(clique.stream(i))));
        ASSERT_OK(Sum(data[at].get(), data[at].get(), clique.comm(i), clique.stream(i)));
      }
      ASSERT_OK(ncclGroupEnd());
      for (int i = 0; i < clique.size(); ++i)
        ASSERT_OK(axcclPipelineFinish(ends[static_cast<size_t>(i)]->handle(), Cuda(clique.stream(i))));
      ASSERT_TRUE(clique.Synchronize());
      for (size_t i = 0; i < ends.size(); ++i) {
        EXPECT_TRUE(data[i]->AreAll(3));
        for (int64_t chunk = 0; chunk < ends[i]->info().out_chunks; ++chunk) ASSERT_EQ(ends[i]->Check(chunk), "");
      }
    }
    for (const auto& end : ends) end->Destroy();
  });
}

// Rank 0 sends to rank 1 and gets nothing, rank 1 to rank 2, and rank 3 to itself.
void RunPermute(axcclEngine_t engine) {
  RunRanks(harness::Threads(4), [engine](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    constexpr int64_t kSize = 60;
    const int64_t pairs[] = {0, 1, 1, 2, 3, 3};
    const int rank = context.rank(), from[] = {-1, 0, 1, 3};
    Words in(kSize), out(kSize, -1);
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    spec.kind = axcclPipelinePermute;
    spec.pairs = pairs;
    spec.num_pairs = 3;
    spec.in.datatype = spec.out.datatype = ncclInt32;
    spec.in.num_dims = spec.out.num_dims = 1;
    spec.in.sizes = spec.out.sizes = &kSize;
    spec.in.data = rank == 2 ? nullptr : in.get();
    spec.out.data = out.get();
    spec.slices = 4;
    spec.engine = engine;
    axcclPipeline_t pipeline = nullptr;
    ASSERT_OK(axcclPipelineCreate(&pipeline, &spec, axcclDefaultChannel(clique.comm())));
    for (int start = 1; start < 4; ++start) {
      in.Fill(10 * start + rank);
      out.Fill(-1);
      ASSERT_OK(axcclPipelineStart(pipeline, Cuda(clique.stream())));
      for (int64_t chunk = 0; chunk < 4; ++chunk) {
        ASSERT_OK(axcclPipelineWait(pipeline, chunk));
        EXPECT_EQ(out.get()[chunk * 15 + 14], from[rank] < 0 ? 0 : 10 * start + from[rank]);
      }
      ASSERT_OK(axcclPipelineFinish(pipeline, Cuda(clique.stream())));
      ASSERT_OK(harness::SynchronizeStream(clique.stream()));
      EXPECT_TRUE(out.AreAll(from[rank] < 0 ? 0 : 10 * start + from[rank]));
    }
    ASSERT_OK(axcclPipelineDestroy(pipeline));
    ASSERT_TRUE(context.Barrier());
  });
}

TEST(Permute, MessagesCopiesAndZerosByKernels) { RunPermute(axcclEngineKernel); }
TEST(Permute, MessagesCopiesAndZerosByCopyEngines) { RunPermute(axcclEngineCopy); }

// The area of a pipeline is free once the peers have left it, too.
void CreateWhenThereIsRoom(End* end, axcclChannel_t channel) {
  ncclResult_t result = ncclInvalidUsage;
  for (const uint64_t start = NowNs(); result == ncclInvalidUsage && NowNs() - start < AllowedNs(2000);) {
    result = end->Create(channel);
    harness::LookLater();
  }
  ASSERT_OK(result);
}

// Each is created, started or not, and destroyed; the next one uses its area of the device.
TEST(Lifecycle, FollowEachOtherInOneArea) {
  RunOptions options;
  options.environment = {{"AXCCL_GPU_CHANNELS", "1"}};
  const auto body = [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 3));
    for (int n = 0; n < 12; ++n) {
      ASSERT_TRUE(context.Step("pipeline %d", n));
      const Case c{n % 2 != 0 ? axcclPipelineAllGather : axcclPipelineAllReduce, ncclInt32, 4, 5 + n, 1 + n % 4};
      End end(c, 2, context.rank());
      ASSERT_NO_FATAL_FAILURE(CreateWhenThereIsRoom(&end, axcclDefaultChannel(clique.comm())));
      if (n == 0) {
        End second(c, 2, context.rank());
        EXPECT_EQ(second.Create(axcclDefaultChannel(clique.comm())), ncclInvalidUsage);
        EXPECT_TRUE(harness::LastErrorHas("AXCCL_GPU_CHANNELS")) << ncclGetLastError(nullptr);
      }
      for (int start = 0; start < n % 3; ++start) ASSERT_NO_FATAL_FAILURE(RunStart(&end, clique, start));
      end.Destroy();
    }
  };
  RunRanks(harness::Threads(2), body, options);
}

}  // namespace
}  // namespace axccl::tests
