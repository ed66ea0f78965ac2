// sendrecv: every rank sends to the next rank and receives from the one before.

#include "perf/common/collective.h"

namespace axccl::perf {
namespace {

int Before(const Position& at) { return (at.rank + at.ranks - 1) % at.ranks; }

std::vector<Segment> Expected(const Counts& counts, const Position& at) { return {{0, counts.recv, Before(at), 0}}; }

ncclResult_t Run(const Call& c) {
  return SendAndReceive(c, c.send, (c.at.rank + 1) % c.at.ranks, c.recv, Before(c.at), c.count);
}

const Collective kCollective = {
    .name = "sendrecv",
    .reduces = false,
    .rooted = false,
    .no_op_name = "sum",
    .in_place = false,
    .steps = OneStep,
    .counts = WholeCounts,
    .bytes = WholeBytes,
    .bus_factor = FactorOne,
    .expected = Expected,
    .run = Run,
    .refuses = AnyRanks,
};

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::PerfMain(axccl::perf::kCollective, argc, argv); }
