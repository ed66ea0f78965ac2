// Pairwise: n - 1 steps; in step i rank r puts what rank r + i needs into that rank's scratch, and waits for rank r -
// i. Every byte crosses one link once, and at any time each rank sends to one rank and receives from one.
#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

// Step i uses slot and endpoint i - 1.
void Put(Builder* b, int r, int step) {
  const int to = b->Shift(r, step);
  b->Copy(r, {Slot(to, step - 1)}, In(r, to));
  b->Signal(r, to, step - 1);
}

void AllToAllByPairs(Builder* b, int r) {
  b->Copy(r, {Out(r, r)}, In(r, r));
  for (int step = 1; step < b->ranks(); ++step) {
    const int from = b->Shift(r, -step);
    Put(b, r, step);
    b->Wait(r, from, step - 1);
    b->Copy(r, {Out(r, from)}, Slot(r, step - 1));
  }
}

// Folds all contributions at once: one pass over the output instead of one per step.
void ReduceScatter(Builder* b, int r) {
  std::vector<Operand> contributions = {In(r, r)};
  for (int step = 1; step < b->ranks(); ++step) {
    Put(b, r, step);
    b->Wait(r, b->Shift(r, -step), step - 1);
    contributions.push_back(Slot(r, step - 1));
  }
  b->Reduce(r, {Out(r)}, contributions, State::kFinal);
}

}  // namespace

plan::Schedule Pairwise(const Contract& contract, int lanes, std::span<const int> only) {
  Builder b(contract, "pairwise", 1, only);
  for (const int r : b.programmed()) {
    if (contract.kind == Kind::kAllToAll) {
      AllToAllByPairs(&b, r);
    } else {
      ReduceScatter(&b, r);
    }
  }
  return b.Build(lanes);
}

}  // namespace axccl::algo
