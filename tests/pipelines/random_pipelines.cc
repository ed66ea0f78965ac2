#include "tests/pipelines/random_pipelines.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/harness/client.h"
#include "tests/harness/gpu.h"
#include "tests/harness/random.h"
#include "tests/pipelines/bound_case.h"

namespace axccl::tests {

using harness::Clique;
using harness::Cuda;
using harness::Memory;
using harness::Random;
using harness::RankContext;

namespace {

struct Pipe {
  std::unique_ptr<BoundCase> bound;
  axcclPipeline_t handle = nullptr;
  axcclPipelineInfo_t info{};
};

Pipe MakePipe(const ViewCase& c, const Cut& cut, int rank, Memory memory, axcclChannel_t channel) {
  Pipe pipe;
  pipe.bound = std::make_unique<BoundCase>(c, cut, rank, memory);
  EXPECT_OK(axcclPipelineCreate(&pipe.handle, &pipe.bound->spec(), channel));
  pipe.info.size = sizeof(pipe.info);
  if (pipe.handle != nullptr) {
    EXPECT_OK(axcclPipelineGetInfo(pipe.handle, &pipe.info));
  }
  return pipe;
}

int64_t ChunkAt(axcclPipeline_t pipeline, axcclSide_t side, int64_t position) {
  axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
  EXPECT_OK(axcclPipelineGetChunk(pipeline, side, position, &chunk));
  return chunk.number;
}

// One step of the ranks of a thread: produces, waits and checks, chunk by chunk.
void Step(std::vector<Pipe>* pipes, const Clique& clique, const Cut& cut) {
  for (size_t i = 0; i < pipes->size(); ++i) {
    (*pipes)[i].bound->Prepare();
    ASSERT_OK(axcclPipelineStart((*pipes)[i].handle, Cuda(clique.stream(static_cast<int>(i)))));
  }
  for (Pipe& pipe : *pipes) {
    for (int64_t p = 0; cut.produced && p < pipe.info.in_chunks; ++p) {
      const int64_t chunk = ChunkAt(pipe.handle, axcclIn, p);
      pipe.bound->Produce(chunk);
      ASSERT_OK(axcclPipelineReady(pipe.handle, chunk));
    }
  }
  for (Pipe& pipe : *pipes) {
    for (int64_t p = 0; p < pipe.info.out_chunks; ++p) {
      const int64_t chunk = ChunkAt(pipe.handle, axcclOut, p);
      ASSERT_OK(axcclPipelineWait(pipe.handle, chunk));
      ASSERT_EQ(pipe.bound->CheckChunk(chunk), "");
    }
  }
  for (size_t i = 0; i < pipes->size(); ++i)
    ASSERT_OK(axcclPipelineFinish((*pipes)[i].handle, Cuda(clique.stream(static_cast<int>(i)))));
  for (size_t i = 0; i < pipes->size(); ++i) ASSERT_OK(harness::SynchronizeStream(clique.stream(static_cast<int>(i))));
  for (Pipe& pipe : *pipes) ASSERT_EQ(pipe.bound->Check(), "");
}

void RunCase(RankContext& context, const Clique& clique, const ViewCase& c, const Cut& cut, Memory memory) {
  SCOPED_TRACE(c.Text() + ", " + cut.Text());
  std::vector<Pipe> pipes;
  for (int i = 0; i < clique.size(); ++i)
    pipes.push_back(MakePipe(c, cut, clique.rank(i), memory, axcclDefaultChannel(clique.comm(i))));
  ASSERT_FALSE(testing::Test::HasFailure());
  for (int start = 0; start < 3 && !testing::Test::HasFailure(); ++start) Step(&pipes, clique, cut);
  for (Pipe& pipe : pipes) EXPECT_OK(axcclPipelineDestroy(pipe.handle));
  if (!harness::OnGpu()) return;
  // To free memory of a GPU takes until no kernel runs there, and kernels of other ranks may wait for this one.
  ASSERT_TRUE(context.Barrier());
  pipes.clear();
  ASSERT_TRUE(context.Barrier());
}

}  // namespace

void RunRandomPipelines(RankContext& context, int cases) {
  SCOPED_TRACE("AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
  Clique clique;
  ASSERT_TRUE(clique.Init(context));
  Random random(harness::Seed());
  for (int n = 0; n < cases && !testing::Test::HasFailure(); ++n) {
    const ViewCase c = AnyPipelineCase(&random, context.nranks(), 3000);
    const Cut cut = AnyCut(c, &random);
    const Memory memory = random.OneIn(2) ? Memory::kMemAlloc : Memory::kMalloc;
    ASSERT_TRUE(context.Step("%d: %s, %s", n, c.Text().c_str(), cut.Text().c_str()));
    RunCase(context, clique, c, cut, memory);
  }
}

}  // namespace axccl::tests
