// One-shot: every rank publishes in its own scratch what others need of its input. After one exchange of signals
// between all ranks, every rank reads what it needs from the scratch of the others.
//
// What others wait for comes first: a rank makes its own copies between its signal and its waits.
//
// The algorithm has one hop from the first operation to the last, so it suits small messages. For kinds that move each
// byte to one place (all but the reductions to several ranks), no staged algorithm can do better than its one copy in
// and one copy out.
//
// All ranks signal all ranks, even where no data flows: that costs little and makes every rank's end follow every
// rank's beginning. So the plan is complete, slots may be reused without credits, and operations follow each other with
// no barrier between them.
//
// Every slot has a signal of its own, and a small payload travels in its line: also where a rank publishes another
// block for each reader.
#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

// The slot in which `owner` publishes its block for `reader`, and the endpoint that does, for kinds in which every
// reader has its own block: by distance, so that all ranks are alike.
int SlotFor(const Builder& b, int owner, int reader) { return b.Shift(reader, -owner) - 1; }

// A single slot carries everything.
void InlineOnlySlot(Builder* b) { b->Inline(0, 0); }

// Publishes a block for each reader, in the slot and by the endpoint of that number.
void PublishBlocks(Builder* b, int owner) {
  for (int step = 1; step < b->ranks(); ++step) {
    const int reader = b->Shift(owner, step), slot = SlotFor(*b, owner, reader);
    b->Copy(owner, {Slot(owner, slot)}, In(owner, reader));
    b->Signal(owner, reader, slot);
  }
}
void WaitForBlock(Builder* b, int owner, int reader) { b->Wait(reader, owner, SlotFor(*b, owner, reader)); }
void InlineBlocks(Builder* b) {
  for (int slot = 0; slot + 1 < b->ranks(); ++slot) b->Inline(slot, slot);
}

// The contributions of all ranks in ascending order of rank, so that every rank folds to the same bits; its own is
// where `own` says.
std::vector<Operand> Contributions(const Builder& b, int rank, const Operand& own) {
  std::vector<Operand> src;
  for (int q = 0; q < b.ranks(); ++q) src.push_back(q == rank ? own : Slot(q, 0));
  return src;
}

// Every rank must fold its own contribution as its peers do, scaled and rounded, so it makes another copy of its input
// in its output. The slot is not good for that: peers are reading it, and the lines move to their caches.
void AllReduce(Builder* b) {
  for (const int r : b->programmed()) {
    b->Copy(r, {Slot(r, 0)}, In(r));
    b->Signal(r, plan::kAllPeers);
    b->Copy(r, {Out(r)}, In(r));
    b->WaitAll(r);
    b->Reduce(r, {Out(r)}, Contributions(*b, r, Out(r)), State::kFinal);
  }
  InlineOnlySlot(b);
}

void Reduce(Builder* b, int root) {
  for (const int r : b->programmed()) {
    if (r != root) b->Copy(r, {Slot(r, 0)}, In(r));
    b->Signal(r, plan::kAllPeers);
    b->WaitAll(r);
    if (r != root) continue;
    b->Reduce(root, {Out(root)}, Contributions(*b, root, In(root)), State::kFinal);
  }
  InlineOnlySlot(b);
}

void ReduceScatter(Builder* b) {
  const int n = b->ranks();
  for (const int r : b->programmed()) {
    PublishBlocks(b, r);
    for (int step = 1; step < n; ++step) WaitForBlock(b, b->Shift(r, step), r);
    std::vector<Operand> src;
    for (int q = 0; q < n; ++q) src.push_back(q == r ? In(r, r) : Slot(q, SlotFor(*b, q, r)));
    b->Reduce(r, {Out(r)}, src, State::kFinal);
  }
  InlineBlocks(b);
}

