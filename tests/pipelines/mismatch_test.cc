// Ranks that create different pipelines: one field of the spec differs on the last rank. Every rank gets
// ncclInvalidUsage with a text that names both, all words that are 0 become 2, and no chunk is written that was not
// there before.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/client.h"
#include "tests/pipelines/int_pipeline.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::Memory;
using harness::Processes;
using harness::RankContext;
using harness::RunOptions;
using harness::RunRanks;
using harness::Threads;

constexpr int64_t kSide = 6;  // of a block
constexpr int kMostRanks = 3;
using Spec = axcclPipelineSpec_t;

// What a change of a spec may point to.
struct Store {
  int64_t in_sizes[2] = {}, out_sizes[2] = {};
  axcclOptions_t options = AXCCL_OPTIONS_INITIALIZER;
  std::vector<int64_t> pairs;
  std::vector<float> data = std::vector<float>(kMostRanks * kSide * kSide);
  int ranks = 0;
};
void Resize(Spec* s, Store* store, int64_t in0, int64_t in1, int64_t out0, int64_t out1) {
  store->in_sizes[0] = in0, store->in_sizes[1] = in1, store->out_sizes[0] = out0, store->out_sizes[1] = out1;
  s->in.sizes = store->in_sizes, s->out.sizes = store->out_sizes;
}
void UseFloats(Spec* s, Store*) { s->in.datatype = s->out.datatype = ncclFloat32; }
void Scale(Spec* s, Store* store, double scale) {
  UseFloats(s, store);
  store->options.scale = scale;
  s->options = &store->options;
}

using Change = std::function<void(Spec*, Store*)>;
struct Difference {
  const char* name;
  axcclPipelineKind_t kind;
  Change all, last;  // what is changed on all ranks, and on the last one besides
  const char *first_text, *second_text;
};

constexpr auto kGather = axcclPipelineAllGather, kScatter = axcclPipelineReduceScatter,
               kReduce = axcclPipelineAllReduce, kToAll = axcclPipelineAllToAll;

std::vector<Difference> DifferencesOfKinds() {
  const auto nothing = [](Spec*, Store*) {};
  return {
      {"kind", kGather, nothing,
       [](Spec* s, Store* t) {
         s->kind = axcclPipelineAllReduce;
         Resize(s, t, kSide, kSide, kSide, kSide);
       },
       "axcclAllGather", "axcclAllReduce"},
      {"kinds that move blocks", kGather, nothing,
       [](Spec* s, Store* t) {
         s->kind = axcclPipelineAllToAll;
         Resize(s, t, t->ranks * kSide, kSide, t->ranks * kSide, kSide);
         s->in.data = t->data.data();
       },
       "axcclAllGather", "axcclAllToAll"},
      {"kinds of one block", axcclPipelineBroadcast, nothing,
       [](Spec* s, Store* t) {
         s->kind = axcclPipelineAllReduce;
         Resize(s, t, kSide, kSide, kSide, kSide);
         s->in.data = t->data.data();
       },
       "axcclBroadcast", "axcclAllReduce"},
      {"kinds that reduce", kReduce, nothing,
       [](Spec* s, Store* t) {
         s->kind = axcclPipelineReduceScatter;
         Resize(s, t, t->ranks * kSide, kSide, kSide, kSide);
         s->in.data = t->data.data();
       },
       "axcclAllReduce", "axcclReduceScatter"},
  };
}

