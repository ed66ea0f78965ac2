// What pipelines refuse: the code, and a text that names the call, the argument and the remedy. Nothing has changed
// then: after each refusal the pipelines of both ranks make a step.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/pipelines/int_pipeline.h"

namespace axccl::tests {
namespace {

using harness::Clique;
using harness::Cuda;
using harness::OneThread;
using harness::RankContext;
using harness::RunCliques;

constexpr int kRanks = 2;
constexpr int64_t kSlices = 3;
using Words = std::vector<std::string>;

void ExpectRefused(ncclResult_t result, ncclResult_t expected, const Words& words) {
  const std::string text = ncclGetLastError(nullptr);
  EXPECT_EQ(result, expected) << text;
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
}

// The pipelines of both ranks, which one thread drives.
class Two {
 public:
  Two(const Clique& clique, const IntCase& c) : clique_(clique) {
    for (int r = 0; r < kRanks; ++r)
      pipelines_[r] = std::make_unique<IntPipeline>(c, r, axcclDefaultChannel(clique.comm(r)));
  }
  IntPipeline& operator[](int rank) { return *pipelines_[rank]; }
  axcclPipeline_t handle(int rank = 0) { return pipelines_[rank]->handle(); }
  cudaStream_t stream(int rank = 0) const { return Cuda(clique_.stream(rank)); }

  void Start(bool produced) {
    ++step_;
    for (int r = 0; r < kRanks; ++r) {
      pipelines_[r]->Prepare(step_);
      ASSERT_OK(axcclPipelineStart(handle(r), stream(r)));
    }
    for (int r = 0; produced && r < kRanks; ++r) Produce(r, 0);
  }
  // From that position on.
  void Produce(int rank, int64_t first) {
    for (int64_t p = first; p < pipelines_[rank]->in_chunks(); ++p)
      ASSERT_OK(pipelines_[rank]->Declare(pipelines_[rank]->ChunkAt(axcclIn, p), step_));
  }
  int step() const { return step_; }
  void Finish() {
    for (int r = 0; r < kRanks; ++r) ASSERT_OK(axcclPipelineFinish(handle(r), stream(r)));
    for (int r = 0; r < kRanks; ++r) {
      ASSERT_OK(axcclStreamSynchronize(clique_.stream(r)));
      ASSERT_EQ(pipelines_[r]->Check(step_), "");
    }
  }
  void Step(bool produced) {
    Start(produced);
    Finish();
  }

