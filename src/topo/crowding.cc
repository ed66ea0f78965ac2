#include "src/topo/crowding.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace axccl::topo {
namespace {

constexpr int kWords = ProcessorSet::kPlaces / 64;

int CountShared(const ProcessorSet& a, const ProcessorSet& b) {
  int count = 0;
  for (int word = 0; word < kWords; ++word) count += std::popcount(a.bits[word] & b.bits[word]);
  return count;
}

}  // namespace

int ProcessorSet::Count() const { return CountShared(*this, *this); }

ProcessorSet SetOf(const std::vector<int>& processors) {
  ProcessorSet set;
  for (const int processor : processors) {
    const auto place = static_cast<unsigned>(processor) % ProcessorSet::kPlaces;
    set.bits[place / 64] |= uint64_t{1} << place % 64;
  }
  return set;
}

int CountTogether(std::span<const ProcessorSet> ranks) {
  ProcessorSet all;
  for (const ProcessorSet& rank : ranks)
    for (int word = 0; word < kWords; ++word) all.bits[word] |= rank.bits[word];
  return std::max(1, all.Count());
}

int Crowding(std::span<const ProcessorSet> ranks, size_t self) {
  double served = 0;  // by the processors of `self`
  for (const ProcessorSet& rank : ranks) {
    const int shared = CountShared(ranks[self], rank);
    if (shared != 0) served += static_cast<double>(shared) / rank.Count();
  }
  const int own = ranks[self].Count();
  // Less than any share of a processor, and more than the error of the sum.
  constexpr double kRounding = 1e-6;
  return own == 0 ? 1 : std::max(1, static_cast<int>(std::ceil(served / own - kRounding)));
}

}  // namespace axccl::topo
