// For perf/instructions/count: calls of 8 bytes, two ranks in one thread, so that who waits is certain.
//
// In each round, rank 0 calls first and is left pending (Pending), rank 1 then finds everything there (Complete), and
// rank 0 waits for the rest (Finish). The functions are not inline, so that callgrind can count what happens inside
// each.
#include <cstdio>
#include <cstdlib>

#include "axccl/axccl.h"
#include "nccl.h"

namespace {

void Check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "call_loop: %s\n", ncclGetLastError(nullptr));
  std::exit(1);
}

struct Rank {
  ncclComm_t comm;
  axcclStream_t stream;
  float in[2], out[2];
};

ncclResult_t Call(Rank* rank) {
  return ncclAllReduce(rank->in, rank->out, 2, ncclFloat, ncclSum, rank->comm, axcclStreamToCuda(rank->stream));
}

}  // namespace

extern "C" {
[[gnu::noinline]] ncclResult_t Pending(Rank* rank) { return Call(rank); }
[[gnu::noinline]] ncclResult_t Complete(Rank* rank) {
  const ncclResult_t result = Call(rank);
  return result != ncclSuccess ? result : axcclStreamSynchronize(rank->stream);
}
[[gnu::noinline]] ncclResult_t Finish(Rank* rank) { return axcclStreamSynchronize(rank->stream); }
}

int main(int argc, char** argv) {
  const int rounds = argc == 2 ? std::atoi(argv[1]) : 0;
  if (rounds <= 0) {
    std::fprintf(stderr, "usage: call_loop ROUNDS\n");
    return 2;
  }
  Rank ranks[2] = {};
  ncclComm_t comms[2];
  Check(ncclCommInitAll(comms, 2, nullptr));
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank].comm = comms[rank];
    ranks[rank].in[0] = ranks[rank].in[1] = static_cast<float>(rank + 1);
    Check(axcclHostSetDevice(rank));
    Check(axcclStreamCreate(&ranks[rank].stream, axcclStreamNonBlocking));
  }
  for (int round = 0; round < rounds; ++round) {
    Check(Pending(&ranks[0]));
    Check(Complete(&ranks[1]));
    Check(Finish(&ranks[0]));
  }
  for (const Rank& rank : ranks) {
    if (rank.out[0] != 3 || rank.out[1] != 3) return 1;
    Check(axcclStreamDestroy(rank.stream));
    Check(ncclCommDestroy(rank.comm));
  }
  return 0;
}