 private:
  const Clique& clique_;
  std::unique_ptr<IntPipeline> pipelines_[kRanks];
  int step_ = 0;
};

// ---- the spec ----

axcclOptions_t g_options = AXCCL_OPTIONS_INITIALIZER;

struct Wrong {
  const char* name;
  axcclPipelineKind_t kind;
  std::function<void(axcclPipelineSpec_t*)> spoil;
  Words words;
  ncclResult_t result = ncclInvalidArgument;
};

std::vector<Wrong> WrongSpecs() {
  using Spec = axcclPipelineSpec_t;
  static const int64_t kOdd[2] = {15, 4}, kPair[4] = {0, 1, 1, 1}, kOut[2] = {0, 2}, kNegative[2] = {-1, 0};
  static const int64_t kWide[2] = {7, 5};
  const auto option = [](auto set) {
    return [set](Spec* s) {
      g_options = AXCCL_OPTIONS_INITIALIZER;
      set(&g_options);
      s->options = &g_options;
    };
  };
  constexpr auto kGather = axcclPipelineAllGather;
  std::vector<Wrong> wrong = {
      {"size", kGather, [](Spec* s) { s->size = 0; }, {"spec", "AXCCL_PIPELINE_SPEC_INITIALIZER"}},
      {"smaller", kGather, [](Spec* s) { s->size -= 8; }, {"spec", "AXCCL_PIPELINE_SPEC_INITIALIZER"}},
      {"kind", kGather, [](Spec* s) { s->kind = static_cast<axcclPipelineKind_t>(6); }, {"kind 6", "0..5"}},
      {"negative kind", kGather, [](Spec* s) { s->kind = static_cast<axcclPipelineKind_t>(-1); }, {"kind", "0..5"}},
      {"order", kGather, [](Spec* s) { s->order = static_cast<axcclChunkOrder_t>(4); }, {"order 4", "0..3"}},
      {"engine", kGather, [](Spec* s) { s->engine = static_cast<axcclEngine_t>(3); }, {"engine 3", "0..2"}},
      {"copy engine", kGather, [](Spec* s) { s->engine = axcclEngineCopy; }, {"axcclEngineCopy", "axcclEngineAuto"}},
      {"flags", kGather, [](Spec* s) { s->flags = 2; }, {"flags 0x2", "axcclProducer"}},
      {"flags beside", kGather, [](Spec* s) { s->flags = 0x11; }, {"flags", "axcclProducer"}},
      {"slice_dim", kGather, [](Spec* s) { s->slice_dim = 2; }, {"slice_dim 2", "2 dimensions", "pass one of them"}},
      {"negative slice_dim", kGather, [](Spec* s) { s->slice_dim = -3; }, {"slice_dim -3", "pass one of them"}},
      {"no slices", kGather, [](Spec* s) { s->slices = 0; }, {"0 slices", "pass 1..7"}},
      {"negative slices", kGather, [](Spec* s) { s->slices = -1; }, {"-1 slices", "pass 1..7"}},
      {"many slices", kGather, [](Spec* s) { s->slices = 8; }, {"8 slices", "7 indices", "pass 1..7"}},
      {"many slices of a block", axcclPipelineReduceScatter, [](Spec* s) { s->slices = 14; }, {"pass 1..7"}},
      {"most slices", kGather, [](Spec* s) { s->slices = std::numeric_limits<int64_t>::max(); }, {"pass 1..7"}},
      {"bucket_bytes", kGather, option([](axcclOptions_t* o) { o->bucket_bytes = 64; }), {"bucket_bytes 64", "pass 0"}},
      {"options", kGather, option([](axcclOptions_t* o) { o->size = 0; }), {"AXCCL_OPTIONS_INITIALIZER"}},
      {"option flags", kGather, option([](axcclOptions_t* o) { o->flags = 64; }), {"0x40", "axcclGroupOrder"}},
      {"scale without sum", kGather, option([](axcclOptions_t* o) { o->scale = 0.5; }), {"scale 0.5", "pass 0"}},
      {"NaN",
       axcclPipelineAllReduce,
       option([](axcclOptions_t* o) { o->scale = std::numeric_limits<double>::quiet_NaN(); }),
       {"NaN", "pass"}},
      {"scale of integers", axcclPipelineAllReduce, option([](axcclOptions_t* o) { o->scale = 0.5; }), {"scale 0.5"}},
      {"dim", kGather, [](Spec* s) { s->dim = 2; }, {"dim"}},
      {"concat_dim", axcclPipelineAllToAll, [](Spec* s) { s->concat_dim = -3; }, {"concat"}},
      {"root", axcclPipelineBroadcast, [](Spec* s) { s->root = 2; }, {"root is 2", "0..1"}},
      {"negative root", axcclPipelineBroadcast, [](Spec* s) { s->root = -1; }, {"root is -1", "0..1"}},
      {"operator", axcclPipelineAllReduce, [](Spec* s) { s->op = static_cast<ncclRedOp_t>(12345); }, {"op"}},
      {"datatype", kGather, [](Spec* s) { s->in.datatype = static_cast<ncclDataType_t>(99); }, {"datatype 99", "pass"}},
      {"datatypes", kGather, [](Spec* s) { s->in.datatype = ncclFloat32; }, {"float", "int32", "agree"}},
      {"view", kGather, [](Spec* s) { s->in.size = 1; }, {"input", "AXCCL_VIEW_INITIALIZER"}},
      {"dimensions", kGather, [](Spec* s) { s->in.num_dims = AXCCL_MAX_DIMS + 1; }, {"dimensions"}},
      {"no data", kGather, [](Spec* s) { s->out.data = nullptr; }, {"output", "give its address"}},
      {"no sizes", kGather, [](Spec* s) { s->out.sizes = nullptr; }, {"output", "sizes"}},
      {"overlap", kGather, [](Spec* s) { s->in.data = static_cast<char*>(s->out.data) + 4; }, {"overlap", "in place"}},
      {"in place",
       axcclPipelineAllToAll,
       [](Spec* s) { s->in.data = s->out.data; },
       {"overlap", "cannot run in place"}},
      {"permute in place", axcclPipelinePermute, [](Spec* s) { s->in.data = s->out.data; }, {"overlap"}},
      {"division", axcclPipelineReduceScatter, [](Spec* s) { s->in.sizes = kOdd; }, {"15"}},
      {"shapes", axcclPipelineAllReduce, [](Spec* s) { s->in.sizes = kWide; }, {"5", "4"}},
      {"permuted shapes", axcclPipelinePermute, [](Spec* s) { s->in.sizes = kWide; }, {"5", "4"}},
      {"two sources", axcclPipelinePermute, [](Spec* s) { s->pairs = kPair, s->num_pairs = 2; }, {"pair 1", "target"}},
      {"a target", axcclPipelinePermute, [](Spec* s) { s->pairs = kOut, s->num_pairs = 1; }, {"pairs", "0..1"}},
      {"a source", axcclPipelinePermute, [](Spec* s) { s->pairs = kNegative, s->num_pairs = 1; }, {"pairs", "0..1"}},
      {"no pairs", axcclPipelinePermute, [](Spec* s) { s->pairs = nullptr; }, {"pairs", "num_pairs"}},
      {"num_pairs", axcclPipelinePermute, [](Spec* s) { s->num_pairs = -1; }, {"num_pairs is -1"}},
  };
  for (const auto kind : {axcclPipelineAllReduce, axcclPipelineBroadcast, axcclPipelinePermute})
    wrong.push_back(
        {"order of one block", kind, [](Spec* s) { s->order = axcclByRank; }, {"order 3", "axcclDefaultOrder"}});
  return wrong;
}

TEST(PipelineMisuse, SpecsThatCannotBe) {
  RunCliques(OneThread(kRanks), [](RankContext& context, Clique& clique) {
    Two two(clique, CaseOf(axcclPipelineAllGather, kRanks, kSlices));
    for (const Wrong& wrong : WrongSpecs()) {
      ASSERT_TRUE(context.Step("%s", wrong.name));
      SCOPED_TRACE(wrong.name);
      IntPipeline refused(CaseOf(wrong.kind, kRanks, kSlices), 0);
      wrong.spoil(&refused.spec());
      Words words = wrong.words;
      words.push_back("axcclPipelineCreate: ");
      ExpectRefused(refused.Create(axcclDefaultChannel(clique.comm(0))), wrong.result, words);
      EXPECT_EQ(refused.handle(), nullptr);
      two.Step(false);
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  });
}

TEST(PipelineMisuse, OtherArgumentsOfCreate) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    Two two(clique, CaseOf(axcclPipelineAllGather, kRanks, kSlices));
    const axcclChannel_t channel = axcclDefaultChannel(clique.comm(0));
    IntPipeline refused(CaseOf(axcclPipelineAllGather, kRanks, kSlices), 0);
    auto* handle = reinterpret_cast<axcclPipeline_t>(&refused);
    ExpectRefused(axcclPipelineCreate(&handle, nullptr, channel), ncclInvalidArgument,
                  {"axcclPipelineCreate: ", "spec is NULL", "AXCCL_PIPELINE_SPEC_INITIALIZER"});
    EXPECT_EQ(handle, nullptr);
    ExpectRefused(axcclPipelineCreate(nullptr, &refused.spec(), channel), ncclInvalidArgument,
                  {"axcclPipelineCreate: ", "pipeline is NULL", "pass"});
    ExpectRefused(refused.Create(nullptr), ncclInvalidArgument, {"axcclPipelineCreate: ", "channel", "NULL"});
    axcclChannel_t gone = nullptr;
    ASSERT_OK(axcclChannelCreate(&gone, clique.comm(0), nullptr, 7, 0));
    ASSERT_OK(axcclChannelDestroy(gone));
    ExpectRefused(refused.Create(gone), ncclInvalidArgument, {"axcclPipelineCreate: ", "channel"});
    two.Step(false);
  });
}

