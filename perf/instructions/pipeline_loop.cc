// For perf/instructions/count: steps of a pipeline of chunks of 64 bytes, two ranks in one thread, so that who waits is
// certain.
//
// In each round, rank 0 starts first and is left pending, rank 1 then finds everything there, and rank 0 waits for the
// rest; each waits for its chunks in their order. Step is not inline, so that callgrind can count what happens inside.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "axccl/axccl.h"
#include "nccl.h"

namespace {

constexpr int64_t kChunkBytes = 64;

void Check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "pipeline_loop: %s\n", ncclGetLastError(nullptr));
  std::exit(1);
}

struct Rank {
  ncclComm_t comm = nullptr;
  axcclStream_t stream = nullptr;
  axcclPipeline_t pipeline = nullptr;
  std::vector<char> in, out;
};

void WaitForAll(const Rank& rank, int64_t chunks) {
  axcclChunk_t chunk = AXCCL_CHUNK_INITIALIZER;
  for (int64_t i = 0; i < chunks; ++i) {
    Check(axcclPipelineGetChunk(rank.pipeline, axcclOut, i, &chunk));
    Check(axcclPipelineWait(rank.pipeline, chunk.number));
  }
  Check(axcclPipelineFinish(rank.pipeline, axcclStreamToCuda(rank.stream)));
  Check(axcclStreamSynchronize(rank.stream));
}

}  // namespace

extern "C" {
[[gnu::noinline]] void Step(const Rank* ranks, int64_t chunks) {
  for (int r = 0; r < 2; ++r) Check(axcclPipelineStart(ranks[r].pipeline, axcclStreamToCuda(ranks[r].stream)));
  for (int r = 0; r < 2; ++r) WaitForAll(ranks[r], chunks);
}
}

int main(int argc, char** argv) {
  const int rounds = argc == 3 ? std::atoi(argv[1]) : 0;
  const int64_t slices = argc == 3 ? std::atoi(argv[2]) : 0;
  if (rounds <= 0 || slices <= 0) {
    std::fprintf(stderr, "usage: pipeline_loop ROUNDS SLICES\n");
    return 2;
  }
  Rank ranks[2];
  ncclComm_t comms[2];
  Check(ncclCommInitAll(comms, 2, nullptr));
  for (int r = 0; r < 2; ++r) {
    Rank& rank = ranks[r];
    rank.comm = comms[r];
    rank.in.assign(static_cast<size_t>(slices * kChunkBytes), static_cast<char>(r + 1));
    rank.out.resize(2 * rank.in.size());
    Check(axcclHostSetDevice(r));
    Check(axcclStreamCreate(&rank.stream, axcclStreamNonBlocking));
    const int64_t in_sizes[] = {slices, kChunkBytes}, out_sizes[] = {2 * slices, kChunkBytes};
    axcclPipelineSpec_t spec = AXCCL_PIPELINE_SPEC_INITIALIZER;
    spec.in.data = rank.in.data(), spec.in.sizes = in_sizes;
    spec.out.data = rank.out.data(), spec.out.sizes = out_sizes;
    spec.in.datatype = spec.out.datatype = ncclInt8;
    spec.in.num_dims = spec.out.num_dims = 2;
    spec.slices = slices;
    Check(axcclPipelineCreate(&rank.pipeline, &spec, axcclDefaultChannel(rank.comm)));
  }
  for (int round = 0; round < rounds; ++round) Step(ranks, 2 * slices);
  for (const Rank& rank : ranks) {
    if (rank.out.front() != 1 || rank.out.back() != 2) return 1;
    Check(axcclPipelineDestroy(rank.pipeline));
    Check(axcclStreamDestroy(rank.stream));
    Check(ncclCommDestroy(rank.comm));
  }
  return 0;
}
