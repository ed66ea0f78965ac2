// Transposition of small elements through the cache: the copy whose source and destination have different fastest
// dimensions.
//
// A tile of the source is read in whole cache lines, transposed in registers into a block in the first-level cache, and
// written from there in long runs. So neither side's pitch matters, not even one that maps all rows to the same set of
// the cache, and the destination can be streamed. Internal to the per-ISA compilations, see vector.h. Pure functions.
#pragma once

#include "kernels/host/box_nest.h"
#include "kernels/host/runs.h"
#include "kernels/host/vector.h"

namespace axccl::kernels::AXCCL_KERNELS_ISA {

template <int... kIndex>
struct Indices {};
template <int kNum, int... kIndex>
struct IndicesTo : IndicesTo<kNum - 1, kNum - 1, kIndex...> {};
template <int... kIndex>
struct IndicesTo<0, kIndex...> {
  using Type = Indices<kIndex...>;
};

// Lanes a[0] b[0] a[1] b[1] ... of the lower (or upper) half of every 16 bytes: one instruction on x86.
template <bool kUpper, int kPer16, class V, int... kIndex>
AXCCL_INLINE V Zip(V a, V b, Indices<kIndex...>) {
  constexpr int kLanes = sizeof...(kIndex);
  return __builtin_shufflevector(
      a, b, (kIndex / kPer16 * kPer16 + kIndex % kPer16 / 2 + (kUpper ? kPer16 / 2 : 0) + (kIndex % 2) * kLanes)...);
}

// 16 bytes from each of several rows that are `pitch` apart, in one vector.
template <int kBytes>
AXCCL_INLINE Raw<kBytes> LoadRows(const char* from, [[maybe_unused]] int64_t pitch) {
  if constexpr (kBytes == 16) {
    return LoadWord<Raw<16>>(from);
#if defined(__AVX2__)
  } else {
    return (Raw<32>)_mm256_inserti128_si256(_mm256_castsi128_si256(LoadWord<__m128i>(from)),
                                            LoadWord<__m128i>(from + pitch), 1);
#endif
  }
}

template <int kElement>
struct Transposition {
  using Word = typename WordOf<kElement>::Type;
  static constexpr int kLine = kCacheLine / kElement;  // elements
  static constexpr int kCols = 16 / kElement;
  static constexpr size_t kBlockBytes = 16384;
  // Rows of a source tile: their cache lines fill half of the usual first-level cache, the block the other half.
  static constexpr uint64_t kMaxRows = 256;
  // Number of rows to prefetch ahead. Every row may be on a page of its own, which no hardware prefetcher follows. Only
  // to the second-level cache, because rows whose pitch is a large power of two share a few lines of the first.
  static constexpr uint64_t kAhead = 64;
  // Wider vectors were slower for 16-bit elements and no faster for others.
  static constexpr int kWide = kVectorBytes < 32 ? kVectorBytes : 32;

  // Transposes 16 bytes from each of kBytes / kElement rows into kCols rows of kBytes bytes.
  template <int kBytes>
  static AXCCL_INLINE void Square(char* to, int64_t to_pitch, const char* from, int64_t from_pitch) {
    using V = Vector<Word, kBytes>;
    using All = typename IndicesTo<kBytes / kElement>::Type;
    V v[kCols];
    for (int i = 0; i < kCols; ++i) v[i] = (V)LoadRows<kBytes>(from + i * from_pitch, kCols * from_pitch);
    // Each round moves one bit of the index from row to column.
    for (int round = 1; round < kCols; round *= 2) {
      V next[kCols];
      for (int i = 0; i < kCols / 2; ++i) {
        next[2 * i] = Zip<false, kCols>(v[i], v[i + kCols / 2], All{});
        next[2 * i + 1] = Zip<true, kCols>(v[i], v[i + kCols / 2], All{});
      }
      for (int i = 0; i < kCols; ++i) v[i] = next[i];
    }
    for (int i = 0; i < kCols; ++i) StoreWord(to + i * to_pitch, v[i]);
  }

  static AXCCL_INLINE void Elements(char* to, int64_t to_pitch, const char* from, int64_t from_pitch, uint64_t rows,
                                    uint64_t cols) {
    for (uint64_t c = 0; c < cols; ++c, to += to_pitch, from += kElement) {
      for (uint64_t r = 0; r < rows; ++r) {
        StoreWord(to + r * kElement, LoadWord<Word>(from + static_cast<int64_t>(r) * from_pitch));
      }
    }
  }