TEST(PipelineMisuse, MoreThan65536Chunks) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    for (const int64_t slices : {32768, 32769}) {
      IntCase c = CaseOf(axcclPipelineAllGather, kRanks, slices);
      c.rows = 40000, c.columns = 1;
      IntPipeline pipeline(c, 0);
      const ncclResult_t result = pipeline.Create(axcclDefaultChannel(clique.comm(0)));
      if (slices == 32768) {
        EXPECT_OK(result);
      } else {
        ExpectRefused(result, ncclInvalidArgument, {"axcclPipelineCreate: ", "32769 slices", "65536", "pass fewer"});
      }
    }
  });
}

void KeepFirst(void*, const void*, size_t, void*) {}

TEST(PipelineMisuse, ACallback) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    Two two(clique, CaseOf(axcclPipelineAllReduce, kRanks, kSlices));
    for (const auto kind : {axcclPipelineAllReduce, axcclPipelineReduceScatter}) {
      ncclRedOp_t op{};
      ASSERT_OK(axcclRedOpCreateCallback(&op, KeepFirst, nullptr, ncclInt32, clique.comm(0)));
      IntPipeline refused(CaseOf(kind, kRanks, kSlices), 0);
      refused.spec().op = op;
      ExpectRefused(refused.Create(axcclDefaultChannel(clique.comm(0))), ncclInvalidUsage,
                    {"axcclPipelineCreate: ", "callback", "built-in"});
      ASSERT_OK(ncclRedOpDestroy(op, clique.comm(0)));
      two.Step(false);
    }
  });
}

