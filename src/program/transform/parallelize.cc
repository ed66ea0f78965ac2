#include <utility>

#include "src/program/transform.h"

namespace axccl::program {

Result<Transformed> SpreadOverRanks(const Program& program, const Parallelism& p) {
  AXCCL_ASSIGN_OR_RETURN(Transformed t, Untransformed(program));
  if (p.local == LocalLoss::kStages && p.stages < 2)
    return MakeStatus(
        Code::kInvalidArgument,
        "transform local-layer: a loss for each stage, but %lld stages; give a pipeline of at least 2, or "
        "each layer a loss",
        static_cast<long long>(p.stages));
  if (p.local != LocalLoss::kNone) {
    AXCCL_ASSIGN_OR_RETURN(t, LocalLosses(t, p.local == LocalLoss::kStages ? p.stages : 0));
  }
  AXCCL_ASSIGN_OR_RETURN(t, SplitTensors(t, p.tensor));
  if (p.recompute != 0) {
    AXCCL_ASSIGN_OR_RETURN(t, Recompute(t, p.recompute));
  }
  return SplitBatch(t, p.data, p.zero);
}

Result<Transformed> PutIntoStages(const Transformed& before, const Parallelism& p) {
  AXCCL_ASSIGN_OR_RETURN(Transformed t, Pipeline(before, p.stages, p.microbatches, p.order));
  if (p.bucket_bytes < 0) return t;
  return Overlap(std::move(t), p.bucket_bytes);
}

Result<Transformed> Parallelize(const Program& program, const Parallelism& p) {
  AXCCL_ASSIGN_OR_RETURN(const Transformed spread, SpreadOverRanks(program, p));
  return PutIntoStages(spread, p);
}

}  // namespace axccl::program
