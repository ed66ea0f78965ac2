// hosts_perf: messages between two ranks, and how long ranks take to meet, or to go on without one, for perf/hosts/run.
//
//   hosts_perf lat|bw BYTES ITERATIONS | init ROUNDS | death|recovery FILE     with NCCL_COMM_ID, RANK and RANKS set
//
// lat: half the time of a message there and back in us, median. bw: messages one way, without waiting in between, in
// MB/s. init: ncclCommInitRank and ncclCommDestroy; ms of the slowest rank for the former, median. death: the process
// of the last rank is killed while the others wait for it; ms until the last one knows. recovery: until they have
// shrunk the communicator, and the slowest one is done with an operation there. FILE passes on the time of the death,
// and must not exist. Rank 0 prints only the number.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
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

constexpr std::chrono::milliseconds kToWait(100);  // until all others wait for the one that dies

// In a process of its own, which its parent kills. Returns the exit status of the parent.
int Die(const std::string& file) {
  int ready[2];
  if (pipe(ready) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    Rank r;
    r.Join();
    CHECK(axcclStreamCreate(&r.stream, axcclStreamNonBlocking));
    (void)r.Largest(0);
    if (write(ready[1], "", 1) == 1) (void)pause();
    _exit(1);
  }
  char byte;
  close(ready[1]);
  if (child < 0 || read(ready[0], &byte, 1) != 1) return 1;
  std::this_thread::sleep_for(kToWait);
  const double time = Now();
  kill(child, SIGKILL);
  std::ofstream((file + ".part").c_str()) << std::fixed << time;
  if (std::rename((file + ".part").c_str(), file.c_str()) != 0) return 1;
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFSIGNALED(status) ? 0 : 1;
}

double TimeIn(const std::string& file) {
  double time = 0;
  while (!(std::ifstream(file) >> time)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return time;
}

// Of the slowest rank, in ms: until it knows of the death, and until it has gone on.
struct AfterDeath {
  double known = 0, recovered = 0;
};
AfterDeath Outlive(Rank* r, const std::string& file) {
  r->Join();
  (void)r->Largest(0);
  double value = 0;
  const ncclResult_t called = ncclAllReduce(&value, &value, 1, ncclFloat64, ncclMax, r->comm, r->cuda());
  if (called == ncclSuccess && axcclStreamSynchronize(r->stream) == ncclSuccess) {
    std::fprintf(stderr, "hosts_perf: the operation has not failed\n");
    std::exit(1);
  }
  const double known = Now();
  ncclComm_t small = nullptr;
  CHECK(ncclCommShrink(r->comm, nullptr, 0, &small, nullptr, NCCL_SHRINK_ABORT));
  CHECK(ncclCommAbort(std::exchange(r->comm, small)));
  (void)r->Largest(0);
  const double recovered = Now();
  const double died = TimeIn(file);
  return {r->Largest((known - died) * 1e3), r->Largest((recovered - died) * 1e3)};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string what = argv[1];
  setenv("AXCCL_DEVICE", "host", 0);
  const bool death = what == "death" || what == "recovery";
  Rank r;
  if (death && r.rank == r.ranks - 1) return Die(argv[2]);
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
  } else if (death) {
    const AfterDeath after = Outlive(&r, argv[2]);
    figure = what == "death" ? after.known : after.recovered;
    CHECK(ncclCommDestroy(r.comm));
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