// ---- handles and arguments of the other calls ----

struct Use {
  const char* name;
  std::function<ncclResult_t(axcclPipeline_t, cudaStream_t)> call;
  bool needs_comm = true;
};
std::vector<Use> Uses() {
  return {
      {"axcclPipelineStart", [](axcclPipeline_t p, cudaStream_t s) { return axcclPipelineStart(p, s); }},
      {"axcclPipelineFinish", [](axcclPipeline_t p, cudaStream_t s) { return axcclPipelineFinish(p, s); }},
      {"axcclPipelineWait", [](axcclPipeline_t p, cudaStream_t) { return axcclPipelineWait(p, 0); }},
      {"axcclPipelineTest",
       [](axcclPipeline_t p, cudaStream_t) {
         int done = 0;
         return axcclPipelineTest(p, 0, &done);
       }},
      {"axcclPipelineStreamWait", [](axcclPipeline_t p, cudaStream_t s) { return axcclPipelineStreamWait(p, 0, s); }},
      {"axcclPipelineReady", [](axcclPipeline_t p, cudaStream_t) { return axcclPipelineReady(p, 0); }},
      {"axcclPipelineStreamReady", [](axcclPipeline_t p, cudaStream_t s) { return axcclPipelineStreamReady(p, 0, s); }},
      {"axcclPipelineGetChunk",
       [](axcclPipeline_t p, cudaStream_t) {
         axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
         return axcclPipelineGetChunk(p, axcclOut, 0, &chunk);
       },
       false},
      {"axcclPipelineGetFlags",
       [](axcclPipeline_t p, cudaStream_t) {
         uint32_t* words = nullptr;
         return axcclPipelineGetFlags(p, axcclOut, &words, nullptr);
       },
       false},
      {"axcclPipelineGetInfo",
       [](axcclPipeline_t p, cudaStream_t) {
         axcclPipelineInfo_t info{};
         info.size = sizeof(info);
         return axcclPipelineGetInfo(p, &info);
       },
       false},
  };
}

TEST(PipelineMisuse, HandlesThatAreNotLive) {
  RunCliques(OneThread(kRanks), [](RankContext& context, Clique& clique) {
    Two two(clique, CaseOf(axcclPipelineAllGather, kRanks, kSlices));
    IntPipeline destroyed(CaseOf(axcclPipelineAllGather, kRanks, kSlices), 0, axcclDefaultChannel(clique.comm(0)));
    axcclPipeline_t const stale = destroyed.Take();
    ASSERT_OK(axcclPipelineDestroy(stale));
    std::vector<Use> uses = Uses();
    uses.push_back({"axcclPipelineDestroy", [](axcclPipeline_t p, cudaStream_t) { return axcclPipelineDestroy(p); }});
    for (const Use& use : uses) {
      ASSERT_TRUE(context.Step("%s", use.name));
      for (axcclPipeline_t handle :
           {static_cast<axcclPipeline_t>(nullptr), stale, reinterpret_cast<axcclPipeline_t>(clique.comm(0)),
            reinterpret_cast<axcclPipeline_t>(&two)})
        ExpectRefused(use.call(handle, two.stream()), ncclInvalidArgument,
                      {std::string(use.name) + ": ", "pipeline is", "axcclPipelineCreate"});
      two.Step(false);
    }
  });
}

