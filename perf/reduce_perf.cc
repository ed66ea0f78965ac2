// reduce: the root gets the reduction of all inputs.

#include "perf/common/collective.h"
#include "perf/common/data.h"

namespace axccl::perf {
namespace {

std::vector<Segment> Expected(const Counts& counts, const Position& at) {
  if (at.rank != at.root) return {};
  return {{0, counts.recv, kReduced, 0}};
}

ncclResult_t Run(const Call& c) {
  return ncclReduce(c.send, c.recv, c.count, c.type, c.op, c.at.root, c.comm, c.stream);
}

ncclResult_t RunViews(const ViewCall& c) {
  return axcclReduce(c.count, c.in, c.out, c.op, c.root, c.channel, nullptr, c.stream);
}

const Collective kCollective = {
    .name = "reduce",
    .reduces = true,
    .rooted = true,
    .no_op_name = "none",
    .in_place = true,
    .steps = OneStep,
    .counts = WholeCounts,
    .bytes = WholeBytes,
    .bus_factor = FactorOne,
    .expected = Expected,
    .run = Run,
    .refuses = AnyRanks,
    .views = {ViewKind::kSame, RunViews},
};

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::PerfMain(axccl::perf::kCollective, argc, argv); }
