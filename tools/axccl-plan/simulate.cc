#include "tools/axccl-plan/simulate.h"

#include <algorithm>

#include "src/base/format.h"
#include "src/sim/simulate.h"

namespace axccl::tools {
namespace {

const char* PluralOf(double count) { return count == 1 ? "" : "s"; }

std::string Describe(const sim::Request& q, const sim::Report& r) {
  const int machines = q.placement.machines();
  return Format("%s by %s: %llu bytes, %d rank%s on %d machine%s, %d lane%s, %llu turn%s\n",
                plan::KindName(q.contract.kind), q.algorithm.c_str(), static_cast<unsigned long long>(q.bytes),
                q.contract.ranks, PluralOf(q.contract.ranks), machines, PluralOf(machines), q.lanes, PluralOf(q.lanes),
                static_cast<unsigned long long>(r.turns), PluralOf(static_cast<double>(r.turns)));
}

std::string Describe(const sim::Report& r, int machines) {
  std::string text = Format("time           %.6g us\n", r.seconds * 1e6);
  if (r.bus_bytes_per_second > 0)
    text += Format("bus bandwidth  %.2f GB/s, %.1f %% of the link limit of %.2f GB/s\n", r.bus_bytes_per_second / 1e9,
                   100 * r.bus_bytes_per_second / r.limit_bytes_per_second, r.limit_bytes_per_second / 1e9);
  text += Format("busiest        %s, %.1f %% of the time\n", r.busiest.c_str(), 100 * r.busiest_share);
  if (machines > 1)
    text += Format("over NICs      %.0f bytes out of a machine, %.0f into one%s\n",
                   *std::max_element(r.sent.begin(), r.sent.end()),
                   *std::max_element(r.received.begin(), r.received.end()), r.sent.size() > 1 ? ", at most" : "");
  return text;
}

}  // namespace

Result<std::string> SimulationReport(const Options& o) {
  sim::Request q;
  q.contract = o.contract;
  q.algorithm = o.algorithm;
  q.lanes = o.lanes;
  q.placement = o.placement;
  q.bytes = o.bytes;
  q.tile_bytes = o.tile_bytes;
  q.fabric = o.fabric;
  AXCCL_ASSIGN_OR_RETURN(const sim::Report r, sim::Simulate(q));
  const bool one = r.ranks < q.contract.ranks;
  return Describe(q, r) + Describe(r, q.placement.machines()) +
         Format("simulated      %d rank%s%s, %llu operations, %llu messages\n", r.ranks, PluralOf(r.ranks),
                one ? " of one machine, which stands for all" : "", static_cast<unsigned long long>(r.operations),
                static_cast<unsigned long long>(r.messages));
}

}  // namespace axccl::tools
