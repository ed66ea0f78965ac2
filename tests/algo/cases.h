// Every contract and algorithm, for tests that visit all of them. Header only; no state.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
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

// Calls f(contract, algorithm) for every algorithm with multicast slots.
template <class F>
void ForEachMulticast(int ranks, F f) {
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<plan::Kind>(k);
    for (std::string_view algorithm : MulticastAlgorithms(kind)) f(plan::Contract{kind, ranks, 0}, algorithm);
  }
}

// Calls f(contract, algorithm, chunking) for every algorithm with slices of every kind, in every order, with input
// chunks that are awaited and without.
template <class F>
void ForEachChunked(int ranks, int slices, F f) {
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<plan::Kind>(k);
    if (kind == plan::Kind::kSendRecv && ranks != 2) continue;
    std::set<int> roots = {0};
    if (plan::HasRoot(kind)) roots.insert({ranks - 1, ranks / 2, ranks / 3});
    for (int root : roots) {
      for (std::string_view algorithm : ChunkedAlgorithms(kind)) {
        const auto known = ChunkOrders(kind, algorithm);
        std::vector<ChunkOrder> orders(known.begin(), known.end());
        if (orders.empty()) orders.push_back(ChunkOrder::kDefault);
        for (const ChunkOrder order : orders) {
          for (const bool produced : {false, true})
            f(plan::Contract{kind, ranks, root}, algorithm, Chunking{slices, produced, order});
        }
      }
    }
  }
}

// Whether ranks use each other's buffers, not slots.
inline bool UsesBuffers(std::string_view algorithm) {
  return algorithm == kDirect || algorithm == kPull || algorithm == kRingPull || algorithm == "push";
}

// The algorithm that replaces "direct" if ranks may only read each other's buffers.
inline std::string_view ReadingAlgorithm(plan::Kind kind) {
  const auto names = Algorithms(kind);
  return std::find(names.begin(), names.end(), kPull) != names.end() ? kPull : kDirect;
}

inline std::string Describe(const plan::Contract& c, std::string_view algorithm, int lanes) {
  return std::string(plan::KindName(c.kind)) + " " + std::string(algorithm) + " ranks " + std::to_string(c.ranks) +
         " root " + std::to_string(c.root) + " lanes " + std::to_string(lanes);
}

inline std::string Describe(const plan::Contract& c, std::string_view algorithm, const Chunking& chunking) {
  return Describe(c, algorithm, 1) + " of " + std::to_string(chunking.slices) + " slices, order " +
         ChunkOrderName(chunking.order) + (chunking.produced ? ", produced" : "");
}

// Machines of ranks, for tests of algorithms that depend on them: even, uneven, one rank per machine, and mixed order.
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
      {0, 0, 1, 2, 3},
      {0, 1, 2, 3, 4, 0},
      {0, 1, 2, 3, 0, 1, 2},
  };
  return kMachines;
}

// `machines` machines of so many ranks each, one after the other.
inline plan::Placement Even(int machines, int ranks_each) {
  std::vector<int> machine_of;
  for (int i = 0; i < machines * ranks_each; ++i) machine_of.push_back(i / ranks_each);
  return plan::Placement::Of(machine_of);
}

inline std::string Describe(const plan::Placement& placement) {
  std::string text = "machines";
  for (int r = 0; r < placement.ranks(); ++r) text += " " + std::to_string(placement.MachineOf(r));
  return text;
}

// Calls f(contract, algorithm) for every hierarchical algorithm of every kind, with `ranks` ranks and every root.
template <class F>
void ForEachHierarchical(int ranks, F f) {
  for (int k = 0; k < plan::kNumKinds; ++k) {
    const auto kind = static_cast<plan::Kind>(k);
    for (int root = 0; root < (plan::HasRoot(kind) ? ranks : 1); ++root) {
      for (std::string_view algorithm : HierarchicalAlgorithms(kind)) f(plan::Contract{kind, ranks, root}, algorithm);
    }
  }
}

// The number of signals in the longest chain from rank to rank in one turn; counts those for which `counts`(source,
// destination) is true.
template <class F>
int LongestChain(const plan::Schedule& s, F counts) {
  const int n = s.contract.ranks;
  std::vector<int> depth(n, 0);
  std::vector<size_t> next(n, 0);
  std::map<std::pair<int, int>, std::vector<int>> signalled;
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < n; ++r) {
      const auto& ops = s.program[r][0].ops;
      for (; next[r] < ops.size(); ++next[r], moved = true) {
        const plan::Op& op = ops[next[r]];
        if (op.kind == plan::OpKind::kSignal) signalled[{r, op.endpoint}].push_back(depth[r]);
        if (op.kind != plan::OpKind::kWait) continue;
        const auto& v = signalled[{op.peer, op.endpoint}];
        if (v.size() < op.value) break;
        depth[r] = std::max(depth[r], v[op.value - 1u] + (counts(op.peer, r) ? 1 : 0));
      }
    }
  }
  return *std::max_element(depth.begin(), depth.end());
}

}  // namespace axccl::algo
