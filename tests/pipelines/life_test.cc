// Pipelines in number and over time, in groups, on channels of subgroups, beside calls and each other, on busy streams;
// and what is special: one slice, empty blocks, permutes of every form.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/channels.h"
#include "tests/harness/client.h"
#include "tests/harness/random.h"
#include "tests/harness/residue.h"
#include "tests/pipelines/gate.h"
#include "tests/pipelines/int_pipeline.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Entries;
using harness::Layout;
using harness::Memory;
using harness::OneThread;
using harness::Processes;
using harness::RankContext;
using harness::RunCliques;
using harness::RunOptions;
using harness::RunRanks;
using harness::Threads;
using harness::TimeScale;

using Pipelines = std::vector<std::unique_ptr<IntPipeline>>;

// One for each rank of the thread, on the default channel.
Pipelines MakeAll(const IntCase& c, const Clique& clique) {
  Pipelines all;
  for (int i = 0; i < clique.size(); ++i)
    all.push_back(std::make_unique<IntPipeline>(c, clique.rank(i), axcclDefaultChannel(clique.comm(i))));
  return all;
}
void StepAll(const Pipelines& all, const Clique& clique, int step) {
  for (size_t i = 0; i < all.size(); ++i) {
    all[i]->Prepare(step);
    ASSERT_OK(axcclPipelineStart(all[i]->handle(), Cuda(clique.stream(static_cast<int>(i)))));
  }
  for (const auto& pipeline : all) ASSERT_OK(pipeline->DeclareAll(step));
  for (size_t i = 0; i < all.size(); ++i)
    ASSERT_OK(axcclPipelineFinish(all[i]->handle(), Cuda(clique.stream(static_cast<int>(i)))));
  for (int i = 0; i < clique.size(); ++i) ASSERT_OK(axcclStreamSynchronize(clique.stream(i)));
  for (const auto& pipeline : all) ASSERT_EQ(pipeline->Check(step), "");
}

// ---- many, and for long ----

TEST(PipelineLife, AThousandAtOnce) {
  const int count = 1000 / TimeScale();
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  RunRanks(
      Threads(8),
      [count](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const auto case_of = [](int number) {
          IntCase c = CaseOf(kPipelineKinds[number % 6], 8, 1 + number % 3);
          c.columns = number % 5 == 0 ? 20 : 1;
          c.memory = number % 2 == 0 ? Memory::kMalloc : Memory::kMemAlloc;
          return c;
        };
        Pipelines all;
        for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
          ASSERT_TRUE(context.Step("create %d", i));
          all.push_back(std::make_unique<IntPipeline>(case_of(i), context.rank(), axcclDefaultChannel(clique.comm())));
        }
        ASSERT_FALSE(testing::Test::HasFailure());
        for (int round = 0; round < 2; ++round) {
          for (int i = 0; i < count; i += round == 0 ? 1 : 7) {
            ASSERT_TRUE(context.Step("round %d, pipeline %d", round, i));
            ASSERT_OK(all[static_cast<size_t>(i)]->Step(round, Cuda(clique.stream())));
          }
          ASSERT_TRUE(clique.Synchronize());
          for (int i = 0; i < count; i += round == 0 ? 1 : 7)
            ASSERT_EQ(all[static_cast<size_t>(i)]->Check(round), "") << "pipeline " << i;
        }
      },
      options);
}

// What one takes while it does nothing, of any kind.
TEST(PipelineLife, TakesLittleMemory) {
  RunRanks(Threads(8), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (const axcclPipelineKind_t kind : kPipelineKinds) {
      IntCase c = CaseOf(kind, 8, 8);
      c.columns = 100;
      IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
      axcclPipelineInfo_t info{};
      info.size = sizeof(info);
      ASSERT_OK(axcclPipelineGetInfo(pipeline.handle(), &info));
      const auto chunks = static_cast<size_t>(info.in_chunks + info.out_chunks);
      EXPECT_LE(info.memory_bytes, (16u << 10) + 8 * chunks) << KindName(kind);
    }
  });
}

class LivesTest : public testing::TestWithParam<Layout> {};

