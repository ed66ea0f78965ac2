#include "tests/pipelines/chunk_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/random.h"
#include "tests/harness/timing.h"

namespace axccl::tests {

using harness::Clique;
using harness::Cuda;
using harness::Random;
using harness::RankContext;

namespace {

// Threads of a case are as far as each other soon, as a rule.
constexpr int kQuickLooks = 16;

enum class Sees { kWait, kTest, kWord, kStream };
enum class Declares { kReady, kStreamReady, kWord };

// The declarations in order.
struct Declaration {
  int rank;
  int64_t position;
};
std::vector<Declaration> AnyOrder(const IntCase& c, Random* random) {
  std::vector<Declaration> all;
  std::vector<int64_t> next(static_cast<size_t>(c.nranks));
  for (;;) {
    std::vector<int> left;
    for (int r = 0; r < c.nranks; ++r) {
      if (next[static_cast<size_t>(r)] < c.InBlocks(r) * c.slices) left.push_back(r);
    }
    if (left.empty()) return all;
    const int rank = left[random->Below(left.size())];
    all.push_back({rank, next[static_cast<size_t>(rank)]++});
  }
}

// The positions of the blocks of an input, by definition.
int64_t BlockAt(const IntCase& c, int rank, int64_t position) {
  if (c.InBlocks(rank) < 2) return 0;
  const int64_t n = c.nranks;
  const bool own_last =
      c.order == axcclOwnLast || (c.order == axcclDefaultOrder && c.kind == axcclPipelineReduceScatter);
  return c.order == axcclByRank ? position : (rank + position + (own_last ? 1 : 0)) % n;
}

// What is declared at each rank.
class Declared {
 public:
  explicit Declared(const IntCase& c) : c_(c), chunks_(static_cast<size_t>(c.nranks)) {
    for (int r = 0; r < c.nranks; ++r)
      chunks_[static_cast<size_t>(r)].resize(static_cast<size_t>(c.InBlocks(r) * c.slices));
  }
  int64_t Add(const Declaration& d) {
    const int64_t chunk = BlockAt(c_, d.rank, d.position / c_.slices) * c_.slices + d.position % c_.slices;
    chunks_[static_cast<size_t>(d.rank)][static_cast<size_t>(chunk)] = true;
    return chunk;
  }
  // Whether everything is declared that a chunk of the output is made of.
  bool Complete(int rank, int64_t out_chunk) const {
    const int64_t block = out_chunk / c_.slices, slice = out_chunk % c_.slices;
    switch (c_.kind) {
      case axcclPipelineAllGather:
        return Has(block, slice);
      case axcclPipelineReduceScatter:
      case axcclPipelineAllReduce:
        for (int r = 0; r < c_.nranks; ++r) {
          if (!Has(r, (c_.kind == axcclPipelineAllReduce ? 0 : rank * c_.slices) + slice)) return false;
        }
        return true;
      case axcclPipelineAllToAll:
        return Has(block, rank * c_.slices + slice);
      case axcclPipelineBroadcast:
        return Has(c_.root, slice);
      default:
        return c_.SourceOf(rank) < 0 || Has(c_.SourceOf(rank), slice);
    }
  }

 private:
  bool Has(int64_t rank, int64_t chunk) const { return chunks_[static_cast<size_t>(rank)][static_cast<size_t>(chunk)]; }

  const IntCase& c_;
  std::vector<std::vector<bool>> chunks_;
};

// One rank's pipeline with what sees and declares its chunks.
class Member {
 public:
  Member(const IntCase& c, int rank, axcclChannel_t channel, axcclStream_t main, axcclStream_t side)
      : pipeline(c, rank, channel), main_(main), side_(side) {
    out_words_ = pipeline.Words(axcclOut);
  }

