// broadcast: every rank gets the data of the root.

#include "perf/common/collective.h"

namespace axccl::perf {
namespace {

std::vector<Segment> Expected(const Counts& counts, const Position& at) { return {{0, counts.recv, at.root, 0}}; }

ncclResult_t Run(const Call& c) { return ncclBroadcast(c.send, c.recv, c.count, c.type, c.at.root, c.comm, c.stream); }

ncclResult_t RunViews(const ViewCall& c) {
  return axcclBroadcast(c.count, c.in, c.out, c.root, c.channel, nullptr, c.stream);
}

const Collective kCollective = {
    .name = "broadcast",
    .reduces = false,
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
