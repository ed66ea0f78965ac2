// Direct: data goes from the user's input to the user's output in one operation, whichever rank owns the two.
//
// A first exchange of signals shows every rank that all buffers are ready (and carries their addresses). A last
// exchange shows that no rank touches them any more; it includes only the ranks whose buffers were touched. There is
// one turn, hence no credits.
//
// In "direct", each byte is read once from every input that holds it and written once to every output that needs it,
// whichever rank does it. That is the least that the memory system can do, with the work split evenly. It requires that
// ranks write into each other's outputs; an owner that gives up must first make sure that no other rank is still
// writing (exec/host/exposure.h).
//
// In "pull", a rank writes only its own output. It serves memory that other ranks can only read, by system call,
// because an owner could not revoke such an access. An all-reduce needs a second step, in which a rank reads what the
// others have reduced; where only one rank gets a result, that rank does all the work. "pull" also serves blocks that
// lie side by side in short runs, because no two ranks write the same cache line of an output.
//
// In "ring_pull", a rank uses the buffers of the rank before it only, so data goes round n - 1 times, as in "ring": for
// GPUs whose links do not lead from each to each. What is folded on the way stands in the outputs, so that it needs no
// slots, and one turn moves everything.
//
// An all-to-all, a reduce-scatter and a scatter are pulled in "direct". In "push", a rank reads its own input, which is
// whole pages in order where its blocks are rows side by side; in a reduce-scatter it reduces its part of all blocks.
#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;
using plan::Operand;

