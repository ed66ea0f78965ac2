// all_reduce: every rank gets the reduction of all inputs. busbw = 2 (n - 1) / n * algbw.

#include "perf/common/collective.h"
#include "perf/common/data.h"

namespace axccl::perf {
namespace {

std::vector<Segment> Expected(const Counts& counts, const Position&) { return {{0, counts.recv, kReduced, 0}}; }

ncclResult_t Run(const Call& c) { return ncclAllReduce(c.send, c.recv, c.count, c.type, c.op, c.comm, c.stream); }

ncclResult_t RunViews(const ViewCall& c) {
  return axcclAllReduce(c.count, c.in, c.out, c.op, c.channel, nullptr, c.stream);
}

const Collective kCollective = {
    .name = "all_reduce",
    .reduces = true,
    .rooted = false,
    .no_op_name = "none",
    .in_place = true,
    .steps = OneStep,
    .counts = WholeCounts,
    .bytes = WholeBytes,
    .bus_factor = FactorAllReduce,
    .expected = Expected,
    .run = Run,
    .refuses = AnyRanks,
    .views = {ViewKind::kSame, RunViews},
};

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::PerfMain(axccl::perf::kCollective, argc, argv); }