TEST_P(LivesTest, LeaveNothingBehind) {
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  const int lives = 300 / TimeScale();
  RunRanks(
      GetParam(),
      [lives](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        const auto live = [&](int number) {
          IntCase c = CaseOf(kPipelineKinds[number % 6], context.nranks(), 1 + number % 7);
          c.columns = number % 3 == 0 ? 3000 : 10;
          c.produced = true;
          c.memory = number % 2 == 0 ? Memory::kMalloc : Memory::kMemAlloc;
          const Pipelines all = MakeAll(c, clique);
          for (int step = 0; step < 2; ++step) StepAll(all, clique, step);
        };
        for (int i = 0; i < 48; ++i) live(i);
        ASSERT_TRUE(context.Barrier());
        const int files = Entries("/proc/self/fd"), threads = Entries("/proc/self/task");
        const int shared = harness::SharedMappings();
        const size_t bytes = harness::AllocatedBytes();
        for (int i = 0; i < lives; ++i) {
          ASSERT_TRUE(context.Step("life %d", i));
          live(i);
          ASSERT_FALSE(testing::Test::HasFailure());
        }
        ASSERT_TRUE(context.Barrier());
        // Other threads of the process may hold some for a moment, and allocators keep some.
        EXPECT_LE(Entries("/proc/self/fd"), files + 4);
        EXPECT_LE(Entries("/proc/self/task"), threads + 2);
        EXPECT_LE(harness::SharedMappings(), shared + 8);
        if (TimeScale() == 1) {
          EXPECT_LE(harness::AllocatedBytes(), bytes + (256u << 10)) << "after " << lives << " pipelines of each rank";
        }
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Layouts, LivesTest, testing::Values(Processes(2), Threads(3), OneThread(2)),
                         [](const auto& info) { return info.param.Text(); });

// ---- forms ----

class FormsTest : public testing::TestWithParam<Layout> {};

TEST_P(FormsTest, OneSliceAndEmptyBlocks) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    for (const axcclPipelineKind_t kind : kPipelineKinds) {
      for (const auto& [rows, columns, slices] :
           {std::array<int64_t, 3>{1, 1, 1}, {64, 64, 1}, {5, 0, 1}, {5, 0, 5}, {0, 4, 1}, {0, 0, 1}, {257, 1, 257}}) {
        IntCase c = CaseOf(kind, context.nranks(), 1);
        c.rows = rows, c.columns = columns, c.slices = slices, c.produced = true;
        ASSERT_TRUE(context.Step("%s", c.Text().c_str()));
        SCOPED_TRACE(c.Text());
        const Pipelines all = MakeAll(c, clique);
        ASSERT_FALSE(testing::Test::HasFailure());
        for (int step = 0; step < 3; ++step) StepAll(all, clique, step);
        ASSERT_FALSE(testing::Test::HasFailure());
      }
    }
  });
}

TEST_P(FormsTest, Permutes) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const int n = context.nranks();
    std::vector<std::vector<int64_t>> lists = {{}, {0, 0}, {n - 1, 0}, {0, n - 1}};
    for (int shift = 0; shift < n; ++shift) lists.push_back(ShiftPairs(n, shift));
    if (n > 2) lists.insert(lists.end(), {{0, 1, 1, 0, 2, 2}, {0, 1, 1, 2}, {2, 0, 1, 1}, {1, 2, 2, 1}});
    for (const auto& pairs : lists) {
      for (const bool produced : {false, true}) {
        IntCase c = CaseOf(axcclPipelinePermute, n, 3);
        c.columns = produced ? 50 : 3, c.produced = produced, c.pairs = pairs;
        SCOPED_TRACE(c.Text() + ", " + testing::PrintToString(pairs));
        ASSERT_TRUE(context.Step("%s", testing::PrintToString(pairs).c_str()));
        const Pipelines all = MakeAll(c, clique);
        for (int step = 0; step < 3; ++step) {
          if (produced) {
            StepAll(all, clique, step);
            continue;
          }
          for (size_t i = 0; i < all.size(); ++i)
            ASSERT_OK(all[i]->Step(step, Cuda(clique.stream(static_cast<int>(i)))));
          ASSERT_TRUE(clique.Synchronize());
          for (const auto& pipeline : all) ASSERT_EQ(pipeline->Check(step), "");
        }
        ASSERT_FALSE(testing::Test::HasFailure());
      }
    }
  });
}

