// Ring: every rank sends to the next rank only, by putting data into that rank's scratch. Each rank sends the least
// that any algorithm can, and needs no other links; in exchange, there is one step for each rank.
//
// Each of n consecutive steps has its own slot at the receiver. The all-reduce has more steps, and uses the slots
// again: a rank that has heard of a step has heard, all the way round, that the next rank did the step n - 2 before it,
// which read the slot that this rank writes now. So no rank gives credits within a turn. All-reduce, all-gather and
// reduce-scatter go all the way round, which makes them complete. Broadcast and reduce are chains that begin or end at
// the root. In these, consecutive turns form the pipeline, and Build() adds the credits that let a rank run one turn
// ahead.
#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

// A chunk is a part of the block in the all-reduce, a block in the other kinds.
Operand InputChunk(Kind kind, int rank, int chunk) {
  return kind == Kind::kAllReduce ? In(rank, 0, chunk) : In(rank, chunk);
}

// After these n - 1 steps, rank r holds the fold of chunk r in `result`. The contribution to chunk c starts at rank c +
// 1 and collects the others' on its way to rank c. Takes n - 1 slots and as many signals.
void ReduceScatterSteps(Builder* b, Kind kind, int r, std::vector<Operand> result) {
  const int n = b->ranks();
  const int next = b->Shift(r, 1);
  b->Copy(r, {Slot(next, 0)}, InputChunk(kind, r, b->Shift(r, -1)));
  b->Signal(r, next);
  for (int step = 1; step < n; ++step) {
    const Operand own = InputChunk(kind, r, b->Shift(r, -1 - step));
    b->Wait(r, b->Shift(r, -1), 0, step);
    if (step == n - 1) {
      b->Reduce(r, result, {Slot(r, step - 1), own}, State::kFinal);
    } else {
      b->Reduce(r, {Slot(next, step)}, {Slot(r, step - 1), own});
      b->Signal(r, next);
    }
  }
}

void RingAllReduce(Builder* b) {
  const int n = b->ranks();
  for (const int r : b->programmed()) {
    const int next = b->Shift(r, 1);
    const int first = n - 1;  // the step in which the first finished chunk comes round
    const auto slot = [n](int rank, int step) { return Slot(rank, step % n); };
    ReduceScatterSteps(b, Kind::kAllReduce, r, {slot(next, first), Out(r, 0, r)});
    b->Signal(r, next);
    for (int step = 1; step < n; ++step) {
      std::vector<Operand> dst = {Out(r, 0, b->Shift(r, -step))};
      if (step + 1 < n) dst.push_back(slot(next, first + step));
      b->Wait(r, b->Shift(r, -1), 0, first + step);
      b->Copy(r, dst, slot(r, first + step - 1));
      if (step + 1 < n) b->Signal(r, next);
    }
  }
}

void RingAllGather(Builder* b) {
  const int n = b->ranks();
  for (const int r : b->programmed()) {
    const int next = b->Shift(r, 1);
    b->Copy(r, {Slot(next, 0)}, In(r));
    b->Signal(r, next);
    b->Copy(r, {Out(r, r)}, In(r));
    for (int step = 1; step < n; ++step) {
      std::vector<Operand> dst = {Out(r, b->Shift(r, -step))};
      if (step + 1 < n) dst.push_back(Slot(next, step));
      b->Wait(r, b->Shift(r, -1), 0, step);
      b->Copy(r, dst, Slot(r, step - 1));
      if (step + 1 < n) b->Signal(r, next);
    }
  }
}

void RingBroadcast(Builder* b, int root) {
  for (int r = 0; r < b->ranks(); ++r) {
    const int next = b->Shift(r, 1);
    std::vector<Operand> dst = {Out(r)};
    if (next != root) dst.push_back(Slot(next, 0));
    if (r != root) b->Wait(r, b->Shift(r, -1));
    b->Copy(r, dst, r == root ? In(root) : Slot(r, 0));
    if (next != root) b->Signal(r, next);
  }
}

void RingReduce(Builder* b, int root) {
  for (int r = 0; r < b->ranks(); ++r) {
    const int next = b->Shift(r, 1);
    const int previous = b->Shift(r, -1);
    if (previous == root) {
      b->Copy(r, {Slot(next, 0)}, In(r));
      b->Signal(r, next);
      continue;
    }
    b->Wait(r, previous);
    if (r == root) {
      b->Reduce(r, {Out(root)}, {Slot(r, 0), In(r)}, State::kFinal);
    } else {
      b->Reduce(r, {Slot(next, 0)}, {Slot(r, 0), In(r)});
      b->Signal(r, next);
    }
  }
}

}  // namespace

plan::Schedule Ring(const Contract& contract, int lanes, std::span<const int> only) {
  Builder b(contract, kRing, contract.kind == Kind::kAllReduce ? contract.ranks : 1, only);
  switch (contract.kind) {
    case Kind::kAllReduce:
      RingAllReduce(&b);
      break;
    case Kind::kAllGather:
      RingAllGather(&b);
      break;
    case Kind::kBroadcast:
      RingBroadcast(&b, contract.root);
      break;
    case Kind::kReduce:
      RingReduce(&b, contract.root);
      break;
    default:
      for (const int r : b.programmed()) ReduceScatterSteps(&b, contract.kind, r, {Out(r)});
  }
  return b.Build(lanes);
}

}  // namespace axccl::algo
