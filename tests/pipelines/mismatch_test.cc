// Ranks that create different pipelines: one field of the spec differs on the last rank. Every rank gets
// ncclInvalidUsage with a text that names both, all words that are 0 become 2, and no chunk is written that was not
// there before. Strides and engines may differ.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/timing.h"
#include "tests/pipelines/int_pipeline.h"

namespace axccl::tests {
namespace {

using harness::AllowedNs;
using harness::Clique;
using harness::Cuda;
using harness::Layout;
using harness::Memory;
using harness::NowNs;
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
  std::vector<int64_t> pairs = {};  // of all ranks of a permute
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
      {"slice_dim of one block", kReduce, nothing, [](Spec* s, Store*) { s->slice_dim = 1; },
       "in 2 slices along dimension 0", "in 2 slices along dimension 1"},
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

// Permutes, whose ranks may have nothing to do with each other.
std::vector<Difference> DifferencesOfPairs() {
  const auto nothing = [](Spec*, Store*) {};
  const auto pairs = [](std::vector<int64_t> of_last) {
    return [of_last](Spec* s, Store* t) {
      t->pairs = of_last;
      s->pairs = t->pairs.data(), s->num_pairs = static_cast<int>(t->pairs.size() / 2);
      s->in.data = t->data.data();
      Resize(s, t, kSide, kSide, kSide, kSide);
    };
  };
  constexpr auto kPermute = axcclPipelinePermute;
  constexpr auto kName = "axcclCollectivePermute", kOther = "other pairs";
  return {
      {"pairs: another target", kPermute, nothing, pairs({0, 0, 1, 1}), kName, kOther, {0, 1, 1, 0}},
      {"pairs: another source", kPermute, nothing, pairs({0, 1}), kName, kOther, {1, 1}},
      {"one pair less", kPermute, nothing, pairs({0, 1}), kName, kOther, {0, 1, 1, 0}},
      {"one pair more", kPermute, nothing, pairs({0, 1, 1, 0}), kName, kOther, {0, 1}},
      {"no pairs", kPermute, nothing, pairs({}), kName, kOther, {0, 1, 1, 0}},
      {"pairs where there were none", kPermute, nothing, pairs({1, 0}), kName, kOther, {}},
      {"sizes of a message",
       kPermute,
       nothing,
       [](Spec* s, Store* t) { Resize(s, t, 5, kSide, 5, kSide); },
       "[6, 6]",
       "[5, 6]",
       {0, 1, 1, 0}},
      {"slices of a message",
       kPermute,
       nothing,
       [](Spec* s, Store*) { s->slices = 6; },
       "in 2 slices",
       "in 6 slices",
       {0, 1, 1, 0}},
      {"flags of messages",
       kPermute,
       nothing,
       [](Spec* s, Store*) { s->flags = axcclProducer; },
       "slices",
       "produced",
       {0, 1}},
      {"not a permute",
       kPermute,
       nothing,
       [](Spec* s, Store* t) {
         s->kind = kGather;
         s->in.data = t->data.data();
         Resize(s, t, 1, 2, t->ranks, 2);
         s->slices = 1;
       },
       kName,
       "axcclAllGather",
       {0, 1, 1, 0}},
  };
}

std::vector<Difference> Differences() {
  std::vector<Difference> all = DifferencesOfKinds();
  for (auto& differences : {DifferencesWithin(), DifferencesOfPairs()})
    all.insert(all.end(), differences.begin(), differences.end());
  return all;
}

// One rank's end of a pipeline on a communicator of its own.
class End {
 public:
  End(const Difference& d, const Clique& clique, int ranks, int rank)
      : kind_(d.kind), rank_(rank), last_(rank == ranks - 1) {
    EXPECT_OK(ncclCommSplit(clique.comm(), 0, rank, &comm_, nullptr));
    IntCase c = CaseOf(d.kind, ranks, 2);
    c.rows = c.columns = kSide, c.pairs = d.pairs;
    c.memory = rank % 2 == 0 ? Memory::kMemAlloc : Memory::kMalloc;
    pipeline_ = std::make_unique<IntPipeline>(c, rank);
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

  // Returns whether the start fails, as it should. A rank that gets all from ranks which agree with it may be through
  // before the others find out.
  bool Fails(const Difference& d, axcclStream_t stream) {
    Start(stream);
    const ncclResult_t ended = axcclStreamSynchronize(stream);
    if (ended == ncclSuccess && MayHaveAll()) {
      if (!last_) {
        EXPECT_EQ(pipeline_->Check(1), "");
      }
      return false;
    }
    EXPECT_EQ(ended, ncclInvalidUsage) << d.name;
    harness::ExpectLastErrorHas({"mismatch", "a pipeline of ", d.first_text, d.second_text});
    ncclResult_t state = ncclSuccess;
    EXPECT_OK(ncclCommGetAsyncError(comm_, &state));
    EXPECT_EQ(state, ncclInvalidUsage);
    ExpectWordsFailed();
    return true;
  }
  void ExpectNoNewStart(axcclStream_t stream) {
    EXPECT_NE(axcclPipelineStart(pipeline_->handle(), Cuda(stream)), ncclSuccess);
  }

 private:
  bool MayHaveAll() const { return kind_ == axcclPipelineBroadcast || kind_ == axcclPipelinePermute; }
  void Start(axcclStream_t stream) {
    pipeline_->Prepare(1);
    EXPECT_OK(axcclPipelineStart(pipeline_->handle(), Cuda(stream)));
    EXPECT_OK(axcclPipelineFinish(pipeline_->handle(), Cuda(stream)));
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
            const bool failed = end.Fails(d, stream);
            ASSERT_TRUE(context.Barrier());
            if (failed) {
              end.ExpectNoNewStart(stream);
            } else {
              // Between machines, what the others have created may be under way still.
              bool fails = end.Fails(d, stream);
              for (const uint64_t begin = NowNs(); !fails && NowNs() - begin < AllowedNs(2000);)
                fails = end.Fails(d, stream);
              EXPECT_TRUE(fails);
            }
            ASSERT_TRUE(context.Barrier());
          }
          ASSERT_OK(axcclStreamDestroy(stream));
        }
      },
      options);
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
    IntPipeline same(CaseOf(axcclPipelineBroadcast, n, 2), rank, channel);
    IntPipeline first(CaseOf(kFirst, n, 2), rank, channel), second(CaseOf(kSecond, n, 2), rank, channel);
    IntPipeline& gather = other ? second : first;
    ASSERT_OK(same.Step(0, Cuda(clique.stream())));
    ASSERT_TRUE(clique.Synchronize());
    ASSERT_TRUE(context.Barrier());
    gather.Prepare(0);
    ASSERT_OK(axcclPipelineStart(gather.handle(), Cuda(clique.stream())));
    ASSERT_OK(axcclPipelineFinish(gather.handle(), Cuda(clique.stream())));
    EXPECT_EQ(axcclStreamSynchronize(clique.stream()), ncclInvalidUsage);
    harness::ExpectLastErrorHas({"mismatch: pipeline ", "on the default channel", "a pipeline of axcclAllGather",
                                 "a pipeline of axcclAllToAll", "in the same order"});
    // Pipelines 1 and 2 differ.
    EXPECT_TRUE(harness::LastErrorHas("pipeline 1 on") || harness::LastErrorHas("pipeline 2 on"));
    ASSERT_TRUE(context.Barrier());
    EXPECT_OK(ncclCommAbort(clique.comm()));
    clique.ForgetComms();
  });
}

