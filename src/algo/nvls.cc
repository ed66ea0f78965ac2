// NVLS, as NCCL calls it: through the multicast slots of NVLink SHARP, where the switch between the devices adds what
// it reads of all of them, and stores to all of them what it gets once.
//
// All-reduce: every rank publishes its contribution in its own slots. Rank r owns part r: it reads the sum of slot r of
// all ranks, and stores that to slot r of all ranks, so that all have the same bits. Each rank's link carries its data
// once in both directions, and the share of its own part; without the switch, it carries them nearly twice.
//
// Reduce-scatter is the first half of that: the owner of a block reads the sum. All-gather is the second: each rank
// stores its block to all. In these, a link carries no less than in `direct`; but one block of a device moves more in
// one operation.
//
// The one-shot all-reduce is for few bytes: every rank stores its contribution to all ranks at once, and then folds all
// contributions in its own memory, in order of rank. So all ranks fold to the same bits, which the switch would not
// promise if each of them asked it for the sum.
//
// All ranks exchange signals in every turn, which makes the plans complete.
#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

void AllReduceBySwitch(Builder* b) {
  const int n = b->ranks();
  for (const int r : b->programmed()) {
    b->Copy(r, {Slot(r, 0, n)}, In(r, 0, 0, n));
    b->Signal(r, plan::kAllPeers);
    b->WaitAll(r);
    b->Reduce(r, {AllSlots(r), Out(r, 0, r)}, {AllSlots(r)}, State::kFinal);
    b->Signal(r, plan::kAllPeers);
    b->WaitAll(r, 0, 2);
    if (r > 0) b->Copy(r, {Out(r, 0, 0, r)}, Slot(r, 0, r));
    if (r + 1 < n) b->Copy(r, {Out(r, 0, r + 1, n - r - 1)}, Slot(r, r + 1, n - r - 1));
  }
}

void ReduceScatterBySwitch(Builder* b) {
  for (const int r : b->programmed()) {
    for (int q = 0; q < b->ranks(); ++q) b->Copy(r, {Slot(r, q)}, In(r, q));
    b->Signal(r, plan::kAllPeers);
    b->WaitAll(r);
    b->Reduce(r, {Out(r)}, {AllSlots(r)}, State::kFinal);
  }
}

void AllGatherToAll(Builder* b) {
  for (const int r : b->programmed()) {
    b->Copy(r, {AllSlots(r)}, In(r));
    b->Signal(r, plan::kAllPeers);
    b->Copy(r, {Out(r, r)}, In(r));
    for (int step = 1; step < b->ranks(); ++step) {
      const int q = b->Shift(r, step);
      b->Wait(r, q);
      b->Copy(r, {Out(r, q)}, Slot(r, q));
    }
  }
}

}  // namespace

plan::Schedule Nvls(const Contract& contract, int lanes, std::span<const int> only) {
  Builder b(contract, "nvls", contract.kind == Kind::kAllReduce ? contract.ranks : 1, only);
  if (contract.kind == Kind::kAllReduce) AllReduceBySwitch(&b);
  if (contract.kind == Kind::kReduceScatter) ReduceScatterBySwitch(&b);
  if (contract.kind == Kind::kAllGather) AllGatherToAll(&b);
  return b.Build(lanes);
}

plan::Schedule NvlsOneshot(const Contract& contract, int lanes, std::span<const int> only) {
  Builder b(contract, "nvls_oneshot", 1, only);
  for (const int r : b.programmed()) {
    b.Copy(r, {AllSlots(r)}, In(r));
    b.Signal(r, plan::kAllPeers);
    b.WaitAll(r);
    std::vector<Operand> contributions;
    for (int q = 0; q < b.ranks(); ++q) contributions.push_back(Slot(r, q));
    b.Reduce(r, {Out(r)}, contributions, State::kFinal);
  }
  return b.Build(lanes);
}

}  // namespace axccl::algo
