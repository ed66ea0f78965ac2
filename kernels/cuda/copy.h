// The code of the movers that copy (movers.h). Must be included only once in a program.
#pragma once

#include <cstdint>

#include "kernels/cuda/movers.h"
#include "kernels/cuda/pieces.h"

namespace axccl::kernels::cuda {

template <class Word>
AXCCL_DEVICE Word LoadAs(const uint8_t* p) {
  if constexpr (sizeof(Word) == 16) {
    return LoadRaw(p);
  } else {
    return LoadWord<Word>(p);
  }
}
template <class Word>
AXCCL_DEVICE void StoreAs(uint8_t* p, const Word& word) {
  if constexpr (sizeof(Word) == 16) {
    StoreRaw(p, word);
  } else {
    StoreWord<Word>(p, word);
  }
}

// Copies units, of which `at(operand, place, i)` is the address of the i-th one, so that neighbouring threads access
// neighbouring units. `kTogether`: loads of a thread in flight.
template <class Unit, uint32_t kTogether, class At>
AXCCL_DEVICE void CopyUnits(const Move& move, uint32_t units, const At& at) {
  uint8_t* const from = move.src()[0];
  const uint32_t step = NumThreads();
#pragma unroll 1
  for (uint32_t first = ThreadIndex(); first < units; first += kTogether * step) {
    Unit unit[kTogether];
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const uint32_t i = first + u * step;
      if (i < units) unit[u] = LoadAs<Unit>(at(move.num_dst, from, i));
    }
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      if (move.place[d] == from) continue;
#pragma unroll
      for (uint32_t u = 0; u < kTogether; ++u) {
        const uint32_t i = first + u * step;
        if (i < units) StoreAs<Unit>(at(d, move.place[d], i), unit[u]);
      }
    }
  }
}

// For operands of different alignment.
template <class Word>
AXCCL_DEVICE void CopyWords(const Move& move, uint32_t bytes) {
  const auto at = [](uint32_t, uint8_t* place, uint32_t i) { return place + i * sizeof(Word); };
  CopyUnits<Word, 8>(move, bytes / sizeof(Word), at);
}

AXCCL_DEVICE void CopyAligned(const Move& move, const Pieces& pieces) {
  const auto at = [&](uint32_t, uint8_t* place, uint32_t i) { return place + pieces.head + 16 * i; };
  CopyUnits<Raw, 4>(move, pieces.aligned, at);
}

// For a copy whose source or some destination is a slot of rows: threads share the places of the rows.
AXCCL_DEVICE_CALL inline void CopyRows(const Move& in_shared, Pieces pieces) {
  const Move& move = InShared(in_shared);
  uint8_t* const from = move.src()[0];
  const uint32_t places = StoredRows(pieces.bytes) * kRowPlaces;
#pragma unroll 1
  for (uint32_t first = 0; first < places; first += NumThreads()) {
    const uint32_t place = first + ThreadIndex();
    const Raw piece = LoadPiece(from, place, pieces);
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      uint8_t* const to = move.place[d];
      if (to == from) continue;
      if (IsRowed(to)) {
        StorePlace(to, place, places, piece, move.flag);
      } else {
        StorePiece(to, place, piece, pieces);
      }
    }
  }
}

// Copies the pieces that are not aligned, from number `first` on in steps of the number of threads.
AXCCL_DEVICE void CopyOthers(const Move& move, const Pieces& pieces, uint8_t* from, uint32_t first) {
#pragma unroll 1
  for (uint32_t i = first; i < pieces.NumOthers(); i += NumThreads()) {
    uint32_t at = 0;
    const uint32_t size = pieces.Other(i, &at);
    const Raw raw = LoadPart(pieces.Address(move.num_dst, from, at), size, pieces.word);
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      if (move.place[d] != from) StorePart(pieces.Address(d, move.place[d], at), raw, size, pieces.word, move.flag);
    }
  }
}

AXCCL_DEVICE_CALL void CopyElements(const Move& move) {
  const auto bytes = static_cast<uint32_t>(move.count) * move.element;
  const Pieces pieces = Pieces::Of(move.place, move.num_operands(), bytes, 1);
  if (pieces.rows) return CopyRows(move, pieces);
  uint8_t* const from = move.src()[0];
  if (pieces.aligned == 0 && bytes % pieces.word == 0 && move.packing == Packing::kNone) {
    if (pieces.word == 4) return CopyWords<uint32_t>(move, bytes);
    if (pieces.word == 2) return CopyWords<uint16_t>(move, bytes);
    return CopyWords<uint8_t>(move, bytes);
  }
#if defined(AXCCL_CUDA_HAS_BULK)
  if (16 * pieces.aligned >= BulkLeast() && move.ring->stage_bytes != 0) {
    // The last threads copy the ends meanwhile.
    CopyOthers(move, pieces, from, NumThreads() - 1 - ThreadIndex());
    if (IsBulkIssuer()) CopyRunInBulk(move, move.ring, pieces.aligned, pieces.head);
    return;
  }
#endif
  CopyAligned(move, pieces);
  CopyOthers(move, pieces, from, ThreadIndex());
}