TEST_P(FormsTest, StartsInAGroupWithCalls) {
  RunCliques(GetParam(), [](RankContext& context, Clique& clique) {
    const int n = context.nranks();
    IntCase c = CaseOf(axcclPipelineAllReduce, n, 3), other = CaseOf(axcclPipelineAllToAll, n, 2);
    c.columns = 100;
    const Pipelines first = MakeAll(c, clique), second = MakeAll(other, clique);
    std::vector<int> values(static_cast<size_t>(clique.size()));
    for (int step = 0; step < 20; ++step) {
      ASSERT_TRUE(context.Step("step %d", step));
      ASSERT_OK(ncclGroupStart());
      for (size_t i = 0; i < first.size(); ++i) {
        const auto m = static_cast<int>(i);
        values[i] = clique.rank(m);
        first[i]->Prepare(step), second[i]->Prepare(step);
        ASSERT_OK(axcclPipelineStart(first[i]->handle(), Cuda(clique.stream(m))));
        ASSERT_OK(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, clique.comm(m), Cuda(clique.stream(m))));
        ASSERT_OK(axcclPipelineStart(second[i]->handle(), Cuda(clique.stream(m))));
      }
      ASSERT_OK(ncclGroupEnd());
      for (size_t i = 0; i < first.size(); ++i) {
        const cudaStream_t stream = Cuda(clique.stream(static_cast<int>(i)));
        ASSERT_OK(axcclPipelineWait(second[i]->handle(), 1));
        ASSERT_EQ(second[i]->CheckChunk(1, step), "");
        ASSERT_OK(axcclPipelineFinish(first[i]->handle(), stream));
        ASSERT_OK(axcclPipelineFinish(second[i]->handle(), stream));
      }
      ASSERT_TRUE(clique.Synchronize());
      for (size_t i = 0; i < first.size(); ++i) {
        ASSERT_EQ(first[i]->Check(step), "");
        ASSERT_EQ(second[i]->Check(step), "");
        ASSERT_EQ(values[i], n * (n - 1) / 2);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, FormsTest,
                         testing::Values(Processes(1), Processes(2), Processes(3), Threads(3), OneThread(3),
                                         Layout{2, 1, 2}),
                         [](const auto& info) { return info.param.Text(); });

// ---- channels ----

TEST(PipelineLife, OnChannelsOfSubgroups) {
  for (const Layout& layout : {Processes(4), Layout{2, 2, 1}}) {
    RunCliques(layout, [](RankContext& context, Clique& clique) {
      const int rank = context.rank();
      for (const auto& lists : std::vector<std::vector<std::vector<int64_t>>>{
               {{0, 1}, {2, 3}}, {{3, 1}, {2, 0}}, {{0, 1, 2}, {3}}, {{2, 0, 1, 3}}}) {
        const std::vector<int64_t>* own = nullptr;
        int position = -1;
        for (const auto& list : lists) {
          for (size_t i = 0; i < list.size(); ++i) {
            if (list[i] == rank) own = &list, position = static_cast<int>(i);
          }
        }
        ASSERT_NE(own, nullptr);
        axcclChannel_t const channel = harness::MakeChannel(clique.comm(), 4, lists, 11);
        for (const axcclPipelineKind_t kind : kPipelineKinds) {
          IntCase c = CaseOf(kind, static_cast<int>(own->size()), 3);
          c.columns = 60;
          IntPipeline pipeline(c, position, channel);
          for (int step = 0; step < 3; ++step) {
            ASSERT_TRUE(context.Step("%s, step %d", c.Text().c_str(), step));
            ASSERT_OK(pipeline.Step(step, Cuda(clique.stream())));
            ASSERT_TRUE(clique.Synchronize());
            ASSERT_EQ(pipeline.Check(step), "");
          }
        }
        ASSERT_OK(axcclChannelDestroy(channel));
      }
    });
  }
}

// ---- beside others ----

// Both are started before anything is declared; the second one's input is declared first, but it runs behind the first.
TEST(PipelineLife, TwoOnOneChannelRunInOrder) {
  RunCliques(OneThread(2), [](RankContext&, Clique& clique) {
    IntCase c = CaseOf(axcclPipelineAllReduce, 2, 3);
    c.columns = 100, c.produced = true;
    const Pipelines first = MakeAll(c, clique), second = MakeAll(c, clique);
    const auto declare = [](const Pipelines& all, int step) {
      for (const auto& pipeline : all) ASSERT_OK(pipeline->DeclareAll(step));
    };
    for (int step = 0; step < 5; ++step) {
      for (size_t i = 0; i < 2; ++i) {
        first[i]->Prepare(step), second[i]->Prepare(step);
        ASSERT_OK(axcclPipelineStart(first[i]->handle(), Cuda(clique.stream(static_cast<int>(i)))));
        ASSERT_OK(axcclPipelineStart(second[i]->handle(), Cuda(clique.stream(static_cast<int>(i)))));
      }
      declare(second, step);
      for (const auto& pipeline : second) {
        int done = -1;
        ASSERT_OK(axcclPipelineTest(pipeline->handle(), 0, &done));
        ASSERT_EQ(done, 0);
      }
      declare(first, step);
      for (size_t i = 0; i < 2; ++i) {
        ASSERT_OK(axcclPipelineWait(second[i]->handle(), 2));
        ASSERT_EQ(first[i]->Check(step), "");
        ASSERT_OK(axcclPipelineFinish(second[i]->handle(), Cuda(clique.stream(static_cast<int>(i)))));
        ASSERT_OK(axcclPipelineFinish(first[i]->handle(), Cuda(clique.stream(static_cast<int>(i)))));
      }
      ASSERT_TRUE(clique.Synchronize());
      for (const auto& pipeline : second) ASSERT_EQ(pipeline->Check(step), "");
    }
  });
}

// One that waits for a chunk, and then declares the input of the next start, needs no later chunk for that.
TEST(PipelineLife, AStreamComesToAWaitAfterTheNextStart) {
  RunRanks(OneThread(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    IntCase c = CaseOf(axcclPipelineAllReduce, 2, 1);
    c.produced = true;
    const Pipelines all = MakeAll(c, clique);
    Gate gate;
    for (int r = 0; r < 2; ++r) {
      all[static_cast<size_t>(r)]->Prepare(1);
      ASSERT_OK(axcclPipelineStart(all[static_cast<size_t>(r)]->handle(), Cuda(clique.stream(r))));
      ASSERT_OK(all[static_cast<size_t>(r)]->DeclareAll(1));
      ASSERT_OK(axcclLaunchHostFunc(clique.stream(r, 1), Gate::Pass, &gate));
      ASSERT_OK(axcclPipelineStreamWait(all[static_cast<size_t>(r)]->handle(), 0, Cuda(clique.stream(r, 1))));
      ASSERT_OK(axcclPipelineFinish(all[static_cast<size_t>(r)]->handle(), Cuda(clique.stream(r))));
    }
    for (int r = 0; r < 2; ++r) ASSERT_OK(axcclStreamSynchronize(clique.stream(r)));
    for (int r = 0; r < 2; ++r) {
      IntPipeline& pipeline = *all[static_cast<size_t>(r)];
      EXPECT_EQ(pipeline.Check(1), "");
      pipeline.Prepare(2);
      pipeline.Produce(0, 2);
      ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream(r))));
      ASSERT_OK(axcclPipelineStreamReady(pipeline.handle(), 0, Cuda(clique.stream(r, 1))));
      ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream(r))));
    }
    gate.Open();
    if (!context.Step("waiting for the second start")) return;
    for (int r = 0; r < 2; ++r) {
      ASSERT_OK(axcclStreamSynchronize(clique.stream(r)));
      ASSERT_OK(axcclStreamSynchronize(clique.stream(r, 1)));
      EXPECT_EQ(all[static_cast<size_t>(r)]->Check(2), "");
    }
  });
}

