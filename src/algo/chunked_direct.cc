// Chunked direct: every rank fetches what it needs from the others' buffers, chunk by chunk.
//
// Lane 0 of a rank announces its buffers, then its input chunks as the user declares them ready. Other lanes fetch:
// where blocks are moved, there is one for each other rank, so that a rank that is late delays only its own blocks;
// where they are reduced, one lane does it all, because each chunk needs every rank. A rank waits for another one just
// before its first access to that rank's buffers. At the end it tells the others that it needs their buffers no more,
// and waits for those that have used its own.
//
// An all-reduce cuts each slice into a part for each rank, which reduces it; then all fetch the parts from each other.
#include <algorithm>
#include <utility>
#include <vector>

#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Kind;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

namespace {

class ChunkedDirectWriter {
 public:
  ChunkedDirectWriter(const plan::Contract& c, int slices, bool produced) : c_(c) {
    s_.algorithm = kChunkedDirect;
    s_.contract = c;
    s_.slices = static_cast<uint16_t>(slices);
    s_.parts = static_cast<uint16_t>(c.kind == Kind::kAllReduce ? slices * c.ranks : slices);
    s_.produced = produced;
    s_.direct = true;
    const bool moves_blocks = c.kind == Kind::kAllGather || c.kind == Kind::kAllToAll;
    s_.lanes = static_cast<uint16_t>(moves_blocks ? c.ranks : c.ranks == 1 ? 1 : 2);
    s_.program.assign(static_cast<size_t>(c.ranks), std::vector<plan::Lane>(s_.lanes));
  }

  Schedule Write() {
    for (int r = 0; r < c_.ranks; ++r) {
      switch (c_.kind) {
        case Kind::kBroadcast:
          r == c_.root ? Root(r) : Leaf(r);
          break;
        case Kind::kAllReduce:
        case Kind::kReduceScatter:
          Reductions(r);
          break;
        default:
          Blocks(r);
      }
    }
    Seal();
    return std::move(s_);
  }

 private:
  // Endpoints. Input chunks that all ranks read are announced on kInputs; those for one rank on kInputsOf + that rank,
  // the own rank included: its lane of reductions waits there.
  static constexpr int kOpen = 0, kDone = 1, kReduced = 2, kInputs = 3, kOwnInputs = 4, kInputsOf = 4;

  int ranks() const { return c_.ranks; }
  int slices() const { return s_.slices; }
  bool by_block() const { return c_.kind == Kind::kAllToAll || c_.kind == Kind::kReduceScatter; }
  int Shift(int r, int step) const { return (r + step) % ranks(); }

  // The operations that follow are of this rank and lane.
  void At(int rank, int lane) { rank_ = rank, lane_ = lane; }
  Op& Add(OpKind kind) {
    std::vector<Op>& ops = s_.program[static_cast<size_t>(rank_)][static_cast<size_t>(lane_)].ops;
    ops.emplace_back().kind = kind;
    return ops.back();
  }
  void Signal(int peer, int endpoint) {
    Op& op = Add(OpKind::kSignal);
    op.peer = static_cast<int16_t>(peer), op.endpoint = static_cast<uint16_t>(endpoint);
  }
  void Wait(int source, int lane, int endpoint, int value = 1) {
    Op& op = Add(OpKind::kWait);
    op.peer = static_cast<int16_t>(source), op.from_lane = static_cast<uint16_t>(lane);
    op.endpoint = static_cast<uint16_t>(endpoint), op.value = static_cast<uint16_t>(value);
  }
  void Copy(Operand to, Operand from) {
    Op& op = Add(OpKind::kCopy);
    op.dst = {to}, op.src = {from};
  }
  void Await(int chunk) {
    if (s_.produced) Add(OpKind::kAwait).chunk = static_cast<uint16_t>(chunk);
  }
  void Notify(int chunk) {
    Op& op = Add(OpKind::kNotify);
    op.peer = static_cast<int16_t>(rank_), op.chunk = static_cast<uint16_t>(chunk);
  }

  // Lane 0 of a rank whose input goes to others, block by block in the order in which they are needed first, the own
  // one first or last.
  void Announce(int r, bool own_first) {
    At(r, 0);
    if (ranks() > 1) Signal(plan::kAllPeers, kOpen);
    for (int step = 0; step < (by_block() ? ranks() : 1); ++step) {
      const int block = by_block() ? Shift(r, step + (own_first ? 0 : 1)) : 0;
      for (int i = 0; i < slices(); ++i) Input(r, block, i);
    }
  }

