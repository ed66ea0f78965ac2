// hypercube: all_gather by recursive doubling over send and receive; ranks must be a power of two.

#include "axccl/axccl.h"
#include "perf/common/collective.h"

namespace axccl::perf {
namespace {

// Step 0 copies the rank's own part; step k exchanges 2^(k-1) parts with the rank that differs in bit k-1.
int Steps(int ranks) {
  int steps = 1;
  for (int mask = 1; mask < ranks; mask <<= 1) ++steps;
  return steps;
}

Counts CountsOf(size_t elements, size_t element_bytes, int ranks) {
  size_t part = PartCount(elements, element_bytes, ranks);
  return {part, part * static_cast<size_t>(ranks), part, part, 0};
}

std::vector<Segment> Expected(const Counts& counts, const Position&) { return AllParts(counts); }

double Bytes(size_t argument, size_t element_bytes, int ranks) {
  return WholeBytes(argument, element_bytes, ranks) * (ranks - 1);
}

ncclResult_t Run(const Call& c) {
  size_t part = c.count * c.element_bytes;
  if (c.step == 0) {
    char* own = c.recv + static_cast<size_t>(c.at.rank) * part;
    if (own == c.send || part == 0) return ncclSuccess;
    return axcclMemcpyAsync(own, c.send, part, axcclStreamFromCuda(c.stream));
  }
  int mask = 1 << (c.step - 1);
  int mine = c.at.rank & ~(mask - 1);
  int peer = c.at.rank ^ mask;
  return SendAndReceive(c, c.recv + static_cast<size_t>(mine) * part, peer,
                        c.recv + static_cast<size_t>(mine ^ mask) * part, peer, c.count * static_cast<size_t>(mask));
}

std::string Refuses(int ranks) {
  return (ranks & (ranks - 1)) == 0 ? "" : std::to_string(ranks) + " ranks are not a power of two";
}

const Collective kCollective = {
    .name = "hypercube",
    .reduces = false,
    .rooted = false,
    .no_op_name = "none",
    .in_place = true,
    .steps = Steps,
    .counts = CountsOf,
    .bytes = Bytes,
    .bus_factor = FactorOne,
    .expected = Expected,
    .run = Run,
    .refuses = Refuses,
};

}  // namespace
}  // namespace axccl::perf

int main(int argc, char** argv) { return axccl::perf::PerfMain(axccl::perf::kCollective, argc, argv); }
