// gather: the root gets the parts of all ranks in rank order.

#include "perf/common/collective.h"

namespace axccl::perf {
namespace {

Counts CountsOf(size_t elements, size_t element_bytes, int ranks) {
  size_t part = PartCount(elements, element_bytes, ranks);
  return {part, part * static_cast<size_t>(ranks), part, part, 0};
}

std::vector<Segment> Expected(const Counts& counts, const Position& at) {
  return at.rank == at.root ? AllParts(counts) : std::vector<Segment>();
}

ncclResult_t Run(const Call& c) { return ncclGather(c.send, c.recv, c.count, c.type, c.at.root, c.comm, c.stream); }

ncclResult_t RunViews(const ViewCall& c) {
  return axcclGather(c.count, c.in, c.out, c.concat_dim, c.root, c.channel, nullptr, c.stream);
}

const Collective kCollective = {
    .name = "gather",
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
    .views = {ViewKind::kConcat, RunViews},
};

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::PerfMain(axccl::perf::kCollective, argc, argv); }
