// alltoall: part j of rank i becomes part i of rank j.

#include "perf/common/collective.h"

namespace axccl::perf {
namespace {

Counts CountsOf(size_t elements, size_t element_bytes, int ranks) {
  size_t part = PartCount(elements, element_bytes, ranks);
  size_t all = part * static_cast<size_t>(ranks);
  return {all, all, part, 0, 0};
}

std::vector<Segment> Expected(const Counts& counts, const Position& at) {
  std::vector<Segment> segments = AllParts(counts);
  for (Segment& segment : segments) segment.source_first = static_cast<size_t>(at.rank) * counts.argument;
  return segments;
}

ncclResult_t Run(const Call& c) { return ncclAlltoAll(c.send, c.recv, c.count, c.type, c.comm, c.stream); }

ncclResult_t RunViews(const ViewCall& c) {
  return axcclAllToAll(c.count, c.in, c.out, c.split_dim, c.concat_dim, c.channel, nullptr, c.stream);
}

const Collective kCollective = {
    .name = "alltoall",
    .reduces = false,
    .rooted = false,
    .no_op_name = "none",
    .in_place = false,
    .steps = OneStep,
    .counts = CountsOf,
    .bytes = PartBytes,
    .bus_factor = FactorPart,
    .expected = Expected,
    .run = Run,
    .refuses = AnyRanks,
    .views = {ViewKind::kSplitConcat, RunViews},
};

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::PerfMain(axccl::perf::kCollective, argc, argv); }