  void Start(int step, Declares declares) {
    declares_ = declares;
    if (declares == Declares::kWord) in_words_ = pipeline.Words(axcclIn);
    pipeline.Prepare(step);
    step_ = step;
    seen_.assign(static_cast<size_t>(pipeline.out_chunks()), false);
    EXPECT_OK(axcclPipelineStart(pipeline.handle(), Cuda(main_)));
  }
  void Declare(int64_t chunk) {
    if (declares_ == Declares::kStreamReady) {
      produced_chunk_ = chunk;
      const auto produce = [](void* self) { static_cast<Member*>(self)->ProduceNow(); };
      EXPECT_OK(axcclLaunchHostFunc(side_, produce, this));
      EXPECT_OK(axcclPipelineStreamReady(pipeline.handle(), chunk, Cuda(side_)));
      EXPECT_OK(axcclStreamSynchronize(side_));
      return;
    }
    pipeline.Produce(chunk, step_);
    if (declares_ == Declares::kReady) {
      EXPECT_OK(axcclPipelineReady(pipeline.handle(), chunk));
    } else {
      axcclDeviceReady(&in_words_[chunk]);
    }
  }
  // Chunks that cannot be there are not.
  void ExpectOthersMissing(const Declared& declared) {
    for (int64_t chunk = 0; chunk < pipeline.out_chunks(); ++chunk) {
      if (declared.Complete(pipeline.rank(), chunk)) continue;
      int done = -1;
      EXPECT_OK(axcclPipelineTest(pipeline.handle(), chunk, &done));
      EXPECT_EQ(done, 0) << "chunk " << chunk;
      EXPECT_EQ(axcclDeviceLook(&out_words_[chunk]), 0u) << "chunk " << chunk;
    }
  }
  void SeeComplete(const Declared& declared, Sees sees, const RankContext& context) {
    for (int64_t p = 0; p < pipeline.out_chunks(); ++p) {
      const int64_t chunk = pipeline.ChunkAt(axcclOut, p);
      if (seen_[static_cast<size_t>(chunk)] || !declared.Complete(pipeline.rank(), chunk)) continue;
      See(chunk, sees, context);
      EXPECT_EQ(axcclDeviceLook(&out_words_[chunk]), 1u);
      EXPECT_EQ(pipeline.CheckChunk(chunk, step_), "");
      seen_[static_cast<size_t>(chunk)] = true;
    }
  }
  void Finish() {
    EXPECT_OK(axcclPipelineFinish(pipeline.handle(), Cuda(main_)));
    EXPECT_TRUE(std::all_of(seen_.begin(), seen_.end(), [](bool seen) { return seen; }));
  }
  void Synchronize() {
    EXPECT_OK(axcclStreamSynchronize(main_));
    EXPECT_EQ(pipeline.Check(step_), "");
  }

  IntPipeline pipeline;

 private:
  void ProduceNow() { pipeline.Produce(produced_chunk_, step_); }
  void See(int64_t chunk, Sees sees, const RankContext& context) {
    int done = 0;
    switch (sees) {
      case Sees::kWait:
        EXPECT_OK(axcclPipelineWait(pipeline.handle(), chunk));
        break;
      case Sees::kTest:
        while (done == 0 && !context.AnyFailed()) {
          ASSERT_OK(axcclPipelineTest(pipeline.handle(), chunk, &done));
          std::this_thread::yield();
        }
        break;
      case Sees::kWord:
        EXPECT_EQ(axcclDeviceAwait(&out_words_[chunk]), 1u);
        break;
      case Sees::kStream:
        seen_by_stream_ = false;
        seen_chunk_ = chunk;
        EXPECT_OK(axcclPipelineStreamWait(pipeline.handle(), chunk, Cuda(side_)));
        const auto check = [](void* self) { static_cast<Member*>(self)->CheckInStream(); };
        EXPECT_OK(axcclLaunchHostFunc(side_, check, this));
        EXPECT_OK(axcclStreamSynchronize(side_));
        EXPECT_TRUE(seen_by_stream_);
    }
  }
  void CheckInStream() { seen_by_stream_ = pipeline.CheckChunk(seen_chunk_, step_).empty(); }

