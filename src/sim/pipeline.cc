#include "src/sim/pipeline.h"

#include <algorithm>

#include "src/algo/algo.h"

namespace axccl::sim {
namespace {

// The fastest plan without slices.
Status SimulateBulk(const Request& q, Pipeline* p) {
  Request plain = q;
  plain.lanes = 1;
  plain.slices = 0;
  plain.tile_bytes = 0;
  Status failed;
  for (const std::string_view algorithm : algo::Algorithms(q.contract.kind)) {
    plain.algorithm = algorithm;
    const Result<Report> simulated = Simulate(plain);
    if (!simulated.ok()) {
      failed = simulated.status();
    } else if (p->bulk_algorithm.empty() || simulated.value().seconds < p->bulk_seconds) {
      p->bulk_seconds = simulated.value().seconds;
      p->bulk_algorithm = algorithm;
    }
  }
  return p->bulk_algorithm.empty() ? failed : Status();
}

}  // namespace

Result<Pipeline> SimulatePipeline(const Request& q) {
  Pipeline p;
  AXCCL_ASSIGN_OR_RETURN(p.whole, Simulate(q));
  Request silent = q;
  silent.caller = Caller();
  AXCCL_ASSIGN_OR_RETURN(p.communication, Simulate(silent));
  AXCCL_RETURN_IF_ERROR(SimulateBulk(q, &p));
  double most_produced = 0, most_consumed = 0;
  for (int r = 0; r < q.contract.ranks; ++r) {
    const int inputs = q.produced ? plan::InputBlocks(q.contract, r) * q.slices : 0;
    const double produced = inputs * q.caller.produce_seconds;
    const double consumed = plan::OutputBlocks(q.contract, r) * q.slices * q.caller.consume_seconds;
    most_produced = std::max(most_produced, produced);
    most_consumed = std::max(most_consumed, consumed);
    p.compute_seconds = std::max(p.compute_seconds, produced + consumed);
  }
  p.bulk_seconds += most_produced + most_consumed;
  if (p.whole.seconds > 0) p.overlap = std::max(p.compute_seconds, p.communication.seconds) / p.whole.seconds;
  return p;
}

}  // namespace axccl::sim