TEST(PipelineLife, CallsBehindAStartWaitForItsEnd) {
  RunRanks(OneThread(2), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    IntCase c = CaseOf(axcclPipelineAllGather, 2, 3);
    c.columns = 100, c.produced = true;
    const Pipelines all = MakeAll(c, clique);
    for (int step = 0; step < 5; ++step) {
      int values[2] = {1, 1};
      for (int r = 0; r < 2; ++r) {
        all[static_cast<size_t>(r)]->Prepare(step);
        ASSERT_OK(axcclPipelineStart(all[static_cast<size_t>(r)]->handle(), Cuda(clique.stream(r))));
        ASSERT_OK(
            ncclAllReduce(&values[r], &values[r], 1, ncclInt32, ncclSum, clique.comm(r), Cuda(clique.stream(r, 1))));
      }
      const auto declare = [&](size_t rank, int64_t chunk) { ASSERT_OK(all[rank]->Declare(chunk, step)); };
      for (const size_t rank : {0, 1}) declare(rank, 0), declare(rank, 1);
      for (const size_t rank : {0, 1}) ASSERT_OK(axcclPipelineWait(all[rank]->handle(), 1));
      EXPECT_EQ(axcclStreamQuery(clique.stream(0, 1)), ncclInProgress);
      EXPECT_EQ(values[0], 1);
      EXPECT_EQ(values[1], 1);
      for (const size_t rank : {0, 1}) declare(rank, 2);
      for (int r = 0; r < 2; ++r) ASSERT_OK(axcclStreamSynchronize(clique.stream(r, 1)));
      for (const int value : values) EXPECT_EQ(value, 2);
      for (int r = 0; r < 2; ++r)
        ASSERT_OK(axcclPipelineFinish(all[static_cast<size_t>(r)]->handle(), Cuda(clique.stream(r))));
      ASSERT_TRUE(clique.Synchronize());
      for (const auto& pipeline : all) ASSERT_EQ(pipeline->Check(step), "");
    }
  });
}

