// The operands of a call on views for the executor: checked, dimensions normalised, blocks found (tensor::Blocks).
//
// A block of the call holds a block of every operand, one after the other, each from a multiple of kOperandAlignment
// bytes on. So code that moves blocks and waits for them is independent of the number of operands, and a cut between
// cache lines cuts no element.
//
// In an uneven call the blocks of an operand differ in one dimension: a form is that of one row, which has size 1
// there, and a block is a piece of rows. (Without a dimension, a block is all of the operand or nothing.) Pieces may be
// passed with the call or be in memory that is read when it starts.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/types.h"
#include "src/tensor/view.h"

namespace axccl::exec {

inline constexpr uint64_t kOperandAlignment = 64;

// What ranks must agree on for one operand, besides its type.
struct BlockForm {
  tensor::Shape shape;  // of a block
  int split = -1;       // dimension along which the blocks of an input follow each other; -1: an input is one block
  int concat = -1;      // likewise for outputs

  // Dimensions and their number. Unpack accepts any bits (false: not from Packed); sizes are stored separately.
  uint64_t Packed() const {
    return uint64_t(uint8_t(shape.dims)) | uint64_t(uint8_t(split)) << 8 | uint64_t(uint8_t(concat)) << 16;
  }
  bool Unpack(uint64_t packed);
  // The shape of an operand of `blocks` blocks that follow each other along `dim`.
  tensor::Shape OperandShape(int dim, int blocks) const;
  // The same form with dimension `dim` before all others, and back.
  BlockForm WithFirst(int dim) const;
  BlockForm WithFirstAt(int dim) const;

  friend bool operator==(const BlockForm&, const BlockForm&) = default;
};

// Rows of an operand.
struct Piece {
  int64_t offset = 0;  // of the first row, from the start of the operand
  int64_t extent = 0;  // number of rows

  friend bool operator==(const Piece&, const Piece&) = default;
};

// The rows of the blocks of one operand, on one rank. Uneven calls only.
struct Pieces {
  std::vector<Piece> input, output;  // by block
  // Where the block for each rank begins in that rank's output, if the sender determines that; otherwise empty.
  std::vector<int64_t> targets;
  int64_t input_rows = 0, output_rows = 0;  // number of rows that exist
};

// One operand in the memory of one rank.
struct ViewOperand {
  BlockForm form;
  DataType type = DataType::kInt8;
  uint64_t block_bytes = 0;
  const void* input = nullptr;  // the first element; null if the rank has none
  void* output = nullptr;
  int64_t input_strides[tensor::kMaxDims] = {};  // elements
  int64_t output_strides[tensor::kMaxDims] = {};
  int dim = -1;  // uneven calls: the dimension of the rows; -1: the operand is one row
  Pieces pieces;
};

// The distance in bytes between consecutive ones of the `blocks` blocks that follow each other along `dim`, for an
// operand of an even call. Strides of dimensions without a second index have no meaning.
int64_t BlockStep(const ViewOperand& operand, int dim, int blocks, const int64_t* strides);

// All of an operand of an even call with `blocks` > 0 blocks along `dim`, without its data.
tensor::View WholeView(const ViewOperand& operand, int dim, int blocks, const int64_t* strides);

// Numbers that are read when a call starts; null: they were passed with the call. Each array has one value for each
// rank, used for all operands.
struct LatePieces {
  const int64_t* input_offsets = nullptr;
  const int64_t* input_extents = nullptr;
  const int64_t* targets = nullptr;
  const int64_t* output_extents = nullptr;
  const int32_t* roots = nullptr;  // alone: one for each operand; the root's rows are all, those of other ranks none
};

// How a pipeline cuts the blocks of its one operand. The form and the strides of the operand have `dim` first, so that
// a slice is a range of a block.
struct Slices {
  int64_t slices = 0;  // 0: not a pipeline
  int8_t dim = 0;      // as the application numbers it
  uint8_t order = 0;   // as algo::ChunkOrder
  bool produced = false;

  // What ranks must agree on, never 0 for a pipeline. Unpack accepts any bits.
  uint64_t Packed() const;
  static Slices Unpack(uint64_t packed);
};

struct ViewList {
  std::vector<ViewOperand> operands;  // at least one
  Slices slices = {};
  bool uneven = false;
  double scale = 0;            // factor of a sum of floats; 0: none
  double timeout_seconds = 0;  // of a wait; 0: as the communicator has it. Ranks may differ.
  bool zeros = false;          // outputs of ranks that get no block are filled with zeros
  LatePieces late = {};
  uint64_t pairs = 0;  // for a collective permute: a hash of its pairs

  // A hash of what ranks must agree on; never 0.
  uint32_t Hash() const;
  // The type of all operands, or bytes if they differ, and how many elements of it a block of the call has.
  DataType CommonType() const;
  uint64_t BlockCount() const;
  // Computed from the forms only, so that ranks agree. ShortRuns: most of the data are blocks that lie side by side in
  // the outputs, in short runs that are not whole cache lines. SplitRows: they lie side by side in the inputs, in rows
  // of a few KiB that are farther apart than in the outputs.
  bool ShortRuns() const;
  bool SplitRows() const;

 private:
  template <class Is>
  bool Mostly(const Is& is) const;
};

// "[2, 4] float concatenated along dimension 1", for the blocks of an operand.
std::string Text(const BlockForm& form, DataType type);
// ", in 8 slices along dimension 0, own first, produced"; "" if there are none.
std::string Text(const Slices& slices);

}  // namespace axccl::exec
