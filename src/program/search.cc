#include "src/program/search.h"

#include <algorithm>
#include <utility>

namespace axccl::program {
namespace {

std::vector<int64_t> DivisorsOf(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  return divisors;
}

std::vector<Parallelism> AllOf(const SearchSpace& space) {
  std::vector<Parallelism> all;
  for (const int64_t tensor : DivisorsOf(space.devices)) {
    for (const int64_t stages : DivisorsOf(space.devices / tensor)) {
      const int64_t data = space.devices / tensor / stages;
      for (const int zero : data > 1 ? space.zero : std::vector<int>{0}) {
        for (const int64_t recompute : space.recompute) {
          for (const int64_t microbatches : stages > 1 ? space.microbatches : std::vector<int64_t>{1}) {
            all.push_back({tensor, data, zero, recompute, stages, microbatches, space.order, space.bucket_bytes});
          }
        }
      }
    }
  }
  return all;
}

// What keeps a candidate from being used; the order in which they are listed.
enum class Verdict : int { kUsable, kTooLarge, kImpossible };
Verdict VerdictOf(const Candidate& candidate) {
  if (candidate.left_out.empty()) return Verdict::kUsable;
  return candidate.peak_bytes > 0 ? Verdict::kTooLarge : Verdict::kImpossible;
}

Status Judge(const Program& program, const SearchSpace& space, Model* model, Candidate* candidate) {
  const Result<Transformed> transformed = Parallelize(program, candidate->parallelism);
  if (!transformed.ok()) {
    candidate->left_out = transformed.status().message();
    return Status();
  }
  AXCCL_ASSIGN_OR_RETURN(const Simulation simulation, Simulate(transformed.value().program, model));
  candidate->seconds = simulation.seconds;
  for (const PartMemory& memory : simulation.parts)
    candidate->peak_bytes = std::max(candidate->peak_bytes, memory.peak);
  const double all = simulation.seconds * static_cast<double>(simulation.ranks.size());
  for (const RankTimes& times : simulation.ranks) {
    candidate->exposed += times.exposed / all;
    candidate->idle += (simulation.seconds - times.compute - times.exposed) / all;
  }
  if (space.memory_bytes > 0 && candidate->peak_bytes > space.memory_bytes) candidate->left_out = "too little memory";
  return Status();
}

}  // namespace

Result<std::vector<Candidate>> Search(const Program& program, const SearchSpace& space, Model* model) {
  if (space.devices < 1 || space.devices > kMaxRanks)
    return MakeStatus(Code::kInvalidArgument, "search: %lld devices, must be 1 to %d",
                      static_cast<long long>(space.devices), kMaxRanks);
  AXCCL_RETURN_IF_ERROR(Untransformed(program).status());
  std::vector<Candidate> candidates;
  for (const Parallelism& parallelism : AllOf(space)) {
    candidates.push_back({parallelism});
    AXCCL_RETURN_IF_ERROR(Judge(program, space, model, &candidates.back()));
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    const Verdict of_a = VerdictOf(a), of_b = VerdictOf(b);
    return of_a != of_b ? of_a < of_b : a.seconds < b.seconds;
  });
  return candidates;
}

}  // namespace axccl::program