  const axcclStream_t main_, side_;
  const uint32_t* out_words_ = nullptr;
  uint32_t* in_words_ = nullptr;
  Declares declares_{};
  int step_ = 0;
  int64_t produced_chunk_ = 0, seen_chunk_ = 0;
  bool seen_by_stream_ = false;
  std::vector<bool> seen_;
};

// How many declarations each thread has seen the effects of, in the shared board.
class Progress {
 public:
  explicit Progress(const RankContext& context)
      : context_(context),
        seen_(reinterpret_cast<std::atomic<uint64_t>*>(context.board() + RankContext::kBoardBytes / 2)),
        threads_(static_cast<size_t>(context.nranks() / context.local_ranks())),
        own_(static_cast<size_t>(context.first_rank() / context.local_ranks())) {}
  void Advance() { seen_[own_].fetch_add(1); }
  // Waits until all threads are as far as this one.
  bool AwaitOthers() {
    const uint64_t mine = seen_[own_].load();
    for (size_t t = 0; t < threads_; ++t) {
      for (int looks = 0; seen_[t].load() < mine; ++looks) {
        if (context_.AnyFailed()) return false;
        if (looks < kQuickLooks) {
          std::this_thread::yield();
        } else {
          harness::LookLater();
        }
      }
    }
    return true;
  }

 private:
  const RankContext& context_;
  std::atomic<uint64_t>* const seen_;
  const size_t threads_, own_;
};

constexpr int kSteps = 2;

}  // namespace

void RunInAnyOrder(RankContext& context, const Clique& clique, const IntCase& c, uint64_t seed) {
  Random random(seed);
  Progress progress(context);
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < clique.size(); ++i)
    members.push_back(std::make_unique<Member>(c, clique.rank(i), axcclDefaultChannel(clique.comm(i)), clique.stream(i),
                                               clique.stream(i, 1)));
  for (int step = 0; step < kSteps && !testing::Test::HasFailure(); ++step) {
    const auto sees = static_cast<Sees>(random.Below(4));
    const auto declares = static_cast<Declares>(random.Below(3));
    SCOPED_TRACE("seen by way " + std::to_string(static_cast<int>(sees)) + ", declared by way " +
                 std::to_string(static_cast<int>(declares)));
    const std::vector<Declaration> order = AnyOrder(c, &random);
    for (auto& member : members) member->Start(step, declares);
    Declared declared(c);
    for (const Declaration& d : order) {
      for (auto& member : members) member->ExpectOthersMissing(declared);
      progress.Advance();
      if (!progress.AwaitOthers()) return;
      const int64_t chunk = declared.Add(d);
      for (auto& member : members) {
        if (member->pipeline.rank() != d.rank) continue;
        ASSERT_EQ(member->pipeline.ChunkAt(axcclIn, d.position), chunk);
        member->Declare(chunk);
      }
      for (auto& member : members) member->SeeComplete(declared, sees, context);
      progress.Advance();
      if (testing::Test::HasFailure() || !progress.AwaitOthers()) return;
    }
    for (auto& member : members) member->Finish();
    for (auto& member : members) member->Synchronize();
  }
}

void RunKindsInAnyOrder(RankContext& context, std::span<const int64_t> columns,
                        const std::vector<harness::Memory>& memories) {
  Clique clique;
  ASSERT_TRUE(clique.Init(context, 2));
  uint64_t number = 0;
  for (const axcclPipelineKind_t kind : kPipelineKinds) {
    for (const int64_t slices : {1, 2, 7}) {
      for (int order = axcclDefaultOrder; order <= (HasOrder(kind) ? axcclByRank : axcclDefaultOrder); ++order) {
        for (const int64_t of_block : columns) {
          for (const harness::Memory memory : memories) {
            if (!harness::IsSampled(++number, 0xc0de)) continue;
            IntCase c = CaseOf(kind, context.nranks(), slices);
            c.order = static_cast<axcclChunkOrder_t>(order), c.columns = of_block, c.memory = memory, c.produced = true;
            c.root = static_cast<int>(number) % c.nranks;
            if (kind == axcclPipelinePermute) c.pairs = ShiftPairs(c.nranks, static_cast<int>(number) % c.nranks);
            ASSERT_TRUE(context.Step("%d: %s", static_cast<int>(number), c.Text().c_str()));
            SCOPED_TRACE(c.Text() + ", AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
            RunInAnyOrder(context, clique, c, harness::Scramble(harness::Seed(), number));
            ASSERT_FALSE(testing::Test::HasFailure());
          }
        }
      }
    }
  }
}

}  // namespace axccl::tests
