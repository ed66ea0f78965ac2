// For perf/instructions/count: the first 8-byte all_reduce of a communicator whose ranks are all in this thread, with
// the choice of an algorithm, its plan and everything that is prepared. The function is not inline, so that callgrind
// can count what happens inside.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "axccl/axccl.h"
#include "nccl.h"

namespace {

void Check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "first_call: %s\n", ncclGetLastError(nullptr));
  std::exit(1);
}

}  // namespace

extern "C" [[gnu::noinline]] void First(const std::vector<ncclComm_t>& comms, const std::vector<axcclStream_t>& streams,
                                        std::vector<float>* data) {
  Check(ncclGroupStart());
  for (size_t r = 0; r < comms.size(); ++r) {
    float* const both = &(*data)[2 * r];
    Check(ncclAllReduce(both, both, 2, ncclFloat, ncclSum, comms[r], axcclStreamToCuda(streams[r])));
  }
  Check(ncclGroupEnd());
  for (axcclStream_t stream : streams) Check(axcclStreamSynchronize(stream));
}

int main(int argc, char** argv) {
  const int ranks = argc == 2 ? std::atoi(argv[1]) : 0;
  if (ranks <= 0) {
    std::fprintf(stderr, "usage: first_call RANKS\n");
    return 2;
  }
  const auto n = static_cast<size_t>(ranks);
  std::vector<ncclComm_t> comms(n);
  std::vector<axcclStream_t> streams(n);
  std::vector<float> data(2 * n, 1);
  Check(ncclCommInitAll(comms.data(), ranks, nullptr));
  for (int r = 0; r < ranks; ++r) {
    Check(axcclHostSetDevice(r));
    Check(axcclStreamCreate(&streams[static_cast<size_t>(r)], axcclStreamNonBlocking));
  }
  First(comms, streams, &data);
  for (const float sum : data) {
    if (sum != static_cast<float>(ranks)) return 1;
  }
  for (axcclStream_t stream : streams) Check(axcclStreamDestroy(stream));
  for (ncclComm_t comm : comms) Check(ncclCommDestroy(comm));
  return 0;
}
