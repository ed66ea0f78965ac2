// Two-shot: as one-shot, but every rank reduces only one part of the data and publishes the result for the others. Each
// input byte is then reduced once in the whole group instead of once per rank, for one more hop.
//
// There are as many parts as ranks, and rank r owns part r. Slot p of a rank holds its contribution to part p, slot r
// of rank r the result. The first exchange is between all ranks, which makes the plan complete.
#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

constexpr int kContributions = 0;  // endpoint; in the all-reduce, its second signal publishes the result
constexpr int kResult = 1;         // endpoint: publishes the result for the root of a reduce

// Publishes the parts that other ranks own and waits until they have done the same.
void ExchangeContributions(Builder* b, int r) {
  const int n = b->ranks();
  if (r > 0) b->Copy(r, {Slot(r, 0, r)}, In(r, 0, 0, r));
  if (r + 1 < n) b->Copy(r, {Slot(r, r + 1, n - r - 1)}, In(r, 0, r + 1, n - r - 1));
  b->Signal(r, plan::kAllPeers, kContributions);
  b->WaitAll(r, kContributions);
}

// The contributions to part r, in ascending order of rank.
std::vector<Operand> Contributions(const Builder& b, int r) {
  std::vector<Operand> src;
  for (int q = 0; q < b.ranks(); ++q) src.push_back(q == r ? In(r, 0, r) : Slot(q, r));
  return src;
}

void AllReduceInTwoSteps(Builder* b) {
  for (const int r : b->programmed()) {
    ExchangeContributions(b, r);
    b->Reduce(r, {Slot(r, r), Out(r, 0, r)}, Contributions(*b, r), State::kFinal);
    b->Signal(r, plan::kAllPeers, kContributions);
    for (int step = 1; step < b->ranks(); ++step) {
      const int q = b->Shift(r, step);
      b->Wait(r, q, kContributions, 2);
      b->Copy(r, {Out(r, 0, q)}, Slot(q, q));
    }
  }
}

void ReduceInTwoSteps(Builder* b, int root) {
  for (const int r : b->programmed()) {
    ExchangeContributions(b, r);
    const Operand result = r == root ? Out(root, 0, root) : Slot(r, r);
    b->Reduce(r, {result}, Contributions(*b, r), State::kFinal);
    if (r != root) {
      b->Signal(r, root, kResult);
      continue;
    }
    for (int step = 1; step < b->ranks(); ++step) {
      const int q = b->Shift(root, step);
      b->Wait(root, q, kResult);
      b->Copy(root, {Out(root, 0, q)}, Slot(q, q));
    }
  }
}

}  // namespace

plan::Schedule Twoshot(const Contract& contract, int lanes, std::span<const int> only) {
  Builder b(contract, "twoshot", contract.ranks, only);
  if (contract.kind == Kind::kAllReduce) {
    AllReduceInTwoSteps(&b);
  } else {
    ReduceInTwoSteps(&b, contract.root);
  }
  return b.Build(lanes);
}

}  // namespace axccl::algo
