// outstanding_perf: what calls cost that wait for a rank which has not called yet, by their number.
//
// Two ranks of one thread, on host devices. Rank 0 makes all its calls, of 8 bytes each, then rank 1 makes its own,
// then both are synchronised. Printed are the time in which rank 0 enqueues a call, the memory that the library takes
// for it, and the time of rank 1 and of the rest. If calls looked at each other, the times would grow with their
// number.
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "axccl/axccl.h"
#include "perf/common/calls.h"

namespace axccl::perf {
namespace {

constexpr int kStreams = 8;

struct Rank {
  int number = 0;
  ncclComm_t comm = nullptr;
  axcclStream_t streams[kStreams] = {};
  float in[2] = {1, 2}, out[2] = {};

  cudaStream_t stream(int i) const { return axcclStreamToCuda(streams[i % kStreams]); }
  void AllReduce(int i) { PERF_CALL(ncclAllReduce(in, out, 2, ncclFloat, ncclSum, comm, stream(i))); }
  void SendAndReceive() {
    PERF_CALL(ncclSend(in, 2, ncclFloat, 1 - number, comm, stream(0)));
    PERF_CALL(ncclRecv(out, 2, ncclFloat, 1 - number, comm, stream(0)));
  }
};

struct Case {
  const char* name;
  void (*call)(Rank* rank, int calls);
};

constexpr Case kCases[] = {
    {"all_reduce",
     [](Rank* rank, int calls) {
       for (int i = 0; i < calls; ++i) rank->AllReduce(0);
     }},
    {"all_reduce on 8 streams",
     [](Rank* rank, int calls) {
       for (int i = 0; i < calls; ++i) rank->AllReduce(i);
     }},
    {"groups of an all_reduce",
     [](Rank* rank, int calls) {
       for (int i = 0; i < calls; ++i) {
         PERF_CALL(ncclGroupStart());
         rank->AllReduce(0);
         PERF_CALL(ncclGroupEnd());
       }
     }},
    {"groups of a send and a receive",
     [](Rank* rank, int calls) {
       for (int i = 0; i < calls; i += 2) {
         PERF_CALL(ncclGroupStart());
         rank->SendAndReceive();
         PERF_CALL(ncclGroupEnd());
       }
     }},
    {"one group of sends and receives",
     [](Rank* rank, int calls) {
       PERF_CALL(ncclGroupStart());
       for (int i = 0; i < calls; i += 2) rank->SendAndReceive();
       PERF_CALL(ncclGroupEnd());
     }},
};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

size_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

void Synchronize(const Rank& rank) {
  PERF_CALL(axcclHostSetDevice(rank.number));
  for (axcclStream_t stream : rank.streams) PERF_CALL(axcclStreamSynchronize(stream));
}

void Measure(const Case& what, Rank* ranks, int calls) {
  PERF_CALL(axcclHostSetDevice(0));
  const size_t before = AllocatedBytes();
  const double begin = Now();
  what.call(&ranks[0], calls);
  const double enqueued = Now();
  const size_t bytes = AllocatedBytes() - before;
  PERF_CALL(axcclHostSetDevice(1));
  what.call(&ranks[1], calls);
  Synchronize(ranks[0]);
  Synchronize(ranks[1]);
  const double us = 1e6 / calls;
  std::printf("%-32s %8d %12.2f %10.0f %12.2f\n", what.name, calls, (enqueued - begin) * us,
              static_cast<double>(bytes) / calls, (Now() - enqueued) * us);
}

int OutstandingMain() {
  Rank ranks[2];
  ncclComm_t comms[2];
  PERF_CALL(ncclCommInitAll(comms, 2, nullptr));
  for (int r = 0; r < 2; ++r) {
    ranks[r].number = r;
    ranks[r].comm = comms[r];
    PERF_CALL(axcclHostSetDevice(r));
    for (axcclStream_t& stream : ranks[r].streams) PERF_CALL(axcclStreamCreate(&stream, axcclStreamNonBlocking));
  }
  std::printf("%-32s %8s %12s %10s %12s\n", "# 8 bytes, 2 ranks (host)", "calls", "enqueue, us", "bytes",
              "the rest, us");
  for (const Case& what : kCases) {
    for (const int calls : {1000, 1000, 10'000, 100'000}) Measure(what, ranks, calls);
  }
  return 0;
}

}  // namespace
}  // namespace axccl::perf

int main() {
  setenv("AXCCL_DEVICE", "host", 1);
  return axccl::perf::OutstandingMain();
}
