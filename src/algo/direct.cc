// Direct: data goes from the user's input to the user's output in one operation, whoever owns the two.
//
// A first exchange of signals tells every rank that all buffers are ready (and carries their addresses), a last one
// that nobody touches them any more. Between them each byte is read once from every input that holds it and written
// once to every output that wants it: the least the memory system can do. Work is split evenly: rank r does part r.
//
// The closing exchange names only the ranks whose buffers were touched. One turn, hence no credits.
//
// "direct" has a rank write what it has read once to all outputs, and "pull" has it fill its own output from all inputs:
// more to read, but no cache line of an output is written by two ranks, which short runs side by side would be. An
// all-to-all is pulled in "direct"; in "push" a rank reads its own input, whole pages of it in order, where its blocks
// are rows side by side. A reduce-scatter is pulled too; in "push" a rank reduces its part of all blocks.
#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

// Endpoints. kOpen carries the prologue and, as its second signal, the closing exchange between all ranks.
constexpr int kOpen = 0;
constexpr int kRelease = 1;   // token: lane 0 has heard of every peer
constexpr int kToRoot = 2;    // closing, where only the root's buffers were touched

int Parts(const Contract& c) {
  switch (c.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kBroadcast: return c.ranks;
    case Kind::kSendRecv: return 2;
    default: return 1;
  }
}

// Block `block` (part `part`) of every rank's input, in ascending order of rank.
std::vector<Operand> AllInputs(const Builder& b, int block, int part) {
  std::vector<Operand> v;
  for (int q = 0; q < b.ranks(); ++q) v.push_back(In(q, block, part));
  return v;
}

std::vector<Operand> AllOutputs(const Builder& b, int block, int part) {
  std::vector<Operand> v;
  for (int q = 0; q < b.ranks(); ++q) v.push_back(Out(q, block, part));
  return v;
}

void PullData(Builder* b, const Contract&, int r) {
  for (int q = 0; q < b->ranks(); ++q) b->Copy(r, {Out(r, q)}, In(q));
}

void PushData(Builder* b, const Contract& c, int r) {
  for (int step = 0; step < b->ranks(); ++step) {
    const int q = b->Shift(r, step);
    if (c.kind == Kind::kReduceScatter) {
      b->Reduce(r, {Out(q, 0, r)}, AllInputs(*b, q, r), State::kFinal);
    } else {
      b->Copy(r, {Out(q, r)}, In(r, q));
    }
  }
}

void MoveData(Builder* b, const Contract& c, int r) {
  switch (c.kind) {
    case Kind::kAllReduce: b->Reduce(r, AllOutputs(*b, 0, r), AllInputs(*b, 0, r), State::kFinal); break;
    case Kind::kReduce: b->Reduce(r, {Out(c.root, 0, r)}, AllInputs(*b, 0, r), State::kFinal); break;
    case Kind::kReduceScatter: b->Reduce(r, {Out(r)}, AllInputs(*b, r, 0), State::kFinal); break;
    case Kind::kBroadcast: b->Copy(r, AllOutputs(*b, 0, r), In(c.root, 0, r)); break;
    case Kind::kAllGather: b->Copy(r, AllOutputs(*b, r, 0), In(r)); break;
    case Kind::kAllToAll:
      // Pulled, so that what this rank uses next is in its own cache.
      for (int step = 0; step < b->ranks(); ++step) {
        const int q = b->Shift(r, step);
        b->Copy(r, {Out(r, q)}, In(q, r));
      }
      break;
    case Kind::kGather: b->Copy(r, {Out(c.root, r)}, In(r)); break;
    case Kind::kScatter: b->Copy(r, {Out(r)}, In(c.root, r)); break;
    case Kind::kSendRecv:  // the sender pushes half, the receiver pulls half
      b->Copy(r, {Out(1, 0, r)}, In(0, 0, r));
      break;
    case Kind::kBarrier: break;
  }
}

// Lane 0 exchanged signals with all peers already; on the other lanes this is the first signal of the endpoint.
void Close(Builder* b, const Contract& c, int r, int lane) {
  if (c.kind == Kind::kGather || c.kind == Kind::kScatter) {
    if (r != c.root) {
      b->Signal(r, c.root, kToRoot);
    } else {
      b->WaitAll(r, kToRoot);
    }
    return;
  }
  b->Signal(r, plan::kAllPeers, kOpen);
  b->WaitAll(r, kOpen, lane == 0 ? 2 : 1);
}

plan::Schedule Make(const Contract& contract, int lanes, std::string_view name,
                    void (*move)(Builder* b, const Contract& c, int r)) {
  Builder b(contract, name, name == "push" && contract.kind == Kind::kReduceScatter ? contract.ranks : Parts(contract));
  plan::Schedule schedule = b.Empty();
  for (int lane = 0; lane < lanes; ++lane) {
    for (int r = 0; r < b.ranks(); ++r) {
      if (lane == 0) {
        b.Signal(r, plan::kAllPeers, kOpen);
        b.WaitAll(r, kOpen);
        if (lanes > 1) b.Signal(r, r, kRelease);
      } else {
        b.WaitToken(r, 0, kRelease);
      }
      move(&b, contract, r);
      Close(&b, contract, r, lane);
    }
    b.MoveTo(&schedule);
  }
  b.Seal(&schedule);
  schedule.direct = true;
  return schedule;
}

}  // namespace

plan::Schedule Direct(const Contract& contract, int lanes) { return Make(contract, lanes, "direct", MoveData); }

plan::Schedule Pull(const Contract& contract, int lanes) { return Make(contract, lanes, "pull", PullData); }

plan::Schedule Push(const Contract& contract, int lanes) { return Make(contract, lanes, "push", PushData); }

}  // namespace axccl::algo
