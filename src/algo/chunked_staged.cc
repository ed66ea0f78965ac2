// Chunked staged: for ranks that do not share memory. Every rank copies its input chunks into slots of its own and
// signals each reader; readers copy or fold the slots.
//
// An operation names slots of its own lane only, so the lane in which a rank writes a slot is the one in which its
// readers read it. That decides which lanes there are:
//
// - all_gather and all_to_all: a lane for each block that a rank receives, in the order of the blocks. What is received
//   must not depend on the rank's own input, so where inputs are awaited, no rank writes and reads in the same lane
//   (LaneOf).
// - reduce_scatter: one lane in which a rank writes what is for others, then folds its own block, which needs all
//   ranks. Where the own block is awaited before others, that would hold those back; there are then a lane that awaits,
//   and one for each block.
// - all_reduce: slices are dealt to a few lanes, so that several are on their way. A slice has a part for each rank,
//   which folds it; then all fetch the parts from each other.
// - broadcast and send_recv: one lane.
//
// Where ranks receive something from every other one, they know at the end that all have begun, which makes the reuse
// of slots two turns later safe. Only the root of a broadcast, or a sender, waits for the others at the end.
#include <algorithm>
#include <map>
#include <vector>

#include "src/algo/builder.h"
#include "src/algo/chunked.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Kind;
using plan::Op;
using plan::OpKind;
using plan::Schedule;

namespace {

// Lanes of an all-reduce: slices that may be on their way at once.
constexpr int kSlicesAtOnce = 4;

class ChunkedStagedWriter : private ChunkedWriter {
 public:
  ChunkedStagedWriter(const plan::Contract& c, const Chunking& chunking)
      : ChunkedWriter(c, kChunkedStaged, c.kind == Kind::kAllReduce ? c.ranks : 1, chunking) {}

  Result<Schedule> Write() {
    if (ranks() == 1) return Alone();
    AXCCL_RETURN_IF_ERROR(SetLanes(Lanes()));
    for (int r = 0; r < ranks(); ++r) {
      switch (kind()) {
        case Kind::kAllReduce:
          AllReduce(r);
          break;
        case Kind::kReduceScatter:
          ReduceScatter(r);
          break;
        case Kind::kAllGather:
        case Kind::kAllToAll:
          Give(r);
          Take(r);
          break;
        default:
          r == root() ? Root(r) : Leaf(r);
      }
    }
    return Seal();
  }

 private:
  // Endpoints. A rank tells its other lanes of its input on kToken. Slots are announced on kSlots where a lane has one
  // reader or all ranks read, otherwise on kSlots + reader.
  static constexpr int kToken = 0, kSlots = 1, kReduced = 2, kDone = 2;

  int Lanes() const {
    if (kind() == Kind::kAllReduce) return std::min(slices(), kSlicesAtOnce);
    if (kind() == Kind::kReduceScatter) return AwaitsApart() ? ranks() + 1 : 1;
    int last = 0;
    for (int from = 0; from < ranks() && MovesBlocks(); ++from) {
      for (int to = 0; to < ranks(); ++to) last = std::max(last, LaneOf(from, to));
    }
    return last + 1;
  }

  // ---- all_gather and all_to_all ----

  bool MovesBlocks() const { return kind() == Kind::kAllGather || kind() == Kind::kAllToAll; }
  bool by_rank() const { return order() == ChunkOrder::kByRank; }

  // The lane in which rank `from` gives its block to rank `to`, itself included. For each `to`, lanes are in the order
  // of the blocks. There may be two rounds of lanes, of which the second is for the end of the order.
  //
  // An all_gather has few lanes for each giver, as it copies its chunks in each: rank g gives in lanes g and g + n, in
  // which it takes nothing. An all_to_all has a lane for each pair, but a pair uses the same one for both directions,
  // where that is right; otherwise, one of the two directions is in the second round.
  int LaneOf(int from, int to) const {
    if (kind() == Kind::kAllGather) return from + (!by_rank() && InSecondRound(from, to) ? ranks() : 0);
    if (produced()) return from + to + (InSecondRound(from, to) ? ranks() : 0);
    return by_rank() ? from + to : PositionOf(order(), from, to, ranks());
  }
  bool InSecondRound(int from, int to) const {
    if (by_rank()) return from > to;
    return order() == ChunkOrder::kOwnFirst ? from < to : from <= to;
  }
  // The lane in which rank r awaits its input; it takes nothing there.
  int AwaitLane(int r) const { return kind() == Kind::kAllGather ? r : 0; }

  void Give(int r) {
    std::map<int, std::vector<int>> takers;  // by lane
    for (int to = 0; to < ranks(); ++to) takers[LaneOf(r, to)].push_back(to);
    const std::vector<int> blocks = by_block() ? BlockOrder(order(), kind(), r, ranks()) : std::vector<int>{0};
    int tokens = 0;
    for (const int block : blocks) {
      for (int i = 0; i < slices(); ++i) {
        At(r, AwaitLane(r));
        Await(block * slices() + i);
        const bool elsewhere = by_block() ? LaneOf(r, block) != AwaitLane(r) : takers.rbegin()->first != AwaitLane(r);
        if (produced() && elsewhere) Signal(r, kToken), ++tokens;
        for (const auto& [lane, of_lane] : takers) {
          if (by_block() && of_lane[0] != block) continue;
          At(r, lane);
          if (produced() && lane != AwaitLane(r)) Wait(r, AwaitLane(r), kToken, tokens);
          GiveTo(of_lane, r, block, i);
        }
      }
    }
  }

