// Chunked direct: every rank fetches what it needs from the others' buffers, chunk by chunk.
//
// Lane 0 of a rank announces its buffers, then its input chunks as the user declares them ready. Other lanes fetch:
// where blocks are moved, there is one for each block, in the order of the blocks, so that a rank that is late delays
// only its own block; where they are reduced, one lane does it all, because each chunk needs every rank. A rank waits
// for another one just before its first access to that rank's buffers. At the end it tells the others that it needs
// their buffers no more, and waits for those that have used its own.
//
// An all-reduce cuts each slice into a part for each rank, which reduces it; then all fetch the parts from each other.
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

class ChunkedDirectWriter : private ChunkedWriter {
 public:
  ChunkedDirectWriter(const plan::Contract& c, const Chunking& chunking)
      : ChunkedWriter(c, kChunkedDirect, c.kind == Kind::kAllReduce ? c.ranks : 1, chunking) {
    schedule().direct = true;
  }

  Result<Schedule> Write() {
    if (ranks() == 1) return Alone();
    AXCCL_RETURN_IF_ERROR(SetLanes(!MovesBlocks() ? 2 : OwnInLane0() ? ranks() : ranks() + 1));
    for (int r = 0; r < ranks(); ++r) {
      if (plan::Reduces(kind())) {
        Reductions(r);
      } else if (MovesBlocks()) {
        Blocks(r);
      } else {
        r == root() ? Root(r) : Leaf(r);
      }
    }
    return Seal();
  }

 private:
  // Endpoints. Input chunks that all ranks read are announced on kInputs; those for one rank on kInputsOf + that rank.
  // The own rank is told, too, if another of its lanes reads the chunk: on kOwnInputs, or on kInputsOf + the own rank.
  static constexpr int kOpen = 0, kDone = 1, kReduced = 2, kInputs = 3, kOwnInputs = 4, kInputsOf = 4;

  bool MovesBlocks() const { return kind() == Kind::kAllGather || kind() == Kind::kAllToAll; }
  // Whether lane 0 also copies the own block, as that comes first.
  bool OwnInLane0() const { return order() == ChunkOrder::kOwnFirst; }
  // The lane in which rank r writes block `block` of its output, where blocks are moved.
  int LaneOf(int r, int block) const { return PositionOf(order(), block, r, ranks()) + (OwnInLane0() ? 0 : 1); }
  // Whether another lane than lane 0 reads the own block of the input.
  bool OwnIsReadElsewhere() const { return plan::Reduces(kind()) || (MovesBlocks() && !OwnInLane0()); }
  int InputOf(int reader) const { return by_block() ? reader : 0; }

  // Lane 0 of a rank whose input goes to others.
  void Announce(int r) {
    At(r, 0);
    Signal(plan::kAllPeers, kOpen);
    const std::vector<int> blocks = by_block() ? BlockOrder(order(), kind(), r, ranks()) : std::vector<int>{0};
    for (const int block : blocks) {
      for (int i = 0; i < slices(); ++i) {
        Await(block * slices() + i);
        if (produced()) AnnounceInput(r, block);
        if (!OwnIsReadElsewhere() && block == InputOf(r)) CopyOwn(r, i);
      }
    }
  }

  void AnnounceInput(int r, int block) {
    if (!by_block()) {
      Signal(plan::kAllPeers, kInputs);
      if (OwnIsReadElsewhere()) Signal(r, kOwnInputs);
    } else if (block != r || OwnIsReadElsewhere()) {
      Signal(block, kInputsOf + block);
    }
  }

  void CopyOwn(int r, int slice) {
    if (kind() != Kind::kSendRecv) CopyBlock(r, r, MovesBlocks() ? r : 0, slice);
  }
  // The slice of rank `from` that becomes block `block` of the output of r.
  void CopyBlock(int r, int from, int block, int slice) {
    Copy(Out(r, block, slice), In(from, InputOf(r), slice));
    Notify(block * slices() + slice);
  }

  // Waits until rank `from` has declared slice `slice` of what `r` reads ready.
  void WaitInput(int r, int from, int slice) {
    if (!produced()) return;
    const int endpoint = by_block() ? kInputsOf + r : from == r ? kOwnInputs : kInputs;
    Wait(from, 0, endpoint, slice + 1);
  }

  void Blocks(int r) {
    Announce(r);
    for (int from = 0; from < ranks(); ++from) {
      if (from == r && OwnInLane0()) continue;
      At(r, LaneOf(r, from));
      if (from != r) Wait(from, 0, kOpen);
      for (int i = 0; i < slices(); ++i) {
        WaitInput(r, from, i);
        CopyBlock(r, from, from, i);
      }
      if (from == r) continue;
      Signal(from, kDone);
      Wait(from, LaneOf(from, r), kDone);
    }
  }

  void Root(int r) {
    Announce(r);
    At(r, 1);
    for (int step = 1; step < ranks(); ++step) Wait(Shift(r, step), 1, kDone);
  }

  void Leaf(int r) {
    At(r, 1);
    Wait(root(), 0, kOpen);
    for (int i = 0; i < slices(); ++i) {
      WaitInput(r, root(), i);
      CopyBlock(r, root(), 0, i);
    }
    Signal(root(), kDone);
  }

  void Reductions(int r) {
    Announce(r);
    At(r, 1);
    for (int step = 1; step < ranks(); ++step) Wait(Shift(r, step), 0, kOpen);
    for (int i = 0; i < slices(); ++i) {
      for (int step = 0; step < ranks(); ++step) WaitInput(r, Shift(r, step), i);
      const bool scatters = kind() == Kind::kReduceScatter;
      const int part = scatters ? i : i * ranks() + r;
      Op& reduce = Add(OpKind::kReduce);
      reduce.finish = true;
      reduce.dst = {Out(r, 0, part)};
      for (int q = 0; q < ranks(); ++q) reduce.src.push_back(In(q, InputOf(r), part));
      if (!scatters) FetchReduced(r, i);
      Notify(i);
    }
    Signal(plan::kAllPeers, kDone);
    for (int step = 1; step < ranks(); ++step) Wait(Shift(r, step), 1, kDone);
  }

  void FetchReduced(int r, int slice) {
    Signal(plan::kAllPeers, kReduced);
    for (int step = 1; step < ranks(); ++step) {
      const int from = Shift(r, step), part = slice * ranks() + from;
      Wait(from, 1, kReduced, slice + 1);
      Copy(Out(r, 0, part), Out(from, 0, part));
    }
  }
};

}  // namespace

Result<Schedule> ChunkedDirect(const plan::Contract& contract, const Chunking& chunking) {
  return ChunkedDirectWriter(contract, chunking).Write();
}

}  // namespace axccl::algo