// Copies the pieces of a box, which are words.
template <class Word>
AXCCL_DEVICE void CopyBoxWords(const Move& move, const Box& box) {
  const auto at = [&](uint32_t operand, uint8_t* place, uint32_t i) { return box.Address(operand, place, i); };
  CopyUnits<Word, 4>(move, static_cast<uint32_t>(box.pieces), at);
}

// A tile is read in the order of the source and written in the order of the destinations. In between it is stored in
// rows along the source's dimension, with words exchanged so that the words of a column are also in different banks.
template <class Word>
AXCCL_DEVICE uint32_t InTile(uint32_t x, uint32_t y) {
  return (y << TileSideBits(sizeof(Word))) + (x ^ y);
}

template <class Word>
AXCCL_DEVICE void LoadTile(const Tile& tile, Word* memory) {
  constexpr uint32_t kBits = TileSideBits(sizeof(Word)), kSide = 1 << kBits, kTogether = 2;
  const uint32_t step = NumThreads();
#pragma unroll 1
  for (uint32_t first = ThreadIndex(); first < kSide * kSide; first += kTogether * step) {
    Word word[kTogether] = {};
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const uint32_t i = first + u * step, x = i % kSide, y = i / kSide;
      if (tile.Has(x, y)) word[u] = LoadAs<Word>(tile.Address(x, y));
    }
#pragma unroll
    for (uint32_t u = 0; u < kTogether; ++u) {
      const uint32_t i = first + u * step, x = i % kSide, y = i / kSide;
      if (y < kSide) memory[InTile<Word>(x, y)] = word[u];
    }
  }
}

template <class Word>
AXCCL_DEVICE void StoreTile(const Tile& tile, const Word* memory) {
  constexpr uint32_t kBits = TileSideBits(sizeof(Word)), kSide = 1 << kBits;
#pragma unroll 1
  for (uint32_t i = ThreadIndex(); i < kSide * kSide; i += NumThreads()) {
    const uint32_t x = i / kSide, y = i % kSide;
    if (tile.Has(x, y)) StoreAs<Word>(tile.Address(x, y), memory[InTile<Word>(x, y)]);
  }
}

template <class Word>
AXCCL_DEVICE void CopyTiles(const Move& move, const Box& box) {
  static_assert(sizeof(Word) << 2 * TileSideBits(sizeof(Word)) <= kTileBytes);
  uint8_t* const from = move.src()[0];
  Word* const memory = &InShared(*static_cast<Word*>(box.tile_memory));
#pragma unroll 1
  for (uint32_t t = 0; t < box.tiles; ++t) {
    LoadTile(box.TileOf(move.num_dst, from, t), memory);
    Barrier();  // the tile is complete
#pragma unroll 1
    for (uint32_t d = 0; d < move.num_dst; ++d) {
      if (move.place[d] != from) StoreTile(box.TileOf(d, move.place[d], t), memory);
    }
    Barrier();  // no thread reads the tile any more
  }
}

template <class Word>
AXCCL_DEVICE void CopyBoxOf(const Move& move, const Box& box) {
  if (box.tiles != 0) return CopyTiles<Word>(move, box);
  CopyBoxWords<Word>(move, box);
}

AXCCL_DEVICE_CALL void CopyBox(const Move& move, const Box& box) {
#if defined(AXCCL_CUDA_HAS_BULK)
  // A thread takes several hundred instructions for each run, so all threads together are faster with shorter ones.
  const uint32_t stage_bytes = move.ring->stage_bytes;
  if (stage_bytes != 0 && box.word == 16 && 16 * box.pieces >= BulkLeast() && box.RunBytes() >= stage_bytes) {
    if (IsBulkIssuer()) CopyBoxInBulk(move, move.ring, box);
    return;
  }
#endif
  switch (box.word) {
    case 16:
      return CopyBoxOf<Raw>(move, box);
    case 8:
      return CopyBoxOf<uint64_t>(move, box);
    case 4:
      return CopyBoxOf<uint32_t>(move, box);
    case 2:
      return CopyBoxOf<uint16_t>(move, box);
    default:
      return CopyBoxOf<uint8_t>(move, box);
  }
}

}  // namespace axccl::kernels::cuda
