// Moves pieces of a box that have more operands than a nest supports: reductions, and copies to several destinations.
//
// If all operands share long contiguous runs, each run is one call of the flat movers. Otherwise the piece is cut into
// tiles of a few KiB. Every source that is not contiguous in the tile is gathered into a block of the scratch memory,
// the flat movers combine the blocks, and the result is written to every destination; gathering and writing are nests.
// So every source is read once and every destination written once, and a source may be a destination. Internal to the
// box movers. Owns nothing, not thread-safe, allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/box_plan.h"
#include "kernels/host/isa.h"

namespace axccl::kernels {

class TiledMove {
 public:
  // Without `reduce`, it is a copy. The scratch memory is aligned to 64 bytes and has ScratchBytes(operands) bytes.
  TiledMove(const IsaTable& isa, const BoxPlan& plan, const BoxOperands& operands, const BoxReduceRequest* reduce,
            bool non_temporal, char* scratch);

  static size_t ScratchBytes(const BoxOperands& operands);

  void Run(const BoxPiece& piece);

 private:
  // A dimension of the piece, in the order of the first destination's memory. The strides are those of the plan's
  // dimension.
  struct Dim {
    int of_plan;
    uint64_t extent;
    uint64_t tile;
    uint64_t at;  // start of the current tile
  };

  static size_t BlockBytes(const BoxOperands& operands);
  int64_t Stride(const BoxOperand& operand, int i) const;
  void Arrange(const BoxPiece& piece);
  bool SharesStrides(int outer, int inner) const;
  uint64_t FlatRun() const;
  bool NextTile(int num_dims);
  char* TileAddress(const BoxOperand& operand) const;

  void RunFlat();
  void RunRows();
  uint64_t RowsAhead() const;
  void Flat(uint64_t count);
  void ChooseTile(uint64_t flat_run);
  uint64_t CutTile();
  bool ContiguousInTile(const BoxOperand& operand) const;
  void MoveTile();
  void Gather(const BoxOperand& operand, char* block) const;
  void Scatter(const BoxOperand& operand, const char* block) const;

  const IsaTable& isa_;
  const BoxPlan& plan_;
  const BoxOperands operands_;
  const size_t element_bytes_;
  const bool non_temporal_;
  ReduceRequest request_;
  bool reduces_;
  // In the scratch memory: one pointer for each operand and two more; one block for each source and one for the result.
  char** pointers_;
  char** next_row_;
  char** later_row_;
  char* blocks_;
  size_t block_bytes_;

  const BoxPiece* piece_ = nullptr;
  int num_dims_ = 0;
  Dim dim_[kMaxBoxDims];
  uint64_t cut_[kMaxBoxDims];  // extents of the current tile
};

}  // namespace axccl::kernels