std::vector<Difference> DifferencesWithin() {
  const auto nothing = [](Spec*, Store*) {};
  return {
      {"rows", kGather, nothing, [](Spec* s, Store* t) { Resize(s, t, 5, kSide, t->ranks * 5, kSide); }, "[6, 6]",
       "[5, 6]"},
      {"columns", kScatter, nothing, [](Spec* s, Store* t) { Resize(s, t, t->ranks * kSide, 5, kSide, 5); }, "[6, 6]",
       "[6, 5]"},
      {"sizes of one block", kReduce, nothing, [](Spec* s, Store* t) { Resize(s, t, kSide, 2, kSide, 2); }, "[6, 6]",
       "[6, 2]"},
      {"an empty one", kReduce, nothing, [](Spec* s, Store* t) { Resize(s, t, kSide, 0, kSide, 0); }, "[6, 6]",
       "[6, 0]"},
      {"shape of as many elements", kReduce, nothing, [](Spec* s, Store* t) { Resize(s, t, 4, 9, 4, 9); }, "[6, 6]",
       "[4, 9]"},
      {"datatype", kGather, nothing, UseFloats, "int32", "float"},
      {"reduced datatype", kReduce, nothing, UseFloats, "int32", "float"},
      {"dim", kGather, nothing,
       [](Spec* s, Store* t) {
         s->dim = 1;
         Resize(s, t, kSide, kSide, kSide, t->ranks * kSide);
       },
       "concatenated along dimension 0", "concatenated along dimension 1"},
      {"scattered dim", kScatter, nothing,
       [](Spec* s, Store* t) {
         s->dim = 1;
         Resize(s, t, kSide, t->ranks * kSide, kSide, kSide);
       },
       "split along dimension 0", "split along dimension 1"},
      {"split_dim", kToAll, nothing,
       [](Spec* s, Store* t) {
         s->dim = 1;
         Resize(s, t, kSide, t->ranks * kSide, t->ranks * kSide, kSide);
       },
       "split along dimension 0", "split along dimension 1"},
      {"concat_dim", kToAll, nothing,
       [](Spec* s, Store* t) {
         s->concat_dim = 1;
         Resize(s, t, t->ranks * kSide, kSide, kSide, t->ranks * kSide);
       },
       "concatenated along dimension 0", "concatenated along dimension 1"},
      {"root", axcclPipelineBroadcast, nothing,
       [](Spec* s, Store* t) {
         s->root = 1;
         Resize(s, t, kSide, kSide, kSide, kSide);
         s->in.data = t->data.data();
       },
       "root 0", "root 1"},
      {"op", kReduce, nothing, [](Spec* s, Store*) { s->op = ncclMax; }, " sum", " max"},
      {"average", kScatter, UseFloats, [](Spec* s, Store*) { s->op = ncclAvg; }, " sum", " avg"},
      {"slice_dim", kGather, nothing, [](Spec* s, Store*) { s->slice_dim = 1; }, "in 2 slices along dimension 0",
       "in 2 slices along dimension 1"},
      {"slices", kGather, nothing, [](Spec* s, Store*) { s->slices = 3; }, "in 2 slices", "in 3 slices"},
      {"one slice", kReduce, nothing, [](Spec* s, Store*) { s->slices = 1; }, "in 2 slices", "in 1 slice"},
      {"slices of a message", axcclPipelinePermute, nothing, [](Spec* s, Store*) { s->slices = 6; }, "in 2 slices",
       "in 6 slices"},
      {"order", kGather, [](Spec* s, Store*) { s->order = axcclOwnFirst; },
       [](Spec* s, Store*) { s->order = axcclOwnLast; }, "own first", "own last"},
      {"order of a scatter", kScatter, [](Spec* s, Store*) { s->order = axcclByRank; },
       [](Spec* s, Store*) { s->order = axcclOwnFirst; }, "by rank", "own first"},
      {"order of an all_to_all", kToAll, [](Spec* s, Store*) { s->order = axcclByRank; },
       [](Spec* s, Store*) { s->order = axcclOwnLast; }, "by rank", "own last"},
      {"flags", kGather, nothing, [](Spec* s, Store*) { s->flags = axcclProducer; }, "slices", "produced"},
      {"no flags", kReduce, [](Spec* s, Store*) { s->flags = axcclProducer; }, [](Spec* s, Store*) { s->flags = 0; },
       "slices", "produced"},
      {"scale", kReduce, UseFloats, [](Spec* s, Store* t) { Scale(s, t, 0.5); }, "sum", "scaled by 0.5"},
      {"scales", kScatter, [](Spec* s, Store* t) { Scale(s, t, 0.25); }, [](Spec* s, Store* t) { Scale(s, t, 0.5); },
       "scaled by 0.25", "scaled by 0.5"},
      {"group order", kReduce, UseFloats,
       [](Spec* s, Store* t) {
         t->options.flags = axcclGroupOrder;
         s->options = &t->options;
       },
       "sum", "in group order"},
  };
}

std::vector<Difference> Differences() {
  std::vector<Difference> all = DifferencesOfKinds();
  for (Difference& difference : DifferencesWithin()) all.push_back(std::move(difference));
  return all;
}

