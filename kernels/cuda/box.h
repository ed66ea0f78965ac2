// Where the pieces of strided operands lie: a range of a logical box, as kernels/host/box.h has it, for a block's
// threads.
//
// Dimensions that lie contiguously in all operands are merged, the bytes of an element being the innermost one; what is
// innermost then is a *run*, contiguous everywhere. A run is made of pieces of a power of two bytes, at most 16, and
// the threads share out the pieces of the range. In the block's shared memory; who calls what is said at the functions.
//
// Where a copy's source lies piece by piece in one dimension and its destinations in another one, pieces in the order
// of the box are neighbours on one side at most. Such a range is cut into tiles of these two dimensions. Tiles may hang
// over the ends of the dimensions and of the range, so not all pieces of a tile are there.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

inline constexpr uint64_t kMaxBoxPieces = 1 << 30;  // of a move

inline constexpr uint32_t kTileBytes = 4096;  // at most
inline constexpr uint32_t kTileWaste = 4;     // times the pieces of a range is what its tiles may have room for

// Pieces of a side of a tile: at least the 32 bytes that memory moves at a time.
AXCCL_DEVICE constexpr uint32_t TileSideBits(uint32_t piece) { return piece <= 4 ? 5 : 4; }

AXCCL_DEVICE uint64_t LowestBit(uint64_t bits) { return bits & (0 - bits); }

// A divisor of numbers below 2^32; or one of 2^31 or more, of numbers below twice as much.
struct Divisor {
  uint64_t value;
  uint64_t reciprocal;  // of 2^64, rounded up; 0: 1 or 2^31 or more

  static AXCCL_DEVICE Divisor Of(uint64_t value) {
    return {value, value == 1 || value >> 31 != 0 ? 0 : ~uint64_t{0} / value + 1};
  }
  AXCCL_DEVICE uint64_t Quotient(uint64_t number) const {
    if (reciprocal == 0) return value == 1 ? number : number >= value;
    const uint64_t low = static_cast<uint32_t>(reciprocal), high = reciprocal >> 32;
    return ((low * number >> 32) + high * number) >> 32;
  }
};

// Of a tile of an operand, its pieces counted in the source's dimension first.
struct Tile {
  uint8_t* place;       // of the first piece
  uint64_t index;       // of that in the range, which may begin later: modulo 2^64
  uint32_t room[2];     // pieces of its sides
  int64_t stride[2];    // bytes
  uint64_t between[2];  // of indices
  uint64_t pieces;      // of the range

  AXCCL_DEVICE bool Has(uint32_t x, uint32_t y) const {
    return x < room[0] && y < room[1] && index + x * between[0] + y * between[1] < pieces;
  }
  AXCCL_DEVICE uint8_t* Address(uint32_t x, uint32_t y) const { return place + x * stride[0] + y * stride[1]; }
  static AXCCL_DEVICE uint32_t Room(uint64_t left, uint32_t bits) {
    return left >> bits == 0 ? static_cast<uint32_t>(left) : 1u << bits;
  }
};

struct Box {
  void* tile_memory;  // kTileBytes, aligned to 16; who has the box sets it once
  uint64_t pieces;    // of the range
  uint32_t piece;     // bytes of one
  uint32_t word;      // 1, 2, 4, 8 or 16: what all pieces are aligned to
  bool is_run;        // the range is one run: the operands' places are where it starts
  uint32_t tiles;     // 0: not by tiles

  // Three steps with a barrier after each. First, by one thread: the range of elements of `element` bytes.
  AXCCL_DEVICE void Begin(uint32_t num_dims, const int64_t* sizes, uint32_t element, uint64_t begin, uint64_t count);
  // By a thread for each operand. `place`: of the box's first element, and null strides: packed, of the range's first.
  // Strides are in elements. The place that the operand has from now on.
  AXCCL_DEVICE uint8_t* Put(uint32_t operand, uint8_t* place, const int64_t* strides);
  // By one thread. `whole_elements`: pieces are of whole elements, of which there are no odd sizes then.
  AXCCL_DEVICE_CALL void End(uint8_t** place, uint32_t num_operands, bool whole_elements);

  // Of a piece of an operand, where there are no tiles.
  AXCCL_DEVICE uint8_t* Address(uint32_t operand, uint8_t* place, uint64_t index) const {
    const uint64_t in_run = first_ + index;
    uint64_t row = per_run_.Quotient(in_run);
    int64_t offset = static_cast<int64_t>((in_run - row * per_run_.value) * piece);
    const int64_t* const strides = strides_ + operand * num_dims_;
#pragma unroll 1
    for (uint32_t d = 0; d < num_outer_; ++d) {
      const uint64_t at = outer_[d].first + row;
      row = outer_[d].size.Quotient(at);
      offset += static_cast<int64_t>(at - row * outer_[d].size.value) * strides[outer_[d].dim];
    }
    return place + offset;
  }
  AXCCL_DEVICE Tile TileOf(uint32_t operand, uint8_t* place, uint32_t number) const;
  // Of a run; and how many pieces of one there are from a piece on.
  AXCCL_DEVICE uint64_t RunBytes() const { return per_run_.value * piece; }
  AXCCL_DEVICE uint64_t LeftOfRun(uint64_t index) const {
    const uint64_t in_run = first_ + index;
    return (per_run_.Quotient(in_run) + 1) * per_run_.value - in_run;
  }

