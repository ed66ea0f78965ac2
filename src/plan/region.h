// The operand resolver: from the symbolic operands of a schedule to element ranges.
//
// The host executor, the verifier, the simulator and the CUDA executor use the same code, so it is constexpr, uses no
// containers and can be called on a device. All quantities are 64-bit element counts; none need be divisible.
//
// A block of `count` elements is cut three times, always at multiples of `granule` elements, remainders spread evenly:
//   1. lanes: lane l of `lanes` owns one contiguous span;
//   2. tiles: the span is walked in tiles of `tile` elements (one turn of the schedule each);
//   3. parts: the tile is cut into `parts` parts.
// Any of the resulting ranges may be empty. The ranges of all (lane, tile, part) partition the block exactly.
//
// In a schedule with slices, lanes and turns do not cut blocks: a block is cut into slices at multiples of a row, and
// each slice into its share of the parts at multiples of the granule (Slicing).
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define AXCCL_HD __host__ __device__
#else
#define AXCCL_HD
#endif

namespace axccl::plan {

struct Range {
  uint64_t begin = 0;  // elements from the start of the block
  uint64_t count = 0;  // elements
};

struct Partition {
  uint64_t count = 0;    // elements of a block
  uint64_t tile = 0;     // elements a lane moves in one turn, a multiple of granule; 0 = the whole span in one turn
  uint32_t granule = 1;  // cut points are multiples of this many elements
  uint32_t lanes = 1;
  uint32_t parts = 1;
};

// Piece i of `count` elements that are cut into `n` pieces at multiples of the granule.
AXCCL_HD constexpr Range Cut(uint64_t count, uint64_t granule, uint32_t n, uint32_t i) {
  if (n == 1) return Range{0, count};
  const uint64_t units = count / granule + (count % granule != 0);
  // floor(i * units / n) without overflow of i * units.
  const uint64_t q = units / n, r = units % n;
  const uint64_t u0 = q * i + r * i / n, u1 = q * (i + 1) + r * (i + 1) / n;
  const uint64_t b = u0 * granule;
  const uint64_t e = i + 1 == n ? count : u1 * granule;
  return b >= count ? Range{count, 0} : Range{b, (e < count ? e : count) - b};
}

AXCCL_HD constexpr Range LaneSpan(const Partition& p, uint32_t lane) { return Cut(p.count, p.granule, p.lanes, lane); }

// The number of turns that every lane needs; at least 1, so that an operation of count 0 still synchronises.
AXCCL_HD constexpr uint64_t Turns(const Partition& p) {
  if (p.tile == 0) return 1;
  uint64_t longest = 0;
  for (uint32_t l = 0; l < p.lanes; ++l) {
    const uint64_t c = LaneSpan(p, l).count;
    longest = c > longest ? c : longest;
  }
  const uint64_t turns = longest / p.tile + (longest % p.tile != 0);
  return turns ? turns : 1;
}

AXCCL_HD constexpr Range Resolve(const Partition& p, uint32_t lane, uint64_t turn, uint32_t part) {
  const Range span = LaneSpan(p, lane);
  Range tile = span;
  if (p.tile != 0) {
    const uint64_t skip = turn * p.tile;
    if (skip >= span.count) return Range{span.begin + span.count, 0};
    const uint64_t left = span.count - skip;
    tile = Range{span.begin + skip, left < p.tile ? left : p.tile};
  }
  const Range piece = Cut(tile.count, p.granule, p.parts, part);
  return Range{tile.begin + piece.begin, piece.count};
}

// The elements that a scratch slot must hold: the largest part of any tile.
AXCCL_HD constexpr uint64_t SlotElements(const Partition& p) {
  uint64_t tile = p.tile;
  if (tile == 0) {
    for (uint32_t l = 0; l < p.lanes; ++l) {
      const uint64_t c = LaneSpan(p, l).count;
      tile = c > tile ? c : tile;
    }
  }
  const uint64_t units = tile / p.granule + (tile % p.granule != 0);
  const uint64_t per_part = units / p.parts + (units % p.parts != 0);
  return per_part * p.granule;
}

// How a block is cut by a schedule with slices.
struct Slicing {
  uint64_t count = 0;    // elements of a block
  uint64_t row = 1;      // elements of one index of the dimension that slices are cut along
  uint32_t granule = 1;  // parts are cut at multiples of this many elements
  uint32_t slices = 0;   // 0: the schedule has none
  uint32_t parts = 1;    // of a block, a multiple of slices
};

AXCCL_HD constexpr Range ResolveSlice(const Slicing& s, uint32_t slice) { return Cut(s.count, s.row, s.slices, slice); }

AXCCL_HD constexpr Range Resolve(const Slicing& s, uint32_t part) {
  const uint32_t parts_of_slice = s.parts / s.slices;
  const Range slice = ResolveSlice(s, part / parts_of_slice);
  const Range piece = Cut(slice.count, s.granule, parts_of_slice, part % parts_of_slice);
  return Range{slice.begin + piece.begin, piece.count};
}

// The elements of the largest part.
AXCCL_HD constexpr uint64_t SlotElements(const Slicing& s) {
  const uint64_t rows = s.count / s.row, parts_of_slice = s.parts / s.slices;
  const uint64_t slice = (rows / s.slices + (rows % s.slices != 0)) * s.row;
  const uint64_t units = slice / s.granule + (slice % s.granule != 0);
  return (units / parts_of_slice + (units % parts_of_slice != 0)) * s.granule;
}

}  // namespace axccl::plan
