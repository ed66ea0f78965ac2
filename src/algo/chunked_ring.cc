// Chunked ring: every rank fetches from one neighbour, rank r from rank r + 1 (modulo n), and is read by the other.
//
// In an all_gather, rank r fetches block r + 1 from the neighbour's input, then blocks r + 2, ..., r - 1 from its
// output, where the neighbour has fetched them before. A block must not wait for another one that a rank declares ready
// later; so where inputs are awaited, each block has a lane of its own.
//
// In a reduce_scatter, block b goes round from rank b - 1, through b - 2, ..., b + 1, to rank b. Each rank folds its
// own contribution with what the neighbour has folded, and leaves it in a slot. There are slots for a few blocks; a
// rank writes over those of a block that its reader has folded.
#include <algorithm>
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

// With slots for two blocks, a rank would wait for the very slice that its reader is at.
constexpr int kFewBlocks = 3;

class ChunkedRingWriter : private ChunkedWriter {
 public:
  ChunkedRingWriter(const plan::Contract& c, const Chunking& chunking) : ChunkedWriter(c, kChunkedRing, 1, chunking) {
    schedule().direct = true;
  }

  Result<Schedule> Write() {
    if (ranks() == 1) return Alone();
    const bool gathers = kind() == Kind::kAllGather;
    AXCCL_RETURN_IF_ERROR(SetLanes(!gathers ? 1 : LaneOf(ranks() - 1) + 1));
    for (int r = 0; r < ranks(); ++r) {
      self_ = r, source_ = Shift(r, 1), reader_ = Shift(r, -1);
      gathers ? Gather() : Scatter();
    }
    return Seal();
  }

 private:
  static constexpr int kOpen = 0, kInputs = 1, kPassed = 2, kRead = 3, kToken = 4;

  // ---- all_gather ----

  // The lane of block r + step of rank r.
  int LaneOf(int step) const { return produced() ? step : std::min(step, 1); }

  void Gather() {
    At(self_, 0);
    Signal(reader_, kOpen);
    for (int i = 0; i < slices(); ++i) {
      Await(i);
      if (produced()) Signal(reader_, kInputs);
      Copy(Out(self_, self_, i), In(self_, 0, i));
      Notify(self_ * slices() + i);
    }
    At(self_, 1);
    Wait(source_, 0, kOpen);
    if (LaneOf(2) != 1 && ranks() > 2) Signal(self_, kToken);
    for (int step = 1; step < ranks(); ++step) Fetch(step);
    // Lane by lane, the rank tells its neighbour that it has read, and waits for its reader.
    for (int step = 1; step < ranks(); ++step) {
      if (step + 1 < ranks() && LaneOf(step) == LaneOf(step + 1)) continue;
      At(self_, LaneOf(step));
      Signal(source_, kRead);
      At(self_, LaneOf(step - 1));
      Wait(reader_, LaneOf(step), kRead);
    }
  }

  void Fetch(int step) {
    const int block = Shift(self_, step), lane = LaneOf(step);
    At(self_, lane);
    if (lane > 1) Wait(self_, 1, kToken);
    for (int i = 0; i < slices(); ++i) {
      if (step > 1) {
        const int before = LaneOf(step - 1) == lane ? (step - 2) * slices() : 0;
        Wait(source_, LaneOf(step - 1), kPassed, before + i + 1);
      } else if (produced()) {
        Wait(source_, 0, kInputs, i + 1);
      }
      Copy(Out(self_, block, i), step > 1 ? Out(source_, block, i) : In(source_, 0, i));
      Notify(block * slices() + i);
      if (step + 1 < ranks()) Signal(reader_, kPassed);
    }
  }

  // ---- reduce_scatter ----

  // A rank folds block r + step in step 2 to n, the own one last. In step 1 it has nothing to fold its input with.
  // Slots are written in step 2 to n - 1, and read by the reader one step later.
  plan::Operand SlotOf(int rank, int step, int slice) const {
    return Slot(rank, (step - 2) % BlocksInSlots() * slices() + slice);
  }
  int BlocksInSlots() const { return produced() ? std::max(1, ranks() - 2) : kFewBlocks; }

  void Scatter() {
    At(self_, 0);
    Signal(reader_, kOpen);
    for (int i = 0; i < slices() && produced(); ++i) {
      Await(Shift(self_, 1) * slices() + i);
      Signal(reader_, kInputs);
    }
    Wait(source_, 0, kOpen);
    // Steps before `again` write slots for the first time. A later one waits until the reader has done the step in
    // which it reads them; its first such step is 3.
    const int again = 2 + BlocksInSlots();
    for (int step = 2; step <= ranks(); ++step) {
      if (step >= again && step < ranks()) Wait(reader_, 0, kRead, step - again + 1);
      for (int i = 0; i < slices(); ++i) Fold(step, i);
      if (step >= 3 && step - 3 + again < ranks()) Signal(source_, kRead);
    }
    Signal(source_, kRead);
    Wait(reader_, 0, kRead, std::max(0, ranks() - again) + 1);
  }

  void Fold(int step, int slice) {
    const int block = Shift(self_, step == ranks() ? 0 : step);
    const bool last = step == ranks();
    if (step > 2) {
      Wait(source_, 0, kPassed, (step - 3) * slices() + slice + 1);
    } else if (produced()) {
      Wait(source_, 0, kInputs, slice + 1);
    }
    Await(block * slices() + slice);
    Op& reduce = Add(OpKind::kReduce);
    reduce.finish = last;
    reduce.dst = {last ? Out(self_, 0, slice) : SlotOf(self_, step, slice)};
    reduce.src = {step > 2 ? SlotOf(source_, step - 1, slice) : In(source_, block, slice), In(self_, block, slice)};
    last ? Notify(slice) : Signal(reader_, kPassed);
  }

  int self_ = 0, source_ = 0, reader_ = 0;
};

}  // namespace

Result<Schedule> ChunkedRing(const plan::Contract& contract, const Chunking& chunking) {
  return ChunkedRingWriter(contract, chunking).Write();
}

}  // namespace axccl::algo