 private:
  // A dimension beyond the run, the fastest of them first.
  struct Outer {
    Divisor size;
    uint64_t first;  // index of the range's first element
    uint32_t dim;    // whose strides are its own
  };

  AXCCL_DEVICE uint64_t Merge(uint32_t splits);
  // Of an operand: in which outer dimension pieces lie side by side; num_outer_: in none.
  AXCCL_DEVICE uint32_t Fastest(uint32_t operand) const;
  AXCCL_DEVICE void FindTiles(uint8_t* const* place, uint32_t num_operands);
  AXCCL_DEVICE void CutTiles(uint32_t from, uint32_t to);

  uint32_t num_dims_;  // of more than one element
  uint32_t element_;
  uint64_t begin_, count_;
  uint64_t sizes_[kMaxViewDims];
  uint32_t original_[kMaxViewDims];   // which dimension it was
  int64_t strides_[kMaxViewStrides];  // bytes; of an operand after each other
  uint16_t splits_[kMaxOperands];     // of an operand: a bit for each dimension that the next one does not merge with
  uint32_t num_outer_;
  Outer outer_[kMaxViewDims];
  Divisor per_run_;  // pieces
  uint64_t first_;   // piece of its run that the range begins with; of the box, where there are tiles

  // Of tiles.
  uint32_t fast_[2];              // outer dimensions: the source's, the destinations'
  uint64_t fast_size_[2];         // pieces
  uint64_t inner_[kMaxViewDims];  // pieces of an outer dimension between two indices
};

AXCCL_DEVICE void Box::Begin(uint32_t num_dims, const int64_t* sizes, uint32_t element, uint64_t begin,
                             uint64_t count) {
  num_dims_ = 0;
  element_ = element;
  begin_ = begin;
  count_ = count;
  for (uint32_t d = 0; d < num_dims; ++d) {
    if (sizes[d] == 1) continue;
    sizes_[num_dims_] = static_cast<uint64_t>(sizes[d]);
    original_[num_dims_++] = d;
  }
}

AXCCL_DEVICE uint8_t* Box::Put(uint32_t operand, uint8_t* place, const int64_t* strides) {
  // Of the dimension that comes next, or of the bytes of an element.
  int64_t dense = element_;
  int64_t* const own = strides_ + operand * num_dims_;
  uint32_t splits = 0;
#pragma unroll 1
  for (uint32_t d = num_dims_; d-- > 0;) {
    own[d] =
        strides == nullptr
            ? dense
            : static_cast<int64_t>(LoadRelaxed(reinterpret_cast<const uint64_t*>(strides) + original_[d])) * element_;
    if (own[d] != dense) splits |= 1u << d;
    dense = own[d] * static_cast<int64_t>(sizes_[d]);
  }
  splits_[operand] = static_cast<uint16_t>(splits);
  return strides == nullptr ? place - begin_ * element_ : place;
}

// Finds the outer dimensions; the bytes of a run.
AXCCL_DEVICE uint64_t Box::Merge(uint32_t splits) {
  uint64_t run = element_;
  uint32_t d = num_dims_;
  for (; d > 0 && (splits >> (d - 1) & 1) == 0; --d) run *= sizes_[d - 1];
  for (num_outer_ = 0; d > 0; ++num_outer_) {
    outer_[num_outer_].dim = --d;
    uint64_t size = sizes_[d];
    for (; d > 0 && (splits >> (d - 1) & 1) == 0; --d) size *= sizes_[d - 1];
    outer_[num_outer_].size = Divisor::Of(size);
  }
  return run;
}