// Also the sender's part of kSendRecv.
void Broadcast(Builder* b, int root, bool root_has_output) {
  for (const int r : b->programmed()) {
    if (r == root) b->Copy(root, {Slot(root, 0)}, In(root));
    b->Signal(r, plan::kAllPeers);
    if (r == root && root_has_output) b->Copy(root, {Out(root)}, In(root));
    b->WaitAll(r);
    if (r != root) b->Copy(r, {Out(r)}, Slot(root, 0));
  }
  InlineOnlySlot(b);
}

void AllGather(Builder* b) {
  for (const int r : b->programmed()) {
    b->Copy(r, {Slot(r, 0)}, In(r));
    b->Signal(r, plan::kAllPeers);
    b->Copy(r, {Out(r, r)}, In(r));
    // Starts behind this rank, so that not all ranks read the same peer's memory at once.
    for (int step = 1; step < b->ranks(); ++step) {
      const int q = b->Shift(r, step);
      b->Wait(r, q);
      b->Copy(r, {Out(r, q)}, Slot(q, 0));
    }
  }
  InlineOnlySlot(b);
}

void AllToAll(Builder* b) {
  for (const int r : b->programmed()) {
    PublishBlocks(b, r);
    b->Copy(r, {Out(r, r)}, In(r, r));
    for (int step = 1; step < b->ranks(); ++step) {
      const int q = b->Shift(r, step);
      WaitForBlock(b, q, r);
      b->Copy(r, {Out(r, q)}, Slot(q, SlotFor(*b, q, r)));
    }
  }
  InlineBlocks(b);
}

void Gather(Builder* b, int root) {
  for (const int r : b->programmed()) {
    if (r != root) b->Copy(r, {Slot(r, 0)}, In(r));
    b->Signal(r, plan::kAllPeers);
    if (r != root) {
      b->WaitAll(r);
      continue;
    }
    b->Copy(root, {Out(root, root)}, In(root));
    for (int step = 1; step < b->ranks(); ++step) {
      const int q = b->Shift(root, step);
      b->Wait(root, q);
      b->Copy(root, {Out(root, q)}, Slot(q, 0));
    }
  }
  InlineOnlySlot(b);
}

void Scatter(Builder* b, int root) {
  for (const int r : b->programmed()) {
    if (r == root) {
      PublishBlocks(b, root);
      b->Copy(root, {Out(root)}, In(root, root));
    } else {
      b->Signal(r, plan::kAllPeers);
    }
    for (int q = 0; q < b->ranks(); ++q) {
      if (q == root && q != r) WaitForBlock(b, root, r);
      if (q != root && q != r) b->Wait(r, q);
    }
    if (r != root) b->Copy(r, {Out(r)}, Slot(root, SlotFor(*b, root, r)));
  }
  InlineBlocks(b);
}

void Barrier(Builder* b) {
  for (const int r : b->programmed()) {
    b->Signal(r, plan::kAllPeers);
    b->WaitAll(r);
  }
}

}  // namespace

plan::Schedule Oneshot(const Contract& contract, int lanes, std::span<const int> only) {
  Builder b(contract, "oneshot", 1, only);
  switch (contract.kind) {
    case Kind::kAllReduce:
      AllReduce(&b);
      break;
    case Kind::kReduce:
      Reduce(&b, contract.root);
      break;
    case Kind::kReduceScatter:
      ReduceScatter(&b);
      break;
    case Kind::kBroadcast:
      Broadcast(&b, contract.root, true);
      break;
    case Kind::kAllGather:
      AllGather(&b);
      break;
    case Kind::kAllToAll:
      AllToAll(&b);
      break;
    case Kind::kGather:
      Gather(&b, contract.root);
      break;
    case Kind::kScatter:
      Scatter(&b, contract.root);
      break;
    case Kind::kSendRecv:
      Broadcast(&b, 0, false);
      break;
    case Kind::kBarrier:
      Barrier(&b);
      break;
  }
  return b.Build(lanes);
}

}  // namespace axccl::algo
