// scatter: rank r gets part r of the data of the root.

#include "perf/common/collective.h"

namespace axccl::perf {
namespace {

Counts CountsOf(size_t elements, size_t element_bytes, int ranks) {
  size_t part = PartCount(elements, element_bytes, ranks);
  return {part * static_cast<size_t>(ranks), part, part, 0, part};
}

std::vector<Segment> Expected(const Counts& counts, const Position& at) {
  return {{0, counts.recv, at.root, static_cast<size_t>(at.rank) * counts.recv}};
}

ncclResult_t Run(const Call& c) { return ncclScatter(c.send, c.recv, c.count, c.type, c.at.root, c.comm, c.stream); }

ncclResult_t RunViews(const ViewCall& c) {
  return axcclScatter(c.count, c.in, c.out, c.split_dim, c.root, c.channel, nullptr, c.stream);
}

const Collective kCollective = {
    .name = "scatter",
    .reduces = false,
    .rooted = true,
    .no_op_name = "none",
    .in_place = true,
    .steps = OneStep,
    .counts = CountsOf,
    .bytes = PartBytes,
    .bus_factor = FactorPart,
    .expected = Expected,
    .run = Run,
    .refuses = AnyRanks,
    .views = {ViewKind::kSplit, RunViews},
};

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::PerfMain(axccl::perf::kCollective, argc, argv); }