AXCCL_DEVICE_CALL inline void Box::End(uint8_t** place, uint32_t num_operands, bool whole_elements) {
  uint32_t splits = 0;
  for (uint32_t i = 0; i < num_operands; ++i) splits |= splits_[i];
  const uint64_t run = Merge(splits), begin = begin_ * element_, bytes = count_ * element_;
  uint64_t row = begin / run;
  for (uint32_t d = 0; d < num_outer_; ++d) {
    const uint64_t size = outer_[d].size.value;
    outer_[d].first = d + 1 == num_outer_ ? row : row % size;
    row /= size;
  }
  is_run = begin % run + bytes <= run;
  uint64_t aligned = 0;
  for (uint32_t i = 0; i < num_operands; ++i) {
    const int64_t* const strides = strides_ + i * num_dims_;
    uint64_t at = begin % run;
    for (uint32_t d = 0; d < num_outer_; ++d) {
      aligned |= static_cast<uint64_t>(strides[outer_[d].dim]);
      at += outer_[d].first * static_cast<uint64_t>(strides[outer_[d].dim]);
    }
    if (is_run) place[i] += at;
    aligned |= reinterpret_cast<uint64_t>(place[i]);
  }
  const uint64_t fits = LowestBit(run | begin | bytes | 16);
  word = static_cast<uint32_t>(LowestBit(aligned | fits));
  piece = whole_elements ? static_cast<uint32_t>(fits) : word;
  pieces = bytes / piece;
  per_run_ = Divisor::Of(run / piece);
  first_ = begin % run / piece;
  tiles = 0;
  if (!whole_elements && !is_run && run == piece) FindTiles(place, num_operands);
}

AXCCL_DEVICE uint32_t Box::Fastest(uint32_t operand) const {
  uint32_t d = 0;
  while (d < num_outer_ && strides_[operand * num_dims_ + outer_[d].dim] != piece) ++d;
  return d;
}

// For a copy whose destinations all have the same fastest dimension, and not that of the source.
AXCCL_DEVICE void Box::FindTiles(uint8_t* const* place, uint32_t num_operands) {
  const uint32_t source = num_operands - 1, from = Fastest(source);
  uint32_t to = num_outer_;
  for (uint32_t i = 0; i < source; ++i) {
    if (place[i] == place[source]) continue;
    const uint32_t fastest = Fastest(i);
    if (to != num_outer_ && fastest != to) return;
    to = fastest;
    if (to == num_outer_) return;
  }
  if (from != num_outer_ && to != num_outer_ && from != to) CutTiles(from, to);
}

// Unless they were mostly empty. The outer dimensions count tiles from then on; within the slower one of the two the
// range goes from tile to tile, and takes all of the faster ones with each.
AXCCL_DEVICE void Box::CutTiles(uint32_t from, uint32_t to) {
  const uint32_t slow = from > to ? from : to, bits = TileSideBits(piece);
  const uint64_t begin = begin_ * element_ / piece, over = (1 << bits) - 1;
  uint64_t inner = 1, of_row = 1;  // pieces, and tiles, of an index of the slower dimension
  for (uint32_t d = 0; d < num_outer_; ++d) {
    const uint64_t size = outer_[d].size.value;
    inner_[d] = inner;
    inner *= size;
    if (d < slow) of_row *= d == from || d == to ? (size + over) >> bits : size;
  }
  const uint64_t row = inner_[slow], size = outer_[slow].size.value, first = outer_[slow].first;
  if (row > pieces) return;
  const uint64_t last = first + (begin % row + pieces - 1) / row;
  const uint64_t rows = last / size * ((size + over) >> bits) + (last % size >> bits) - (first >> bits) + 1;
  if (rows * of_row << 2 * bits > kTileWaste * pieces) return;
  tiles = static_cast<uint32_t>(rows * of_row);
  first_ = begin;
  for (uint32_t d = 0; d < slow; ++d) outer_[d].first = 0;
  outer_[slow].first = first >> bits;
  for (uint32_t i = 0; i < 2; ++i) {
    Outer& outer = outer_[fast_[i] = i == 0 ? from : to];
    fast_size_[i] = outer.size.value;
    outer.size = Divisor::Of((outer.size.value + over) >> bits);
  }
}

AXCCL_DEVICE Tile Box::TileOf(uint32_t operand, uint8_t* place, uint32_t number) const {
  const int64_t* const strides = strides_ + operand * num_dims_;
  const uint32_t bits = TileSideBits(piece);
  Tile tile{place, 0 - first_, {}, {}, {}, pieces};
  uint64_t rest = number;
#pragma unroll 1
  for (uint32_t d = 0; d < num_outer_; ++d) {
    uint64_t at = outer_[d].first + rest;
    rest = outer_[d].size.Quotient(at);
    at -= rest * outer_[d].size.value;
    if (d == fast_[0] || d == fast_[1]) at <<= bits;
    if (d == fast_[0]) tile.room[0] = Tile::Room(fast_size_[0] - at, bits);
    if (d == fast_[1]) tile.room[1] = Tile::Room(fast_size_[1] - at, bits);
    tile.place += static_cast<int64_t>(at) * strides[outer_[d].dim];
    tile.index += at * inner_[d];
  }
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    tile.stride[i] = strides[outer_[fast_[i]].dim];
    tile.between[i] = inner_[fast_[i]];
  }
  return tile;
}

}  // namespace axccl::kernels::cuda
