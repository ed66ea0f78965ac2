// The addresses of the pieces of strided operands in a range of a logical box (kernels/host/box.h), for a block's
// threads.
//
// Dimensions that are contiguous in all operands are merged; the bytes of an element count as the innermost dimension.
// The innermost merged dimension is a *run*, contiguous in all operands. A run consists of pieces of a power of two
// bytes, at most 16, and the threads share the pieces of the range. The object is in the block's shared memory; each
// function says which threads call it.
//
// If a copy's source is contiguous along one dimension and its destinations along another, pieces in the order of the
// box are neighbours on one side at most. Such a range is cut into tiles of these two dimensions. Tiles may extend
// beyond the ends of the dimensions and of the range, so some pieces of a tile may not exist.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

inline constexpr uint64_t kMaxBoxPieces = 1 << 30;  // limit of a move

inline constexpr uint32_t kTileBytes = 4096;  // at most
inline constexpr uint32_t kTileWaste = 4;     // tiles may have room for at most this many times the pieces of the range

// The logarithm of the pieces along a side of a tile: at least the 32 bytes that memory transfers at a time.
AXCCL_DEVICE constexpr uint32_t TileSideBits(uint32_t piece) { return piece <= 4 ? 5 : 4; }

AXCCL_DEVICE uint64_t LowestBit(uint64_t bits) { return bits & (0 - bits); }

// A divisor for numbers below 2^32; or a divisor of 2^31 or more, for numbers below twice as much.
struct Divisor {
  uint64_t value;
  uint64_t reciprocal;  // 2^64 / value, rounded up; 0 if the value is 1, or 2^31 or more

  static AXCCL_DEVICE Divisor Of(uint64_t value) {
    return {value, value == 1 || value >> 31 != 0 ? 0 : ~uint64_t{0} / value + 1};
  }
  AXCCL_DEVICE uint64_t Quotient(uint64_t number) const {
    if (reciprocal == 0) return value == 1 ? number : number >= value;
    const uint64_t low = static_cast<uint32_t>(reciprocal), high = reciprocal >> 32;
    return ((low * number >> 32) + high * number) >> 32;
  }
};

// One operand's tile, whose pieces are counted along the source's dimension first.
struct Tile {
  uint8_t* place;       // address of the first piece
  uint64_t index;       // index of that piece in the range; modulo 2^64, as the range may begin later
  uint32_t room[2];     // pieces of its sides
  int64_t stride[2];    // bytes
  uint64_t between[2];  // difference of indices
  uint64_t pieces;      // pieces of the range

  AXCCL_DEVICE bool Has(uint32_t x, uint32_t y) const {
    return x < room[0] && y < room[1] && index + x * between[0] + y * between[1] < pieces;
  }
  AXCCL_DEVICE uint8_t* Address(uint32_t x, uint32_t y) const { return place + x * stride[0] + y * stride[1]; }
  static AXCCL_DEVICE uint32_t Room(uint64_t left, uint32_t bits) {
    return left >> bits == 0 ? static_cast<uint32_t>(left) : 1u << bits;
  }
};

struct Box {
  void* tile_memory;  // kTileBytes, aligned to 16; the owner of the box sets it once
  uint64_t pieces;    // pieces of the range
  uint32_t piece;     // bytes of a piece
  uint32_t word;      // alignment of all pieces: 1, 2, 4, 8 or 16
  bool is_run;        // the range is one run, and the operands' addresses are its start
  uint32_t tiles;     // 0: tiles are not used

  // Three steps with a barrier after each. First, one thread sets the range of elements of `element` bytes.
  AXCCL_DEVICE void Begin(uint32_t num_dims, const int64_t* sizes, uint32_t element, uint64_t begin, uint64_t count);
  // Second, one thread for each operand adds it. `place`: the address of the box's first element or, with null strides
  // (a packed operand), of the range's first element. Strides are in elements. Returns the address to use from now on.
  AXCCL_DEVICE uint8_t* Put(uint32_t operand, uint8_t* place, const int64_t* strides);
  // Third, one thread completes the box. `whole_elements`: pieces consist of whole elements, which then have no odd
  // sizes.
  AXCCL_DEVICE_CALL void End(uint8_t** place, uint32_t num_operands, bool whole_elements);

  // The address of an operand's piece, if there are no tiles.
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
  // The bytes of a run, and how many pieces of its run there are from a piece on.
  AXCCL_DEVICE uint64_t RunBytes() const { return per_run_.value * piece; }
  AXCCL_DEVICE uint64_t LeftOfRun(uint64_t index) const {
    const uint64_t in_run = first_ + index;
    return (per_run_.Quotient(in_run) + 1) * per_run_.value - in_run;
  }

 private:
  // A dimension outside the run; the fastest one is the first.
  struct Outer {
    Divisor size;
    uint64_t first;  // index of the range's first element
    uint32_t dim;    // the original dimension whose strides it has
  };

  AXCCL_DEVICE uint64_t Merge(uint32_t splits);
  // The outer dimension along which an operand's pieces are adjacent; num_outer_ if there is none.
  AXCCL_DEVICE uint32_t Fastest(uint32_t operand) const;
  AXCCL_DEVICE void FindTiles(uint8_t* const* place, uint32_t num_operands);
  AXCCL_DEVICE void CutTiles(uint32_t from, uint32_t to);

  uint32_t num_dims_;  // dimensions of more than one element
  uint32_t element_;
  uint64_t begin_, count_;
  uint64_t sizes_[kMaxViewDims];
  uint32_t original_[kMaxViewDims];   // the original dimension
  int64_t strides_[kMaxViewStrides];  // bytes; one operand after another
  uint16_t splits_[kMaxOperands];     // for each operand, a bit for each dimension that does not merge with the next
  uint32_t num_outer_;
  Outer outer_[kMaxViewDims];
  Divisor per_run_;  // pieces
  uint64_t first_;   // the piece of its run (with tiles: of the box) with which the range begins

  // For tiles.
  uint32_t fast_[2];              // outer dimensions: the source's, the destinations'
  uint64_t fast_size_[2];         // pieces
  uint64_t inner_[kMaxViewDims];  // pieces between two indices of an outer dimension
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
  // The stride with which the next dimension would be contiguous; starts with the bytes of an element.
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

// Finds the outer dimensions; returns the bytes of a run.
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

// For a copy whose destinations all have the same fastest dimension, different from the source's.
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

// Cuts tiles, unless they would be mostly empty. The outer dimensions then count tiles. The range advances tile by tile
// along the slower of the two dimensions, and each step takes all tiles of the faster one.
AXCCL_DEVICE void Box::CutTiles(uint32_t from, uint32_t to) {
  const uint32_t slow = from > to ? from : to, bits = TileSideBits(piece);
  const uint64_t begin = begin_ * element_ / piece, over = (1 << bits) - 1;
  uint64_t inner = 1, of_row = 1;  // pieces, and tiles, for an index of the slower dimension
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
