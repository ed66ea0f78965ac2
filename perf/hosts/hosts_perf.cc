// hosts_perf: messages between two ranks, and how long ranks take to meet, for perf/hosts/run.
//
//   hosts_perf lat|bw BYTES ITERATIONS | init ROUNDS     with NCCL_COMM_ID, RANK and RANKS set
//
// lat: half the time of a message there and back in us, median. bw: messages one way, without waiting in between, in
// MB/s. init: ncclCommInitRank and ncclCommDestroy; ms of the slowest rank for the former, median. Rank 0 prints only
// the number.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "axccl/axccl.h"
#include "nccl.h"
#include "perf/common/median.h"

namespace {

using axccl::perf::Median;

void Check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "hosts_perf: %s: %s\n", what, ncclGetLastError(nullptr));
  std::exit(1);
}
#define CHECK(call) Check(call, #call)

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Rank {
  int rank = std::atoi(std::getenv("RANK"));
  int ranks = std::atoi(std::getenv("RANKS"));
  ncclComm_t comm = nullptr;
  axcclStream_t stream = nullptr;

  double Join() {
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id));
    const double start = Now();
    CHECK(ncclCommInitRank(&comm, ranks, id, rank));
    return Now() - start;
  }
  cudaStream_t cuda() const { return axcclStreamToCuda(stream); }
  double Largest(double value) const {
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat64, ncclMax, comm, cuda()));
    CHECK(axcclStreamSynchronize(stream));
    return value;
  }
};

double HalfRoundTrip(const Rank& r, std::vector<char>* data, int iterations) {
  std::vector<double> times;
  for (int i = 0; i < iterations + iterations / 10; ++i) {
    const double start = Now();
    for (int turn = 0; turn < 2; ++turn) {
      if (turn == r.rank) {
        CHECK(ncclSend(data->data(), data->size(), ncclInt8, 1 - r.rank, r.comm, r.cuda()));
      } else {
        CHECK(ncclRecv(data->data(), data->size(), ncclInt8, 1 - r.rank, r.comm, r.cuda()));
      }
      CHECK(axcclStreamSynchronize(r.stream));
    }
    if (i >= iterations / 10) times.push_back((Now() - start) / 2);
  }
  return Median(times) * 1e6;
}

double OneWay(const Rank& r, std::vector<char>* data, int iterations) {
  const double start = Now();
  for (int i = 0; i < iterations; ++i) {
    if (r.rank == 0) {
      CHECK(ncclSend(data->data(), data->size(), ncclInt8, 1, r.comm, r.cuda()));
    } else {
      CHECK(ncclRecv(data->data(), data->size(), ncclInt8, 0, r.comm, r.cuda()));
    }
  }
  CHECK(axcclStreamSynchronize(r.stream));
  return static_cast<double>(data->size()) * iterations / r.Largest(Now() - start) / 1e6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string what = argv[1];
  setenv("AXCCL_DEVICE", "host", 0);
  Rank r;
  CHECK(axcclStreamCreate(&r.stream, axcclStreamNonBlocking));
  double figure = 0;
  if (what == "init") {
    std::vector<double> times;
    for (int i = std::atoi(argv[2]); i > 0; --i) {
      const double seconds = r.Join();
      times.push_back(r.Largest(seconds) * 1e3);
      CHECK(ncclCommDestroy(r.comm));
    }
    figure = Median(times);
  } else if (argc > 3) {
    std::vector<char> data(static_cast<size_t>(std::atoll(argv[2])), 1);
    r.Join();
    const int iterations = std::atoi(argv[3]);
    if (what == "lat") figure = HalfRoundTrip(r, &data, iterations);
    if (what == "bw") {
      (void)OneWay(r, &data, std::max(iterations / 10, 1));
      figure = OneWay(r, &data, iterations);
    }
    CHECK(ncclCommDestroy(r.comm));
  }
  if (r.rank == 0) std::printf("%.3f\n", figure);
  CHECK(axcclStreamDestroy(r.stream));
  return 0;
}