// ---- what may differ ----

constexpr int64_t kRowStride = kSide + 3;  // of odd ranks

// Copies the rows of `view` from or to memory where they are kRowStride apart.
void CopyRows(const axcclView_t& view, int* strided, bool to_strided) {
  auto* const dense = static_cast<int*>(view.data);
  for (int64_t i = 0; dense != nullptr && i < view.sizes[0] * kSide; ++i) {
    int& at = strided[i / kSide * kRowStride + i % kSide];
    (to_strided ? at : dense[i]) = to_strided ? dense[i] : at;
  }
}

TEST_P(MismatchTest, StridesAndEnginesMayDiffer) {
  RunRanks(GetParam(), [](RankContext& context) {
    Clique clique;
    ASSERT_TRUE(clique.Init(context));
    for (const axcclPipelineKind_t kind : kPipelineKinds) {
      ASSERT_TRUE(context.Step("%s", KindName(kind)));
      IntCase c = CaseOf(kind, context.nranks(), 2);
      c.rows = c.columns = kSide;
      IntPipeline pipeline(c, context.rank());
      const bool odd = context.rank() % 2 == 1;
      const axcclView_t in = pipeline.spec().in, out = pipeline.spec().out;
      std::vector<int> own_in(kMostRanks * kSide * kRowStride), own_out = own_in;
      const int64_t strides[] = {kRowStride, 1};
      if (odd) {
        Spec& spec = pipeline.spec();
        spec.in.strides = spec.out.strides = strides;
        if (in.data != nullptr) spec.in.data = own_in.data();
        spec.out.data = own_out.data();
        spec.engine = axcclEngineKernel;
      }
      ASSERT_OK(pipeline.Create(axcclDefaultChannel(clique.comm())));
      for (int step = 0; step < 3; ++step) {
        pipeline.Prepare(step);
        if (odd) CopyRows(in, own_in.data(), true);
        ASSERT_OK(axcclPipelineStart(pipeline.handle(), Cuda(clique.stream())));
        ASSERT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(clique.stream())));
        ASSERT_TRUE(clique.Synchronize());
        if (odd) CopyRows(out, own_out.data(), false);
        ASSERT_EQ(pipeline.Check(step), "") << KindName(kind);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, MismatchTest, testing::Values(Processes(2), Processes(3), Threads(2), Threads(3)),
                         [](const auto& info) { return info.param.Text(); });

}  // namespace
}  // namespace axccl::tests
