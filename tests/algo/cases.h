// Every contract and algorithm there is, for tests that go through all of them. Header only; no state.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/algo/algo.h"
#include "src/plan/schedule.h"

namespace axccl::algo {

// Calls f(contract, algorithm) for every algorithm of every kind with `ranks` ranks, rooted kinds with a few roots.
template <class F>
void ForEachAlgorithm(int ranks, F f) {
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<plan::Kind>(k);
    if (kind == plan::Kind::kSendRecv && ranks != 2) continue;
    std::set<int> roots = {0};
    if (plan::HasRoot(kind)) roots.insert({ranks - 1, ranks / 2, ranks / 3});
    for (int root : roots) {
      for (std::string_view algorithm : Algorithms(kind)) f(plan::Contract{kind, ranks, root}, algorithm);
    }
  }
}

inline std::string Describe(const plan::Contract& c, std::string_view algorithm, int lanes) {
  return std::string(plan::KindName(c.kind)) + " " + std::string(algorithm) + " ranks " + std::to_string(c.ranks) +
         " root " + std::to_string(c.root) + " lanes " + std::to_string(lanes);
}

}  // namespace axccl::algo