// One rank's end of a pipeline on a communicator of its own.
class End {
 public:
  End(const Difference& d, const Clique& clique, int ranks, int rank)
      : kind_(d.kind), rank_(rank), last_(rank == ranks - 1) {
    EXPECT_OK(ncclCommSplit(clique.comm(), 0, rank, &comm_, nullptr));
    IntCase c = CaseOf(d.kind, ranks, 2);
    c.rows = c.columns = kSide;
    c.memory = rank % 2 == 0 ? Memory::kMemAlloc : Memory::kMalloc;
    pipeline_ = std::make_unique<IntPipeline>(c, rank);
    pipeline_->Prepare(1);
    store_.ranks = ranks;
    d.all(&pipeline_->spec(), &store_);
    if (last_) d.last(&pipeline_->spec(), &store_);
    EXPECT_OK(pipeline_->Create(axcclDefaultChannel(comm_)));
  }
  ~End() {
    EXPECT_OK(ncclCommAbort(comm_));
    EXPECT_OK(axcclPipelineDestroy(pipeline_->Take()));
  }
  End(const End&) = delete;

  void Start(axcclStream_t stream) {
    const ncclResult_t started = axcclPipelineStart(pipeline_->handle(), Cuda(stream));
    EXPECT_TRUE(started == ncclSuccess || started == ncclInvalidUsage) << ncclGetLastError(nullptr);
    if (started == ncclSuccess) {
      EXPECT_OK(axcclPipelineFinish(pipeline_->handle(), Cuda(stream)));
    }
  }
  // A rank that gets all from one which agrees with it may be through before the others find out.
  bool MayBeThrough() const { return kind_ == axcclPipelineBroadcast && rank_ != 0 && !last_; }
  bool MayHaveAll() const { return kind_ == axcclPipelineBroadcast || kind_ == axcclPipelinePermute; }
  void ExpectBothNamed(const Difference& d, axcclStream_t stream) {
    const ncclResult_t ended = axcclStreamSynchronize(stream);
    if (ended == ncclSuccess && MayBeThrough()) {
      EXPECT_EQ(pipeline_->Check(1), "");
      return;
    }
    EXPECT_EQ(ended, ncclInvalidUsage) << d.name;
    harness::ExpectLastErrorHas({"mismatch", "a pipeline of ", d.first_text, d.second_text});
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(comm_, &state));
    EXPECT_EQ(state, ncclInvalidUsage);
  }
  void ExpectWordsFailed() {
    for (const axcclSide_t side : {axcclIn, axcclOut}) {
      uint32_t* words = nullptr;
      int64_t count = 0;
      EXPECT_OK(axcclPipelineGetFlags(pipeline_->handle(), side, &words, &count));
      bool failed = count == 0 || side == axcclIn || MayHaveAll();
      for (int64_t chunk = 0; chunk < count; ++chunk) {
        const uint32_t word = axcclDeviceAwait(&words[chunk]);
        failed |= word == 2;
        if (word != 2 || side != axcclOut) continue;
        EXPECT_EQ(axcclPipelineWait(pipeline_->handle(), chunk), ncclInvalidUsage);
        if (!last_) {
          EXPECT_TRUE(pipeline_->Poisoned(chunk)) << "rank " << rank_ << ", chunk " << chunk;
        }
      }
      EXPECT_TRUE(failed);
    }
  }
  void ExpectNoNewStart(axcclStream_t stream) {
    EXPECT_NE(axcclPipelineStart(pipeline_->handle(), Cuda(stream)), ncclSuccess);
  }

 private:
  const axcclPipelineKind_t kind_;
  const int rank_;
  const bool last_;
  ncclComm_t comm_ = nullptr;
  Store store_;
  std::unique_ptr<IntPipeline> pipeline_;
};

class MismatchTest : public testing::TestWithParam<Layout> {};

