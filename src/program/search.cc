#include "src/program/search.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>

#include "src/base/run_together.h"

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

// A model whose calls between ranks several threads may ask for.
class SharedModel : public Model {
 public:
  explicit SharedModel(Model* model) : model_(*model) {}
  double LocalSeconds(const Operation& operation, const std::vector<const TensorType*>& operands) const override {
    return model_.LocalSeconds(operation, operands);
  }
  Result<double> Seconds(const Transfer& transfer) override {
    const std::lock_guard lock(mutex_);
    return model_.Seconds(transfer);
  }
  bool overlaps() const override { return model_.overlaps(); }
  bool send_waits() const override { return model_.send_waits(); }
  bool drops_donated() const override { return model_.drops_donated(); }

 private:
  std::mutex mutex_;
  Model& model_;
};

// Of candidates of which SpreadOverRanks makes the same.
bool HasSameSpread(const Parallelism& a, const Parallelism& b) {
  return std::tie(a.tensor, a.data, a.zero, a.recompute) == std::tie(b.tensor, b.data, b.zero, b.recompute);
}

Status Judge(const Result<Transformed>& spread, const SearchSpace& space, Model* model, Candidate* candidate) {
  const Result<Transformed> transformed =
      spread.ok() ? PutIntoStages(spread.value(), candidate->parallelism) : Result<Transformed>(spread.status());
  if (!transformed.ok()) {
    candidate->left_out = transformed.status().message();
    return Status();
  }
  AXCCL_ASSIGN_OR_RETURN(const Simulation simulation,
                         Simulate(transformed.value().program, model, {.most_bytes = space.memory_bytes}));
  for (const PartMemory& memory : simulation.parts)
    candidate->peak_bytes = std::max(candidate->peak_bytes, memory.peak);
  if (space.memory_bytes > 0 && candidate->peak_bytes > space.memory_bytes) {
    candidate->left_out = "too little memory";
    return Status();
  }
  candidate->seconds = simulation.seconds;
  const double all = simulation.seconds * static_cast<double>(simulation.ranks.size());
  for (const RankTimes& times : simulation.ranks) {
    candidate->exposed += times.exposed / all;
    candidate->idle += std::max(0.0, simulation.seconds - times.compute - times.exposed) / all;
  }
  return Status();
}

// Of candidates with the same spread.
Status JudgeSame(const Program& program, const SearchSpace& space, Model* model, std::span<Candidate> candidates) {
  const Result<Transformed> spread = SpreadOverRanks(program, candidates[0].parallelism);
  for (Candidate& candidate : candidates) AXCCL_RETURN_IF_ERROR(Judge(spread, space, model, &candidate));
  return Status();
}

// Each thread takes the next of those with the same spread that none has taken.
Status JudgeAll(const Program& program, const SearchSpace& space, Model* model, std::vector<Candidate>* candidates) {
  std::vector<size_t> begin;  // of candidates with the same spread
  for (size_t i = 0; i < candidates->size(); ++i) {
    if (i == 0 || !HasSameSpread((*candidates)[i].parallelism, (*candidates)[i - 1].parallelism)) begin.push_back(i);
  }
  begin.push_back(candidates->size());
  SharedModel shared(model);
  std::vector<Status> errors(begin.size() - 1);
  std::atomic<size_t> next = 0;
  const size_t threads = std::max(size_t{1}, std::min(space.threads, begin.size() - 1));
  AXCCL_RETURN_IF_ERROR(RunTogether("search", threads, [&](size_t) {
    for (size_t run = next++; run + 1 < begin.size(); run = next++) {
      const std::span same(candidates->data() + begin[run], begin[run + 1] - begin[run]);
      errors[run] = CatchAll("search", [&] { return JudgeSame(program, space, &shared, same); });
    }
  }));
  for (const Status& error : errors) AXCCL_RETURN_IF_ERROR(error);
  return Status();
}

}  // namespace

Result<std::vector<Candidate>> Search(const Program& program, const SearchSpace& space, Model* model) {
  if (space.devices < 1 || space.devices > kMaxRanks)
    return MakeStatus(Code::kInvalidArgument, "search: %lld devices, must be 1 to %d",
                      static_cast<long long>(space.devices), kMaxRanks);
  AXCCL_RETURN_IF_ERROR(Untransformed(program).status());
  std::vector<Candidate> candidates;
  for (const Parallelism& parallelism : AllOf(space)) candidates.push_back({parallelism});
  AXCCL_RETURN_IF_ERROR(JudgeAll(program, space, model, &candidates));
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    const Verdict of_a = VerdictOf(a), of_b = VerdictOf(b);
    if (of_a != of_b) return of_a < of_b;
    return of_a == Verdict::kUsable ? a.seconds < b.seconds : a.peak_bytes < b.peak_bytes;
  });
  return candidates;
}

}  // namespace axccl::program