  void Input(int r, int block, int slice) {
    const int chunk = block * slices() + slice;
    Await(chunk);
    if (s_.produced && ranks() > 1) AnnounceInput(r, block);
    const bool reduces = plan::Reduces(c_.kind);
    if (reduces || (by_block() && block != r)) return;
    const int own = c_.kind == Kind::kBroadcast ? 0 : r;
    Copy(Out(r, own, slice), In(r, by_block() ? r : 0, slice));
    Notify(own * slices() + slice);
  }

  void AnnounceInput(int r, int block) {
    const bool reduces = plan::Reduces(c_.kind);
    if (!by_block()) {
      Signal(plan::kAllPeers, kInputs);
      if (reduces) Signal(r, kOwnInputs);
    } else if (block != r || reduces) {
      Signal(block, kInputsOf + block);
    }
  }

  // Waits until rank `from` has declared slice `slice` of what `r` reads ready.
  void WaitInput(int r, int from, int slice) {
    if (!s_.produced) return;
    const int endpoint = by_block() ? kInputsOf + r : from == r ? kOwnInputs : kInputs;
    Wait(from, 0, endpoint, slice + 1);
  }

  void Blocks(int r) {
    Announce(r, true);
    for (int step = 1; step < ranks(); ++step) {
      const int from = Shift(r, step), reader = Shift(r, ranks() - step);
      At(r, step);
      Wait(from, 0, kOpen);
      for (int i = 0; i < slices(); ++i) {
        WaitInput(r, from, i);
        Copy(Out(r, from, i), In(from, by_block() ? r : 0, i));
        Notify(from * slices() + i);
      }
      Signal(from, kDone);
      Wait(reader, step, kDone);
    }
  }

  void Root(int r) {
    Announce(r, true);
    if (ranks() == 1) return;
    At(r, 1);
    for (int step = 1; step < ranks(); ++step) Wait(Shift(r, step), 1, kDone);
  }

  void Leaf(int r) {
    At(r, 1);
    Wait(c_.root, 0, kOpen);
    for (int i = 0; i < slices(); ++i) {
      WaitInput(r, c_.root, i);
      Copy(Out(r, 0, i), In(c_.root, 0, i));
      Notify(i);
    }
    Signal(c_.root, kDone);
  }

  void Reductions(int r) {
    const bool alone = ranks() == 1;
    if (!alone) Announce(r, false);
    At(r, alone ? 0 : 1);
    for (int step = 1; step < ranks(); ++step) Wait(Shift(r, step), 0, kOpen);
    for (int i = 0; i < slices(); ++i) {
      if (alone) Await(i);
      for (int step = 0; step < ranks() && !alone; ++step) WaitInput(r, Shift(r, step), i);
      const bool scatters = c_.kind == Kind::kReduceScatter;
      const int part = scatters ? i : i * ranks() + r;
      Op& reduce = Add(OpKind::kReduce);
      reduce.finish = true;
      reduce.dst = {Out(r, 0, part)};
      for (int q = 0; q < ranks(); ++q) reduce.src.push_back(In(q, scatters ? r : 0, part));
      if (!scatters) FetchReduced(r, i);
      Notify(i);
    }
    if (alone) return;
    Signal(plan::kAllPeers, kDone);
    for (int step = 1; step < ranks(); ++step) Wait(Shift(r, step), 1, kDone);
  }

  void FetchReduced(int r, int slice) {
    if (ranks() > 1) Signal(plan::kAllPeers, kReduced);
    for (int step = 1; step < ranks(); ++step) {
      const int from = Shift(r, step), part = slice * ranks() + from;
      Wait(from, 1, kReduced, slice + 1);
      Copy(Out(r, 0, part), Out(from, 0, part));
    }
  }

  void Seal() {
    uint32_t id = 0;
    int endpoints = 0;
    for (auto& lanes : s_.program) {
      for (plan::Lane& lane : lanes) {
        for (Op& op : lane.ops) {
          op.id = id++;
          if (op.kind == OpKind::kSignal) endpoints = std::max(endpoints, op.endpoint + 1);
        }
      }
    }
    s_.endpoints = static_cast<uint16_t>(endpoints);
  }

  const plan::Contract c_;
  Schedule s_;
  int rank_ = 0, lane_ = 0;
};

}  // namespace

Schedule ChunkedDirect(const plan::Contract& contract, int slices, bool produced) {
  return ChunkedDirectWriter(contract, slices, produced).Write();
}

}  // namespace axccl::algo
