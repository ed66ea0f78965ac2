#include "tests/collectives/cases.h"

#include <algorithm>

namespace axccl::tests {

using harness::Call;
using harness::Case;
using harness::Fold;

bool Judgeable(ncclDataType_t type, Fold fold, int nranks) {
  if (fold >= Fold::kAnd) return !harness::IsFloatType(type);
  return fold != Fold::kAvg || nranks <= 8 || (harness::IsFloatType(type) ? harness::TypeBytes(type) >= 4 : true);
}

std::vector<Case> AllCases(int nranks, const std::vector<size_t>& counts, uint64_t seed) {
  std::vector<Case> cases;
  for (int call = 0; call < harness::kNumCalls; ++call) {
    const int folds = harness::Folds(static_cast<Call>(call)) ? harness::kNumFolds : 1;
    for (int fold = 0; fold < folds; ++fold) {
      for (const ncclDataType_t type : harness::kAllTypes) {
        if (!Judgeable(type, static_cast<Fold>(fold), nranks)) continue;
        for (const size_t count : counts) {
          Case c{static_cast<Call>(call), type, static_cast<Fold>(fold), count, 0, 0};
          c.seed = harness::Scramble(seed, cases.size());
          c.root = harness::HasRoot(c.call) ? static_cast<int>(cases.size() % static_cast<size_t>(nranks)) : 0;
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

Case RandomCase(harness::Random* random, int nranks, size_t max_bytes) {
  Case c;
  c.seed = random->Next();
  c.call = static_cast<Call>(random->Below(harness::kNumCalls));
  c.type = random->Pick(harness::kAllTypes);
  do {
    c.fold = static_cast<Fold>(random->Below(harness::kNumFolds));
  } while (!Judgeable(c.type, c.fold, nranks));
  c.root = harness::HasRoot(c.call) ? static_cast<int>(random->Below(static_cast<uint64_t>(nranks))) : 0;
  // Sizes are spread over magnitudes: most bugs are near thresholds, which differ by powers of two.
  size_t bound = 1;
  while (bound < max_bytes && !random->OneIn(8)) bound *= 2;
  bound = std::min(bound, max_bytes);
  c.count = random->Below(std::max<size_t>(2, bound / harness::TypeBytes(c.type) + 1));
  return c;
}

}  // namespace axccl::tests