TEST_P(MismatchTest, OneFieldDiffersOnTheLastRank) {
  RunOptions options;
  options.deadline = std::chrono::seconds(40);
  RunRanks(
      GetParam(),
      [](RankContext& context) {
        Clique clique;
        ASSERT_TRUE(clique.Init(context));
        for (const Difference& d : Differences()) {
          ASSERT_TRUE(context.Step("%s", d.name));
          SCOPED_TRACE(d.name);
          axcclStream_t stream = nullptr;
          ASSERT_OK(axcclStreamCreate(&stream, axcclStreamNonBlocking));
          {
            End end(d, clique, context.nranks(), context.rank());
            end.Start(stream);
            end.ExpectBothNamed(d, stream);
            if (!end.MayBeThrough()) end.ExpectWordsFailed();
            ASSERT_TRUE(context.Barrier());
            if (!end.MayBeThrough()) end.ExpectNoNewStart(stream);
            ASSERT_TRUE(context.Barrier());
          }
          ASSERT_OK(axcclStreamDestroy(stream));
        }
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MismatchTest, testing::Values(Processes(2), Processes(3), Threads(2), Threads(3)),
                         [](const auto& info) { return info.param.Text(); });

// ---- permutes, whose ranks may have nothing to do with each other ----

struct Pairs {
  const char* name;
  std::vector<int64_t> usual, last;
  bool in_touch;  // each of the two ranks waits for the other
};

TEST(PermuteMismatch, PairsThatDifferOnTheLastRank) {
  // A rank that expects nothing of another one does not learn that this one waits for it, up to its deadline.
  const Pairs kCases[] = {{"another target", {0, 1, 1, 0}, {0, 0, 1, 1}, false},
                          {"one pair less", {0, 1, 1, 0}, {0, 1}, true},
                          {"one pair more", {0, 1}, {0, 1, 1, 0}, true},
                          {"none", {0, 1, 1, 0}, {}, false}};
  for (const Pairs& pairs : kCases) {
    SCOPED_TRACE(pairs.name);
    RunOptions options;
    options.environment = {{"AXCCL_TIMEOUT", "0.3"}};
    RunRanks(
        Processes(2),
        [&pairs](RankContext& context) {
          Clique clique;
          ASSERT_TRUE(clique.Init(context));
          IntCase c = CaseOf(axcclPipelinePermute, 2, 2);
          c.pairs = context.rank() == 1 ? pairs.last : pairs.usual;
          IntPipeline pipeline(c, context.rank(), axcclDefaultChannel(clique.comm()));
          pipeline.Prepare(0);
          const ncclResult_t started = axcclPipelineStart(pipeline.handle(), Cuda(clique.stream()));
          EXPECT_TRUE(started == ncclSuccess || started == ncclInvalidUsage);
          if (started == ncclSuccess) {
            EXPECT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
          }
          const ncclResult_t ended = axcclStreamSynchronize(clique.stream());
          if (pairs.in_touch) {
            EXPECT_EQ(ended, ncclInvalidUsage);
            harness::ExpectLastErrorHas({"mismatch", "a pipeline of axcclCollectivePermute", "other pairs"});
          } else if (context.rank() == 0) {
            EXPECT_EQ(ended, ncclTimeout);
            harness::ExpectLastErrorHas({"rank 1", "a pipeline of axcclCollectivePermute", "AXCCL_TIMEOUT"});
            for (int chunk = 0; chunk < 2; ++chunk) EXPECT_EQ(axcclDeviceAwait(&pipeline.Words(axcclOut)[chunk]), 2u);
          }
          ASSERT_TRUE(context.Barrier());
          EXPECT_OK(ncclCommAbort(clique.comm()));
          clique.ForgetComms();
        },
        options);
  }
}

// ---- the order of creation ----

TEST_P(MismatchTest, PipelinesCreatedInAnotherOrder) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    const int n = context.nranks(), rank = context.rank();
    const bool other = rank == n - 1;
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm());
    const auto kFirst = other ? axcclPipelineAllToAll : axcclPipelineAllGather;
    const auto kSecond = other ? axcclPipelineAllGather : axcclPipelineAllToAll;
    IntPipeline first(CaseOf(kFirst, n, 2), rank, channel), second(CaseOf(kSecond, n, 2), rank, channel);
    IntPipeline& gather = other ? second : first;
    gather.Prepare(0);
    if (axcclPipelineStart(gather.handle(), Cuda(clique.stream())) == ncclSuccess) {
      EXPECT_OK(axcclPipelineFinish(gather.handle(), Cuda(clique.stream())));
    }
    EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclInvalidUsage);
    harness::ExpectLastErrorHas({"mismatch", "a pipeline of axcclAllGather", "waits for rank", "same order"});
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

}  // namespace
}  // namespace axccl::tests
