// ChunkedWriter: what the generators of schedules with slices (schedule.h) are made with.
//
// A generator derives from it and writes one operation after another, each to the rank and lane that it has chosen with
// At(). Seal() completes the schedule. Belongs to one thread.
#pragma once

#include <string_view>

#include "src/algo/algo.h"
#include "src/base/status.h"
#include "src/plan/schedule.h"

namespace axccl::algo {

class ChunkedWriter {
 protected:
  // `parts`: of a slice.
  ChunkedWriter(const plan::Contract& contract, std::string_view algorithm, int parts, const Chunking& chunking);

  int ranks() const { return contract_.ranks; }
  int slices() const { return schedule_.slices; }
  bool produced() const { return schedule_.produced; }
  plan::Kind kind() const { return contract_.kind; }
  int root() const { return contract_.root; }
  // The order; kDefault only for a kind with one block.
  ChunkOrder order() const { return order_; }
  // Whether each block of an input is for one rank.
  bool by_block() const { return kind() == plan::Kind::kAllToAll || kind() == plan::Kind::kReduceScatter; }
  // The rank `step` places after `rank` on the circle of ranks, which `step` goes round at most once.
  int Shift(int rank, int step) const { return (rank + step + ranks()) % ranks(); }

  // Must come first. kInvalidArgument if there are more lanes than the verifier takes.
  Status SetLanes(int lanes);
  // The operations that follow are of this rank and lane.
  void At(int rank, int lane) { rank_ = rank, lane_ = lane; }
  plan::Op& Add(plan::OpKind kind);
  void Signal(int peer, int endpoint);
  void Wait(int source, int lane, int endpoint, int value = 1);
  void Copy(plan::Operand to, plan::Operand from);
  void Await(int chunk);  // nothing unless inputs are produced
  void Notify(int chunk);

  plan::Schedule& schedule() { return schedule_; }
  // Numbers the operations, and finds out how many endpoints and slots there are.
  plan::Schedule Seal();
  // The schedule of a group of one.
  Result<plan::Schedule> Alone();

 private:
  const plan::Contract contract_;
  const ChunkOrder order_;
  plan::Schedule schedule_;
  int rank_ = 0, lane_ = 0;
};

// The place of `block` in BlockOrder(), for a kind with several blocks and `order` other than the default.
int PositionOf(ChunkOrder order, int block, int rank, int ranks);

}  // namespace axccl::algo