  // Transposes as many rows as fit vectors of kBytes; returns how many those were. `skip`: the distance in bytes from
  // where the rows past the last one would be to the next tile.
  template <int kBytes>
  static AXCCL_INLINE uint64_t Rows(char* to, int64_t to_pitch, const char* from, int64_t from_pitch, uint64_t rows,
                                    uint64_t cols, uint64_t skip) {
    constexpr uint64_t kRows = kBytes / kElement;
    uint64_t row = 0;
    for (; row + kRows <= rows; row += kRows, to += kBytes, from += static_cast<int64_t>(kRows) * from_pitch) {
      uintptr_t next = reinterpret_cast<uintptr_t>(from) + kAhead * static_cast<uint64_t>(from_pitch);
      if (row + kAhead + kRows > rows) next += skip;
      for (uint64_t i = 0; i < kRows; ++i, next += static_cast<uint64_t>(from_pitch)) {
        __builtin_prefetch(reinterpret_cast<const void*>(next), 0, 2);
      }
      uint64_t col = 0;
      for (; col + kCols <= cols; col += kCols) {
        Square<kBytes>(to + static_cast<int64_t>(col) * to_pitch, to_pitch, from + col * kElement, from_pitch);
      }
      Elements(to + static_cast<int64_t>(col) * to_pitch, to_pitch, from + col * kElement, from_pitch, kRows,
               cols - col);
    }
    return row;
  }

  // Source rows become columns of the block.
  static AXCCL_INLINE void Tile(char* to, int64_t to_pitch, const char* from, int64_t from_pitch, uint64_t rows,
                                uint64_t cols, uint64_t skip) {
    uint64_t row = Rows<kWide>(to, to_pitch, from, from_pitch, rows, cols, skip);
    if constexpr (kWide > 16) {
      row += Rows<16>(to + row * kElement, to_pitch, from + static_cast<int64_t>(row) * from_pitch, from_pitch,
                      rows - row, cols, skip);
    }
    Elements(to + row * kElement, to_pitch, from + static_cast<int64_t>(row) * from_pitch, from_pitch, rows - row,
             cols);
  }

  // Writes the block, rows of `bytes` bytes without gaps, to the destination.
  static AXCCL_INLINE void Write(char* dst, int64_t pitch, const char* block, size_t bytes, uint64_t rows,
                                 bool non_temporal) {
    if (pitch == static_cast<int64_t>(bytes)) {
      bytes *= rows;
      rows = 1;
    }
    for (uint64_t r = 0; r < rows; ++r, dst += pitch, block += bytes) {
      non_temporal&& bytes >= kMinStreamedRun ? Stream(dst, block, bytes) : CopyRun(dst, block, bytes);
    }
  }

  // `along` is the dimension in which the destination is contiguous, `across` that of the source.
  static AXCCL_INLINE void Run(char* dst, const char* src, const NestDim& across, const NestDim& along,
                               bool non_temporal) {
    alignas(kCacheLine) char block[kBlockBytes];
    const uint64_t max_rows = along.count < kMaxRows ? along.count : kMaxRows;
    const uint64_t max_cols = kBlockBytes / kElement / max_rows / kLine * kLine;
    // The first tile of a row ends where a cache line of the source begins.
    const uint64_t first_cols = -reinterpret_cast<uintptr_t>(src) % kCacheLine / kElement;
    uint64_t rows = max_rows;
    for (uint64_t row = 0; row < along.count; row += rows) {
      if (rows > along.count - row) rows = along.count - row;
      const size_t bytes = rows * kElement;
      uint64_t cols = first_cols != 0 ? first_cols : max_cols;
      for (uint64_t col = 0; col < across.count; col += cols, cols = max_cols) {
        if (cols > across.count - col) cols = across.count - col;
        // The next tile is beside this one; after the last one of these rows, the next rows start at the first column.
        const bool beside = col + cols < across.count;
        const uint64_t skip = beside ? cols * kElement - rows * static_cast<uint64_t>(along.src) : -col * kElement;
        Tile(block, static_cast<int64_t>(bytes), src + static_cast<int64_t>(row) * along.src + col * kElement,
             along.src, rows, cols, skip);
        Write(dst + static_cast<int64_t>(col) * across.dst + row * kElement, across.dst, block, bytes, cols,
              non_temporal);
      }
    }
  }
};

}  // namespace axccl::kernels::AXCCL_KERNELS_ISA
