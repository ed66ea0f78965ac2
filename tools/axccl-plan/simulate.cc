#include "tools/axccl-plan/simulate.h"

#include <algorithm>

#include "src/base/format.h"
#include "src/base/json.h"
#include "src/sim/pipeline.h"
#include "src/sim/simulate.h"

namespace axccl::tools {
namespace {

const char* PluralOf(double count) { return count == 1 ? "" : "s"; }

std::string DescribeRequest(const sim::Request& q, const sim::Report& r) {
  const int machines = q.placement.machines();
  std::string text =
      Format("%s by %s: %llu bytes, %d rank%s on %d machine%s, %d lane%s, %llu turn%s", plan::KindName(q.contract.kind),
             q.algorithm.c_str(), static_cast<unsigned long long>(q.bytes), q.contract.ranks,
             PluralOf(q.contract.ranks), machines, PluralOf(machines), r.lanes, PluralOf(r.lanes),
             static_cast<unsigned long long>(r.turns), PluralOf(static_cast<double>(r.turns)));
  if (q.slices != 0) text += Format(", %d slice%s", q.slices, PluralOf(q.slices));
  return text + (q.in_place ? ", in place\n" : "\n");
}

std::string DescribeBandwidth(const sim::Report& r) {
  // A single rank uses no link.
  if (r.bus_bytes_per_second == 0 || r.limit_bytes_per_second == 0) return "";
  return Format("bus bandwidth  %.2f GB/s, %.1f %% of the link limit of %.2f GB/s\n", r.bus_bytes_per_second / 1e9,
                100 * r.bus_bytes_per_second / r.limit_bytes_per_second, r.limit_bytes_per_second / 1e9);
}

std::string DescribeUse(const sim::Report& r, const sim::Request& q) {
  std::string text = Format("busiest        %s, %.1f %% of the time\n", r.busiest.c_str(), 100 * r.busiest_share);
  if (q.placement.machines() > 1)
    text += Format("over NICs      %.0f bytes out of a machine, %.0f into one%s\n",
                   *std::max_element(r.sent.begin(), r.sent.end()),
                   *std::max_element(r.received.begin(), r.received.end()), r.sent.size() > 1 ? ", at most" : "");
  const bool one = r.ranks < q.contract.ranks;
  return text + Format("simulated      %d rank%s%s, %llu operations, %llu messages\n", r.ranks, PluralOf(r.ranks),
                       one ? " of one machine, which stands for all" : "",
                       static_cast<unsigned long long>(r.operations), static_cast<unsigned long long>(r.messages));
}

std::string DescribePipeline(const sim::Pipeline& p) {
  return Format("time           %.6g us\n", p.whole.seconds * 1e6) +
         Format("communication  %.6g us alone\n", p.communication.seconds * 1e6) + DescribeBandwidth(p.communication) +
         Format("computation    %.6g us alone\n", p.compute_seconds * 1e6) +
         Format("overlap        %.1f %%\n", 100 * p.overlap) +
         Format("bulk           %.6g us, by %s\n", p.bulk_seconds * 1e6, p.bulk_algorithm.c_str());
}

void WriteReport(const sim::Report& r, JsonWriter* json) {
  json->Key("time_us").Double(r.seconds * 1e6);
  json->Key("bus_bytes_per_second").Double(r.bus_bytes_per_second);
  json->Key("limit_bytes_per_second").Double(r.limit_bytes_per_second);
  json->Key("busiest").String(r.busiest);
  json->Key("busiest_share").Double(r.busiest_share);
}

// `p`: of a request with slices, else nullptr.
std::string AsJson(const sim::Request& q, const sim::Report& r, const sim::Pipeline* p) {
  return JsonText([&](JsonWriter* json) {
    json->BeginObject();
    json->Key("collective").String(plan::KindName(q.contract.kind));
    json->Key("algorithm").String(q.algorithm);
    json->Key("bytes").Int(static_cast<int64_t>(q.bytes));
    json->Key("ranks").Int(q.contract.ranks);
    json->Key("machines").Int(q.placement.machines());
    json->Key("lanes").Int(r.lanes);
    json->Key("turns").Int(static_cast<int64_t>(r.turns));
    json->Key("slices").Int(q.slices);
    json->Key("in_place").Bool(q.in_place);
    WriteReport(r, json);
    json->Key("simulated_ranks").Int(r.ranks);
    json->Key("operations").Int(static_cast<int64_t>(r.operations));
    json->Key("messages").Int(static_cast<int64_t>(r.messages));
    if (p == nullptr) return;
    json->Key("communication").BeginObject();
    WriteReport(p->communication, json);
    json->EndObject();
    json->Key("computation_us").Double(p->compute_seconds * 1e6);
    json->Key("overlap").Double(p->overlap);
    json->Key("bulk_us").Double(p->bulk_seconds * 1e6);
    json->Key("bulk_algorithm").String(p->bulk_algorithm);
  });
}

}  // namespace

Result<std::string> SimulationReport(const Options& o) {
  sim::Request q;
  q.contract = o.contract;
  q.algorithm = o.algorithm;
  q.lanes = o.lanes;
  if (o.chunked) q.slices = o.chunking.slices;
  q.produced = o.chunking.produced;
  q.order = o.chunking.order;
  q.in_place = o.in_place;
  q.placement = o.placement;
  q.bytes = o.bytes;
  q.tile_bytes = o.tile_bytes;
  q.fabric = o.fabric;
  q.caller = o.caller;
  if (q.slices != 0) {
    AXCCL_ASSIGN_OR_RETURN(const sim::Pipeline p, sim::SimulatePipeline(q));
    if (o.json) return AsJson(q, p.whole, &p);
    return DescribeRequest(q, p.whole) + DescribePipeline(p) + DescribeUse(p.whole, q);
  }
  AXCCL_ASSIGN_OR_RETURN(const sim::Report r, sim::Simulate(q));
  if (o.json) return AsJson(q, r, nullptr);
  return DescribeRequest(q, r) + Format("time           %.6g us\n", r.seconds * 1e6) + DescribeBandwidth(r) +
         DescribeUse(r, q);
}

}  // namespace axccl::tools