TEST(PipelineMisuse, ArgumentsOfQueries) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    Two two(clique, CaseOf(axcclPipelineAllGather, kRanks, kSlices));
    axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
    const auto get = [&](axcclSide_t side, int64_t position, axcclChunk_t* to) {
      return axcclPipelineGetChunk(two.handle(), side, position, to);
    };
    const std::string call = "axcclPipelineGetChunk: ";
    ExpectRefused(get(axcclOut, 6, &chunk), ncclInvalidArgument, {call, "position is 6", "pass 0..5"});
    ExpectRefused(get(axcclOut, -1, &chunk), ncclInvalidArgument, {call, "position is -1", "pass 0..5"});
    ExpectRefused(get(axcclIn, 3, &chunk), ncclInvalidArgument, {call, "position is 3", "pass 0..2"});
    ExpectRefused(get(axcclIn, 0, nullptr), ncclInvalidArgument, {call, "chunk is NULL", "AXCCL_CHUNK_INITIALIZER"});
    axcclChunk_t blank{};
    ExpectRefused(get(axcclIn, 0, &blank), ncclInvalidArgument, {call, "chunk", "AXCCL_CHUNK_INITIALIZER"});
    ExpectRefused(get(static_cast<axcclSide_t>(2), 0, &chunk), ncclInvalidArgument, {call, "side is 2", "axcclOut"});
    uint32_t* words = nullptr;
    const std::string flags = "axcclPipelineGetFlags: ";
    ExpectRefused(axcclPipelineGetFlags(two.handle(), static_cast<axcclSide_t>(2), &words, nullptr),
                  ncclInvalidArgument, {flags, "side is 2", "axcclIn"});
    ExpectRefused(axcclPipelineGetFlags(two.handle(), axcclIn, nullptr, nullptr), ncclInvalidArgument,
                  {flags, "words is NULL", "pass"});
    axcclPipelineInfo_t info{};
    const std::string of_info = "axcclPipelineGetInfo: ";
    ExpectRefused(axcclPipelineGetInfo(two.handle(), nullptr), ncclInvalidArgument, {of_info, "NULL", "info->size"});
    ExpectRefused(axcclPipelineGetInfo(two.handle(), &info), ncclInvalidArgument, {of_info, "sizeof"});
    two.Step(false);
    info.size = sizeof(info);
    ASSERT_OK(axcclPipelineGetInfo(two.handle(), &info));
    EXPECT_EQ(info.in_chunks, kSlices);
    EXPECT_EQ(info.out_chunks, kRanks * kSlices);
    EXPECT_EQ(info.starts, 1u);
    EXPECT_EQ(info.engine, axcclEngineKernel);
    EXPECT_EQ(info.blocks, 0);
  });
}

TEST(PipelineMisuse, ARankWithoutChunksOfASide) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    IntCase c = CaseOf(axcclPipelineBroadcast, kRanks, kSlices);
    c.root = 1, c.produced = true;
    Two two(clique, c);
    two.Start(false);
    ExpectRefused(axcclPipelineReady(two.handle(0), 0), ncclInvalidArgument,
                  {"axcclPipelineReady: ", "chunk is 0", "no input"});
    axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
    ExpectRefused(axcclPipelineGetChunk(two.handle(0), axcclIn, 0, &chunk), ncclInvalidArgument,
                  {"axcclPipelineGetChunk: ", "no input"});
    uint32_t* words = nullptr;
    int64_t count = -1;
    EXPECT_OK(axcclPipelineGetFlags(two.handle(0), axcclIn, &words, &count));
    EXPECT_EQ(count, 0);
    two.Produce(1, 0);
    two.Finish();
  });
}

// ---- the order of calls ----

TEST(PipelineMisuse, BeforeTheFirstStart) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    IntCase c = CaseOf(axcclPipelineAllGather, kRanks, kSlices);
    c.produced = true;
    Two two(clique, c);
    for (const Use& use : Uses()) {
      if (!use.needs_comm || std::string(use.name) == "axcclPipelineStart") continue;
      ExpectRefused(use.call(two.handle(), two.stream()), ncclInvalidUsage,
                    {std::string(use.name) + ": ", "pipeline", "call axcclPipelineStart first"});
    }
    two.Step(true);
  });
}

