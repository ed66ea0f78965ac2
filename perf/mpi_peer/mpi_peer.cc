// mpi_perf: the installed MPI's collectives at the sizes and counts of the perf tools, for comparison.
//
// Start it with mpirun. Blocking calls, float sum, buffers from malloc (MPI_Alloc_mem gains nothing within a machine),
// the same buffers in every iteration. Time: mean over the iterations, then mean over the ranks, as nccl-tests does;
// with -I 1 also the median over the iterations of the slowest rank.
//
// `all_gather --shape A,B,.. --dim D` is MPI_Allgather and then the fastest of several copies into place.

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "perf/common/fail.h"
#include "perf/common/types.h"
#include "perf/common/yardstick.h"
#include "perf/loops/loops.h"

namespace axccl::perf {
namespace {

struct Peer {
  int rank;
  int ranks;
  float* send;
  float* recv;
  std::vector<Runs> copies;  // from recv into place, when the result belongs elsewhere
  CopyWay way = {Loop::kMemcpy, false};
};

// One call; `count` elements as the perf tools pass them. MPI counts are int: sizes up to 8 GiB.
void Communicate(const std::string& collective, const Peer& p, int count) {
  const MPI_Comm comm = MPI_COMM_WORLD;
  if (collective == "all_reduce") {
    MPI_Allreduce(p.send, p.recv, count, MPI_FLOAT, MPI_SUM, comm);
  } else if (collective == "all_gather") {
    MPI_Allgather(p.send, count, MPI_FLOAT, p.recv, count, MPI_FLOAT, comm);
  } else if (collective == "reduce_scatter") {
    MPI_Reduce_scatter_block(p.send, p.recv, count, MPI_FLOAT, MPI_SUM, comm);
  } else if (collective == "alltoall") {
    MPI_Alltoall(p.send, count, MPI_FLOAT, p.recv, count, MPI_FLOAT, comm);
  } else if (collective == "broadcast") {
    MPI_Bcast(p.rank == 0 ? p.send : p.recv, count, MPI_FLOAT, 0, comm);
  } else if (collective == "reduce") {
    MPI_Reduce(p.send, p.recv, count, MPI_FLOAT, MPI_SUM, 0, comm);
  } else if (collective == "gather") {
    MPI_Gather(p.send, count, MPI_FLOAT, p.recv, count, MPI_FLOAT, 0, comm);
  } else if (collective == "scatter") {
    MPI_Scatter(p.send, count, MPI_FLOAT, p.recv, count, MPI_FLOAT, 0, comm);
  } else {
    MPI_Sendrecv(p.send, count, MPI_FLOAT, (p.rank + 1) % p.ranks, 0, p.recv, count, MPI_FLOAT,
                 (p.rank + p.ranks - 1) % p.ranks, 0, comm, MPI_STATUS_IGNORE);
  }
}

void RunOnce(const std::string& collective, const Peer& p, int count) {
  Communicate(collective, p, count);
  CopyRuns(p.copies, p.way);
}

// The remaining work after an all-gather of blocks of that shape on dimension 0, and the fastest way to do it.
void PlanCopies(const ViewOptions& views, size_t element_bytes, char* out, Peer* peer) {
  const Shape& shape = views.shapes[0];
  const int dims = static_cast<int>(shape.size());
  const size_t dim = static_cast<size_t>(views.ConcatDim() < 0 ? views.ConcatDim() + dims : views.ConcatDim());
  size_t count = 1;
  size_t bytes = element_bytes;
  for (size_t d = 0; d < shape.size(); ++d) (d < dim ? count : bytes) *= static_cast<size_t>(shape[d]);
  if (count == 1) return;  // it is in place
  peer->copies = SideBySide(reinterpret_cast<char*>(peer->recv), out, static_cast<size_t>(peer->ranks), count, bytes);
  double least = 0;
  for (const CopyWay& way : AllCopyWays()) {
    double times[3];
    for (double& time : times) {
      MPI_Barrier(MPI_COMM_WORLD);
      double start = MPI_Wtime();
      CopyRuns(peer->copies, way);
      time = MPI_Wtime() - start;
    }
    double fastest = *std::min_element(times, times + 3);
    MPI_Allreduce(MPI_IN_PLACE, &fastest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (least > 0 && fastest >= least) continue;
    least = fastest;
    peer->way = way;
  }
}

float* Allocate(size_t bytes) {
  void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
  if (memory == nullptr) Fail(kExitFailed, "aligned_alloc of %zu bytes failed", bytes);
  std::memset(memory, 0x3f, bytes + 64);
  return static_cast<float*>(memory);
}

struct Time {
  double mean;
  double median;
};

Time Measure(const YardstickTask& task, const Peer& peer, int count) {
  const Options& o = task.options;
  std::vector<double> lasted;
  double start = MPI_Wtime();
  double iteration_start = start;
  for (int i = 0; i < o.iterations; ++i) {
    RunOnce(task.rule->name, peer, count);
    if (!o.per_iteration) continue;
    double now = MPI_Wtime();
    lasted.push_back(now - iteration_start);
    iteration_start = now;
  }
  double mean = (MPI_Wtime() - start) / o.iterations;
  MPI_Allreduce(MPI_IN_PLACE, &mean, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  mean /= peer.ranks;
  if (lasted.empty()) return {mean, mean};
  MPI_Allreduce(MPI_IN_PLACE, lasted.data(), static_cast<int>(lasted.size()), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  std::sort(lasted.begin(), lasted.end());
  return {mean, lasted[lasted.size() / 2]};
}

int PeerMain(int argc, char** argv) {
  YardstickTask task = ParseYardstick(argc, argv, "MPI's collectives. Start with mpirun.");
  MPI_Init(&argc, &argv);
  Peer peer{};
  MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &peer.ranks);
  std::vector<YardstickSize> sizes = SizesOf(task, peer.ranks);
  peer.send = Allocate(sizes.back().bytes);
  peer.recv = Allocate(sizes.back().bytes);
  float* out = nullptr;
  if (!task.options.views.shapes.empty()) {
    out = Allocate(sizes.back().bytes);
    PlanCopies(task.options.views, ElementBytes(task.options.type), reinterpret_cast<char*>(out), &peer);
  }
  std::unique_ptr<YardstickReport> report;
  if (peer.rank == 0) report = std::make_unique<YardstickReport>(task, peer.ranks, argc, argv);
  for (int cycle = 0; cycle < std::max(task.options.cycles, 1); ++cycle) {
    for (const YardstickSize& size : sizes) {
      int count = static_cast<int>(size.argument);
      for (int i = 0; i <= task.options.warmup; ++i) RunOnce(task.rule->name, peer, count);
      MPI_Barrier(MPI_COMM_WORLD);
      Time time = Measure(task, peer, count);
      if (report) report->Row(size, time.mean, time.median, peer.copies.empty() ? "" : CopyWayName(peer.way));
    }
  }
  report.reset();
  std::free(peer.send);
  std::free(peer.recv);
  std::free(out);
  MPI_Finalize();
  return kExitOk;
}

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::PeerMain(argc, argv); }
