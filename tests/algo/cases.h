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

// Machines of ranks, for tests of what minds them: even, uneven, one rank on a machine, and ranks that lie mixed.
inline const std::vector<std::vector<int>>& SomeMachines() {
  static const std::vector<std::vector<int>> kMachines = {
      {0, 0, 1},
      {0, 1, 0, 1},
      {0, 0, 1, 1},
      {0, 1, 1, 1},
      {0, 0, 1, 1, 2},
      {0, 0, 1, 1, 1, 2},
      {0, 1, 2, 2, 1, 0},
      {0, 0, 1, 1, 2, 2},
      {0, 0, 0, 0, 1, 1, 1, 1},
      {0, 1, 1, 0, 1, 0, 2},
  };
  return kMachines;
}

inline std::string Describe(const plan::Placement& placement) {
  std::string text = "machines";
  for (int r = 0; r < placement.ranks(); ++r) text += " " + std::to_string(placement.MachineOf(r));
  return text;
}

// Calls f(contract) for every kind there is a hierarchical schedule of, with `ranks` ranks and every root.
template <class F>
void ForEachHierarchical(int ranks, F f) {
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<plan::Kind>(k);
    if (kind == plan::Kind::kSendRecv) continue;
    for (int root = 0; root < (plan::HasRoot(kind) ? ranks : 1); ++root) f(plan::Contract{kind, ranks, root});
  }
}

}  // namespace axccl::algo