TEST(PipelineMisuse, BetweenStartAndFinish) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    IntCase c = CaseOf(axcclPipelineAllGather, kRanks, kSlices);
    c.produced = true;
    Two two(clique, c);
    const std::string ready = "axcclPipelineReady: ";
    for (int step = 0; step < 3; ++step) {
      two.Start(false);
      ExpectRefused(axcclPipelineStart(two.handle(), two.stream()), ncclInvalidUsage,
                    {"axcclPipelineStart: ", "not finished", "call axcclPipelineFinish"});
      ExpectRefused(axcclPipelineDestroy(two.handle()), ncclInvalidUsage,
                    {"axcclPipelineDestroy: ", "not finished", "call axcclPipelineFinish"});
      ASSERT_OK(two[0].Declare(0, two.step()));
      ExpectRefused(axcclPipelineReady(two.handle(), 0), ncclInvalidUsage, {ready, "chunk 0", "declared ready before"});
      ExpectRefused(axcclPipelineStreamReady(two.handle(), 0, two.stream()), ncclInvalidUsage,
                    {"axcclPipelineStreamReady: ", "chunk 0", "declared ready before"});
      for (const int64_t chunk : {int64_t{-1}, kSlices})
        ExpectRefused(axcclPipelineReady(two.handle(), chunk), ncclInvalidArgument, {ready, "pass 0..2"});
      for (const int64_t chunk : {int64_t{-1}, kRanks * kSlices}) {
        int done = -1;
        const Words range = {"chunk is " + std::to_string(chunk), "pass 0..5"};
        ExpectRefused(axcclPipelineWait(two.handle(), chunk), ncclInvalidArgument, range);
        ExpectRefused(axcclPipelineTest(two.handle(), chunk, &done), ncclInvalidArgument, range);
        ExpectRefused(axcclPipelineStreamWait(two.handle(), chunk, two.stream()), ncclInvalidArgument, range);
      }
      ExpectRefused(axcclPipelineTest(two.handle(), 0, nullptr), ncclInvalidArgument, {"axcclPipelineTest: ", "done"});
      two.Produce(0, 1);
      two.Produce(1, 0);
      two.Finish();
      ExpectRefused(axcclPipelineFinish(two.handle(), two.stream()), ncclInvalidUsage,
                    {"axcclPipelineFinish: ", "axcclPipelineStart"});
      // Still declared, and still there.
      ExpectRefused(axcclPipelineReady(two.handle(), 1), ncclInvalidUsage, {ready, "chunk 1"});
      EXPECT_OK(axcclPipelineWait(two.handle(), 4));
      int done = 0;
      EXPECT_OK(axcclPipelineTest(two.handle(), 5, &done));
      EXPECT_EQ(done, 1);
      EXPECT_OK(axcclPipelineStreamWait(two.handle(), 5, two.stream()));
    }
  });
}

TEST(PipelineMisuse, ReadyWithoutAProducer) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    Two two(clique, CaseOf(axcclPipelineAllGather, kRanks, kSlices));
    for (int step = 0; step < 2; ++step) {
      two.Start(false);
      ExpectRefused(axcclPipelineReady(two.handle(), 0), ncclInvalidUsage, {"axcclPipelineReady: ", "axcclProducer"});
      ExpectRefused(axcclPipelineStreamReady(two.handle(), 0, two.stream()), ncclInvalidUsage,
                    {"axcclPipelineStreamReady: ", "axcclProducer"});
      two.Finish();
    }
  });
}

TEST(PipelineMisuse, StreamsThatAreNotLive) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    IntCase c = CaseOf(axcclPipelineAllGather, kRanks, kSlices);
    c.produced = true;
    Two two(clique, c);
    axcclStream_t gone = nullptr;
    ASSERT_OK(axcclStreamCreate(&gone, axcclStreamNonBlocking));
    ASSERT_OK(axcclStreamDestroy(gone));
    two.Step(true);
    ExpectRefused(axcclPipelineStart(two.handle(), Cuda(gone)), ncclInvalidArgument,
                  {"axcclPipelineStart: ", "stream"});
    two.Start(false);
    ExpectRefused(axcclPipelineStreamWait(two.handle(), 0, Cuda(gone)), ncclInvalidArgument,
                  {"axcclPipelineStreamWait: ", "stream"});
    ExpectRefused(axcclPipelineStreamReady(two.handle(), 0, Cuda(gone)), ncclInvalidArgument,
                  {"axcclPipelineStreamReady: ", "stream"});
    ExpectRefused(axcclPipelineFinish(two.handle(), Cuda(gone)), ncclInvalidArgument,
                  {"axcclPipelineFinish: ", "stream"});
    for (int r = 0; r < kRanks; ++r) two.Produce(r, 0);
    two.Finish();
  });
}