namespace {

// Endpoints. kOpen carries the first exchange and, as its further signals, all later exchanges between all ranks.
constexpr int kOpen = 0;
constexpr int kRelease = 1;  // token: lane 0 has waited for every peer
constexpr int kToRoot = 2;   // last exchange, where only the root's buffers were touched
constexpr int kToNext = 2;   // in a ring: another step is done

enum class Style : uint8_t { kDirect, kPull, kPush, kRing };

// What one rank does on one lane.
struct Strand {
  Builder* b;
  const Contract& c;
  int r;
  int said;  // signals of kOpen made so far; lane 0 has exchanged the first ones with all peers
};

// The rank at which data starts or ends, for kinds in which the other ranks deal only with that rank.
int Root(const Contract& c) { return c.kind == Kind::kSendRecv ? 0 : c.root; }

int Parts(const Contract& c, Style style) {
  if (style == Style::kPush) return c.kind == Kind::kReduceScatter ? c.ranks : 1;
  if (style == Style::kPull || style == Style::kRing) return c.kind == Kind::kAllReduce ? c.ranks : 1;
  switch (c.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kBroadcast:
      return c.ranks;
    case Kind::kSendRecv:
      return 2;
    default:
      return 1;
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

// After this, what the strand has done before is done on all ranks.
void Exchange(Strand* s) {
  s->b->Signal(s->r, plan::kAllPeers, kOpen);
  s->b->WaitAll(s->r, kOpen, ++s->said);
}

// The last exchange where other ranks touched only the root's buffers.
void CloseAtRoot(Strand* s) {
  const int root = Root(s->c);
  if (s->r != root) {
    s->b->Signal(s->r, root, kToRoot);
  } else if (s->c.kind == Kind::kSendRecv) {
    s->b->Wait(root, 1, kToRoot);
  } else {
    s->b->WaitAll(root, kToRoot);
  }
}

// The last exchange where only the root touched other ranks' buffers.
void CloseByRoot(Strand* s) {
  if (s->r == s->c.root) {
    s->b->Signal(s->r, plan::kAllPeers, kOpen);
  } else {
    s->b->Wait(s->r, s->c.root, kOpen, s->said + 1);
  }
}

// ---- pull ----

// Rank r reduces part r for itself, and copies the other parts from the ranks that have reduced them.
void PullAllReduce(Strand* s) {
  const int r = s->r;
  s->b->Reduce(r, {Out(r, 0, r)}, AllInputs(*s->b, 0, r), State::kFinal);
  s->b->Signal(r, plan::kAllPeers, kOpen);
  ++s->said;
  for (int step = 1; step < s->b->ranks(); ++step) {
    const int q = s->b->Shift(r, step);
    s->b->Wait(r, q, kOpen, s->said);
    s->b->Copy(r, {Out(r, 0, q)}, Out(q, 0, q));
  }
  Exchange(s);
}

// Copies all blocks b of the output in ascending order, so that blocks that lie side by side can be copied at once.
void PullBlocks(Strand* s) {
  for (int q = 0; q < s->b->ranks(); ++q) s->b->Copy(s->r, {Out(s->r, q)}, In(q));
}

void Pull(Strand* s) {
  const int r = s->r, root = Root(s->c);
  switch (s->c.kind) {
    case Kind::kAllReduce:
      return PullAllReduce(s);
    case Kind::kAllGather:
      PullBlocks(s);
      return Exchange(s);
    case Kind::kGather:
      if (r == root) PullBlocks(s);
      return CloseByRoot(s);
    case Kind::kReduce:
      if (r == root) s->b->Reduce(r, {Out(r)}, AllInputs(*s->b, 0, 0), State::kFinal);
      return CloseByRoot(s);
    default:  // kBroadcast, kSendRecv
      if (plan::OutputBlocks(s->c, r) != 0) s->b->Copy(r, {Out(r)}, In(root));
      return CloseAtRoot(s);
  }
}

// ---- ring ----

// Rank r folds its own data into what the rank before it has of chunk r - 1 - step, and chunk r comes out complete. The
// finished chunks then follow, the one before r first. A rank's part of a chunk is not read any more when the finished
// one comes: the chunk has been through all ranks.
void RingPullAllReduce(Strand* s) {
  Builder* const b = s->b;
  const int n = b->ranks(), r = s->r;
  const int previous = b->Shift(r, -1), next = b->Shift(r, 1);
  for (int step = 1; step < n; ++step) {
    const int c = b->Shift(r, -1 - step);
    if (step > 1) b->Wait(r, previous, kToNext, step - 1);
    const Operand folded = step == 1 ? In(previous, 0, c) : Out(previous, 0, c);
    b->Reduce(r, {Out(r, 0, c)}, {folded, In(r, 0, c)}, step == n - 1 ? State::kFinal : State::kPartial);
    b->Signal(r, next, kToNext);
  }
  for (int step = 1; step < n; ++step) {
    const int c = b->Shift(r, -step);
    b->Wait(r, previous, kToNext, n - 2 + step);
    b->Copy(r, {Out(r, 0, c)}, Out(previous, 0, c));
    if (step + 1 < n) b->Signal(r, next, kToNext);
  }
}

void RingPullAllGather(Strand* s) {
  Builder* const b = s->b;
  const int r = s->r, previous = b->Shift(r, -1), next = b->Shift(r, 1);
  b->Copy(r, {Out(r, r)}, In(r));
  for (int step = 1; step < b->ranks(); ++step) {
    const int q = b->Shift(r, -step);
    if (step > 1) b->Wait(r, previous, kToNext, step - 1);
    b->Copy(r, {Out(r, q)}, step == 1 ? In(previous) : Out(previous, q));
    if (step + 1 < b->ranks()) b->Signal(r, next, kToNext);
  }
}

void RingPull(Strand* s) {
  s->c.kind == Kind::kAllReduce ? RingPullAllReduce(s) : RingPullAllGather(s);
  Exchange(s);
}

// ---- push ----

void Push(Strand* s) {
  Builder* const b = s->b;
  for (int step = 0; step < b->ranks(); ++step) {
    const int q = b->Shift(s->r, step);
    if (s->c.kind == Kind::kReduceScatter) {
      b->Reduce(s->r, {Out(q, 0, s->r)}, AllInputs(*b, q, s->r), State::kFinal);
    } else {
      b->Copy(s->r, {Out(q, s->r)}, In(s->r, q));
    }
  }
  Exchange(s);
}

// ---- direct ----

void Direct(Strand* s) {
  Builder* const b = s->b;
  const int r = s->r, root = Root(s->c);
  switch (s->c.kind) {
    case Kind::kAllReduce:
      b->Reduce(r, AllOutputs(*b, 0, r), AllInputs(*b, 0, r), State::kFinal);
      break;
    case Kind::kReduce:
      b->Reduce(r, {Out(root, 0, r)}, AllInputs(*b, 0, r), State::kFinal);
      break;
    case Kind::kReduceScatter:
      b->Reduce(r, {Out(r)}, AllInputs(*b, r, 0), State::kFinal);
      break;
    case Kind::kBroadcast:
      b->Copy(r, AllOutputs(*b, 0, r), In(root, 0, r));
      break;
    case Kind::kAllGather:
      b->Copy(r, AllOutputs(*b, r, 0), In(r));
      break;
    case Kind::kAllToAll:
      // Pulled, so that the data that this rank uses next is in its own cache.
      for (int step = 0; step < b->ranks(); ++step) {
        const int q = b->Shift(r, step);
        b->Copy(r, {Out(r, q)}, In(q, r));
      }
      break;
    case Kind::kGather:
      b->Copy(r, {Out(root, r)}, In(r));
      return CloseAtRoot(s);
    case Kind::kScatter:
      b->Copy(r, {Out(r)}, In(root, r));
      return CloseAtRoot(s);
    case Kind::kSendRecv:  // the sender pushes half, the receiver pulls half
      b->Copy(r, {Out(1, 0, r)}, In(0, 0, r));
      break;
    case Kind::kBarrier:
      break;
  }
  Exchange(s);
}

plan::Schedule Make(const Contract& contract, int lanes, std::span<const int> only, std::string_view name, Style style,
                    void (*work)(Strand* s)) {
  Builder b(contract, name, Parts(contract, style), only);
  plan::Schedule schedule = b.Empty();
  for (int lane = 0; lane < lanes; ++lane) {
    for (const int r : b.programmed()) {
      Strand strand{&b, contract, r, 0};
      if (lane == 0) {
        Exchange(&strand);
        if (lanes > 1) b.Signal(r, r, kRelease);
      } else {
        b.WaitToken(r, 0, kRelease);
      }
      work(&strand);
    }
    b.MoveTo(&schedule);
  }
  b.Seal(&schedule);
  schedule.direct = true;
  return schedule;
}

}  // namespace

plan::Schedule Direct(const Contract& contract, int lanes, std::span<const int> only) {
  return Make(contract, lanes, only, "direct", Style::kDirect, Direct);
}

plan::Schedule Pull(const Contract& contract, int lanes, std::span<const int> only) {
  return Make(contract, lanes, only, "pull", Style::kPull, Pull);
}

plan::Schedule Push(const Contract& contract, int lanes, std::span<const int> only) {
  return Make(contract, lanes, only, "push", Style::kPush, Push);
}

plan::Schedule RingPull(const Contract& contract, int lanes, std::span<const int> only) {
  return Make(contract, lanes, only, kRingPull, Style::kRing, RingPull);
}

}  // namespace axccl::algo
