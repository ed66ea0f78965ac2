#include "tests/api/pipeline_calls.h"

#include <utility>

#include "axccl/device.h"

namespace axccl::test {
namespace {

constexpr int64_t kSlices = 2, kOutChunks = kSlices * World::kRanks;

#define RETURN_IF_FAILED(call) \
  if (const ncclResult_t result_ = (call); result_ != ncclSuccess) return result_

ncclResult_t Create(World& w, int rank) {
  axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
  spec.in = w.InView(rank, 1);
  spec.out = w.OutView(rank, 2);
  spec.slices = kSlices;
  spec.flags = axcclProducer;
  return axcclPipelineCreate(&w.pipelines[rank], &spec, w.channels[rank]);
}

ncclResult_t Declare(World& w, int rank, int64_t position, Declares how) {
  axcclPipeline_t const pipeline = w.pipelines[rank];
  axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
  RETURN_IF_FAILED(axcclPipelineGetChunk(pipeline, axcclIn, position, &chunk));
  if (how == Declares::kReady) return axcclPipelineReady(pipeline, chunk.number);
  if (how == Declares::kStream) return axcclPipelineStreamReady(pipeline, chunk.number, w.Stream(rank));
  uint32_t* words = nullptr;
  RETURN_IF_FAILED(axcclPipelineGetFlags(pipeline, axcclIn, &words, nullptr));
  axcclDeviceReady(&words[chunk.number]);
  return ncclSuccess;
}

ncclResult_t Await(World& w, int rank, int64_t chunk, Awaits how) {
  axcclPipeline_t const pipeline = w.pipelines[rank];
  if (how == Awaits::kWait) return axcclPipelineWait(pipeline, chunk);
  if (how == Awaits::kStream) return axcclPipelineStreamWait(pipeline, chunk, w.Stream(rank));
  // Asks until the wait that follows would not have to wait any more, or a few times.
  int done = 0;
  for (int i = 0; i < 100 && done == 0; ++i) RETURN_IF_FAILED(axcclPipelineTest(pipeline, chunk, &done));
  return ncclSuccess;
}

}  // namespace

ncclResult_t StartPipelines(World& w) {
  for (int r = 0; r < World::kRanks; ++r) {
    RETURN_IF_FAILED(Create(w, r));
    RETURN_IF_FAILED(axcclPipelineStart(w.pipelines[r], w.Stream(r)));
  }
  return ncclSuccess;
}

ncclResult_t FinishPipelines(World& w, Awaits awaits, Declares declares) {
  for (int r = 0; r < World::kRanks; ++r) {
    for (int64_t i = 0; i < kSlices; ++i) RETURN_IF_FAILED(Declare(w, r, i, declares));
  }
  for (int r = 0; r < World::kRanks; ++r) {
    for (int64_t c = 0; c < kOutChunks; ++c) RETURN_IF_FAILED(Await(w, r, c, awaits));
    axcclPipelineInfo_t info{};
    info.size = sizeof(info);
    RETURN_IF_FAILED(axcclPipelineGetInfo(w.pipelines[r], &info));
    RETURN_IF_FAILED(axcclPipelineFinish(w.pipelines[r], w.Stream(r)));
  }
  RETURN_IF_FAILED(w.Wait());
  for (axcclPipeline_t& pipeline : w.pipelines) {
    RETURN_IF_FAILED(axcclPipelineDestroy(pipeline));
    pipeline = nullptr;
  }
  return ncclSuccess;
}

ncclResult_t StepPipelines(World& w, Awaits awaits, Declares declares) {
  RETURN_IF_FAILED(StartPipelines(w));
  return FinishPipelines(w, awaits, declares);
}

}  // namespace axccl::test