// The end of a group with an error starts nothing, and a start that was in it has not been made.
TEST(PipelineMisuse, CallsOnAPipelineWhoseStartIsInAnOpenGroup) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    IntCase c = CaseOf(axcclPipelineAllGather, kRanks, kSlices);
    c.produced = true;
    Two two(clique, c);
    two.Step(true);
    for (const Use& use : Uses()) {
      if (!use.needs_comm || std::string(use.name) == "axcclPipelineStart") continue;
      SCOPED_TRACE(use.name);
      ASSERT_OK(ncclGroupStart());
      for (int r = 0; r < kRanks; ++r) ASSERT_OK(axcclPipelineStart(two.handle(r), two.stream(r)));
      ExpectRefused(use.call(two.handle(), two.stream()), ncclInvalidUsage,
                    {std::string(use.name) + ": ", "group", "call ncclGroupEnd first"});
      ExpectRefused(ncclGroupEnd(), ncclInvalidUsage, {use.name});
      two.Step(true);
    }
  });
}

// ---- communicators that are gone ----

void ExpectOnlyDestroyIsLeft(Two* two, int rank) {
  for (const Use& use : Uses()) {
    if (!use.needs_comm) {
      EXPECT_OK(use.call(two->handle(rank), nullptr));
      continue;
    }
    ExpectRefused(use.call(two->handle(rank), nullptr), ncclInvalidArgument,
                  {std::string(use.name) + ": ", "communicator", "destroyed or aborted", "axcclPipelineDestroy"});
  }
}

enum class Gone { kDestroyed, kAborted, kAbortedWhenStarted };

TEST(PipelineMisuse, AfterTheCommunicatorIsGone) {
  for (const Gone gone : {Gone::kDestroyed, Gone::kAborted, Gone::kAbortedWhenStarted}) {
    RunCliques(OneThread(kRanks), [gone](RankContext&, Clique& clique) {
      IntCase c = CaseOf(axcclPipelineAllGather, kRanks, kSlices);
      c.produced = true;
      Two two(clique, c), unused(clique, c);
      two.Step(true);
      const uint32_t* const words = two[0].Words(axcclOut);
      if (gone == Gone::kAbortedWhenStarted) two.Start(false);
      for (int r = 0; r < kRanks; ++r)
        ASSERT_OK(gone == Gone::kDestroyed ? ncclCommDestroy(clique.comm(r)) : ncclCommAbort(clique.comm(r)));
      clique.ForgetComms();
      for (int64_t chunk = 0; chunk < two[0].out_chunks(); ++chunk)
        EXPECT_EQ(axcclDeviceAwait(&words[chunk]), gone == Gone::kAbortedWhenStarted ? 2u : 1u);
      for (int r = 0; r < kRanks; ++r) ExpectOnlyDestroyIsLeft(&two, r);
      axcclPipeline_t const handle = two[0].Take();
      EXPECT_OK(axcclPipelineDestroy(handle));
      ExpectRefused(axcclPipelineDestroy(handle), ncclInvalidArgument, {"axcclPipelineDestroy: ", "not live"});
    });
  }
}

TEST(PipelineMisuse, ACommunicatorThatWasDestroyedBeforeCreation) {
  RunCliques(OneThread(kRanks), [](RankContext&, Clique& clique) {
    IntPipeline refused(CaseOf(axcclPipelineAllGather, kRanks, kSlices), 0);
    axcclChannel_t const channel = axcclDefaultChannel(clique.comm(0));
    EXPECT_TRUE(clique.Destroy());
    ExpectRefused(refused.Create(channel), ncclInvalidArgument, {"axcclPipelineCreate: "});
  });
}

}  // namespace
}  // namespace axccl::tests