// ---- busy streams ----

class BusyTest : public testing::TestWithParam<Layout> {};

TEST_P(BusyTest, ReadyBeforeTheStreamGetsToTheStart) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context, 2));
    for (const axcclPipelineKind_t kind : kPipelineKinds) {
      IntCase c = CaseOf(kind, context.nranks(), 3);
      c.columns = 100, c.produced = true;
      IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
      for (int step = 0; step < 6; ++step) {
        ASSERT_TRUE(context.Step("%s, step %d", c.Text().c_str(), step));
        pipeline.Prepare(step);
        Gate gate;
        ASSERT_OK(axcclLaunchHostFunc(clique.stream(), Gate::Pass, &gate));
        ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
        // Some by the call, some by a stream that is idle.
        for (int64_t p = 0; p < pipeline.in_chunks(); ++p) {
          const int64_t chunk = pipeline.ChunkAt(axcclIn, p);
          pipeline.Produce(chunk, step);
          ASSERT_OK(p % 2 == 0 ? axcclPipelineReady(pipeline.handle(), chunk)
                               : axcclPipelineStreamReady(pipeline.handle(), chunk, Cuda(clique.stream(0, 1))));
        }
        // What the last start left says nothing about this one.
        int done = -1;
        ASSERT_OK(axcclPipelineTest(pipeline.handle(), 0, &done));
        EXPECT_EQ(done, 0);
        EXPECT_TRUE(pipeline.Poisoned(0));
        std::thread opener([&] { gate.Open(); });
        EXPECT_OK(axcclPipelineWait(pipeline.handle(), 0));
        EXPECT_EQ(pipeline.CheckChunk(0, step), "");
        EXPECT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
        EXPECT_OK(axcclStreamSynchronize(clique.stream()));
        EXPECT_OK(axcclStreamSynchronize(clique.stream(0, 1)));
        opener.join();
        ASSERT_EQ(pipeline.Check(step), "");
      }
    }
  });
}

// The next start may be enqueued before the last one has begun; its words are reset only behind that one's end.
TEST_P(BusyTest, StartsThatAreEnqueuedAhead) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    IntCase c = CaseOf(axcclPipelineAllGather, context.nranks(), 3);
    c.columns = 100;
    IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
    const cudaStream_t stream = Cuda(clique.stream());
    for (int round = 0; round < 20; ++round) {
      ASSERT_TRUE(context.Step("round %d", round));
      pipeline.Prepare(round);
      Gate gate;
      ASSERT_OK(axcclLaunchHostFunc(clique.stream(), Gate::Pass, &gate));
      for (int ahead = 0; ahead < 3; ++ahead) {
        ASSERT_OK(axcclPipelineStart(pipeline.handle(), stream));
        ASSERT_OK(axcclPipelineFinish(pipeline.handle(), stream));
      }
      gate.Open();
      ASSERT_OK(axcclPipelineWait(pipeline.handle(), 1));
      ASSERT_TRUE(clique.Synchronize());
      ASSERT_EQ(pipeline.Check(round), "");
    }
    axcclPipelineInfo_t info{};
    info.size = sizeof(info);
    ASSERT_OK(axcclPipelineGetInfo(pipeline.handle(), &info));
    EXPECT_EQ(info.starts, 60u);
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, BusyTest, testing::Values(Processes(2), Threads(3)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