  void GiveTo(const std::vector<int>& takers, int r, int block, int slice) {
    if (takers.size() > 1 || takers[0] != r) Copy(Slot(r, slice), In(r, block, slice));
    if (kind() == Kind::kAllGather && by_rank()) Signal(plan::kAllPeers, kSlots);
    for (const int to : takers) {
      if (to != r && (by_block() || !by_rank())) Signal(to, EndpointTo(to));
    }
    if (std::find(takers.begin(), takers.end(), r) == takers.end()) return;
    Copy(Out(r, r, slice), In(r, block, slice));
    Notify(r * slices() + slice);
  }

  int EndpointTo(int to) const { return by_block() || by_rank() ? kSlots : kSlots + to; }

  void Take(int r) {
    for (int from = 0; from < ranks(); ++from) {
      if (from == r) continue;
      const int lane = LaneOf(from, r);
      At(r, lane);
      for (int i = 0; i < slices(); ++i) {
        Wait(from, lane, EndpointTo(r), i + 1);
        Copy(Out(r, from, i), Slot(from, i));
        Notify(from * slices() + i);
      }
    }
  }

  // ---- reduce_scatter ----

  bool AwaitsApart() const { return produced() && order() != ChunkOrder::kOwnLast; }
  int LaneOfFold(int block) const { return AwaitsApart() ? 1 + block : 0; }
  int EndpointOfFold(int block) const { return AwaitsApart() ? kSlots : kSlots + block; }
  // The slot in which `from` gives a slice of block `block` to that rank.
  plan::Operand SlotOfFold(int from, int block, int slice) const {
    const int before = AwaitsApart() ? 0 : PositionOf(ChunkOrder::kOwnLast, block, from, ranks());
    return Slot(from, before * slices() + slice);
  }

  void ReduceScatter(int r) {
    int tokens = 0;
    // Unless inputs are awaited, their order makes no difference.
    const ChunkOrder in_order = produced() ? order() : ChunkOrder::kOwnLast;
    for (const int block : BlockOrder(in_order, kind(), r, ranks())) {
      for (int i = 0; i < slices(); ++i) {
        At(r, 0);
        if (AwaitsApart()) {
          Await(block * slices() + i);
          Signal(r, kToken);
          At(r, LaneOfFold(block));
          Wait(r, 0, kToken, ++tokens);
        }
        block == r ? FoldBlock(r, i) : GiveForFold(r, block, i);
      }
    }
  }

  void GiveForFold(int r, int block, int slice) {
    if (!AwaitsApart()) Await(block * slices() + slice);
    Copy(SlotOfFold(r, block, slice), In(r, block, slice));
    Signal(block, EndpointOfFold(block));
  }

  void FoldBlock(int r, int slice) {
    for (int step = 1; step < ranks(); ++step) Wait(Shift(r, step), LaneOfFold(r), EndpointOfFold(r), slice + 1);
    if (!AwaitsApart()) Await(r * slices() + slice);
    Op& reduce = Add(OpKind::kReduce);
    reduce.finish = true;
    reduce.dst = {Out(r, 0, slice)};
    for (int q = 0; q < ranks(); ++q) reduce.src.push_back(q == r ? In(r, r, slice) : SlotOfFold(q, r, slice));
    Notify(slice);
  }

  // ---- all_reduce ----

  void AllReduce(int r) {
    const int lanes = schedule().lanes;
    for (int i = 0; i < slices(); ++i) {
      // Slot first + q holds the part that rank q folds: for that rank, and at that rank the result.
      const int lane = i % lanes, turn = i / lanes + 1, first = i / lanes * ranks(), part = i * ranks();
      At(r, lane);
      Await(i);
      if (r > 0) Copy(Slot(r, first, r), In(r, 0, part, r));
      if (r + 1 < ranks()) Copy(Slot(r, first + r + 1, ranks() - r - 1), In(r, 0, part + r + 1, ranks() - r - 1));
      Signal(plan::kAllPeers, kSlots);
      for (int step = 1; step < ranks(); ++step) Wait(Shift(r, step), lane, kSlots, turn);
      Op& reduce = Add(OpKind::kReduce);
      reduce.finish = true;
      reduce.dst = {Out(r, 0, part + r), Slot(r, first + r)};
      for (int q = 0; q < ranks(); ++q) reduce.src.push_back(q == r ? In(r, 0, part + r) : Slot(q, first + r));
      Signal(plan::kAllPeers, kReduced);
      for (int step = 1; step < ranks(); ++step) {
        const int from = Shift(r, step);
        Wait(from, lane, kReduced, turn);
        Copy(Out(r, 0, part + from), Slot(from, first + from));
      }
      Notify(i);
    }
  }

  // ---- broadcast and send_recv ----

  void Root(int r) {
    At(r, 0);
    for (int i = 0; i < slices(); ++i) {
      Await(i);
      Copy(Slot(r, i), In(r, 0, i));
      Signal(plan::kAllPeers, kSlots);
      if (kind() == Kind::kSendRecv) continue;
      Copy(Out(r, 0, i), In(r, 0, i));
      Notify(i);
    }
    for (int step = 1; step < ranks(); ++step) Wait(Shift(r, step), 0, kDone);
  }

  void Leaf(int r) {
    At(r, 0);
    for (int i = 0; i < slices(); ++i) {
      Wait(root(), 0, kSlots, i + 1);
      Copy(Out(r, 0, i), Slot(root(), i));
      Notify(i);
    }
    Signal(root(), kDone);
  }
};

}  // namespace

Result<Schedule> ChunkedStaged(const plan::Contract& contract, const Chunking& chunking) {
  return ChunkedStagedWriter(contract, chunking).Write();
}

}  // namespace axccl::algo
