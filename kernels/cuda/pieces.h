// How the threads of a block share operands; operands in one run of memory in units of 16 bytes.
//
// If all operands have the same alignment, all pieces but the first and the last are whole and aligned; otherwise every
// piece is split into words. For strided operands, the box defines the pieces. Packed slots of rows have their pieces
// at other places (below). Pure functions, except for the loads and stores.
#pragma once

#include <cstdint>

#include "kernels/cuda/box.h"
#include "kernels/cuda/packed.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

// An operand has at most 2^30 bytes, so byte counts fit one register.
struct Pieces {
  uint32_t bytes;            // of an operand
  uint32_t aligned;          // number of aligned pieces, which are consecutive
  uint32_t head;             // bytes before them
  uint32_t word;             // bytes of the words that all the rest consists of, at most 4
  const Box* box = nullptr;  // for strided operands; `bytes` is then that of a piece
  bool rows = false;         // some operand is a slot of rows, and therefore aligned to 16: there is no head
  bool packed = false;       // some operand is a slot of packed words
  // The sources, one after the other in shared memory, each with whole pieces; if `aligned` is not 0, these pieces are
  // scaled where they are.
  Raw* kept = nullptr;

  // For `num` operands that consist of elements of `element` bytes.
  static AXCCL_DEVICE Pieces Of(uint8_t* const* place, uint32_t num, uint32_t bytes, uint32_t element) {
    const auto first = reinterpret_cast<uint64_t>(place[0]);
    uint64_t differences = 0;
    for (uint32_t i = 1; i < num; ++i) differences |= reinterpret_cast<uint64_t>(place[i]) ^ first;
    Pieces pieces{bytes, 0, 0, 1};
    const uint64_t misaligned = differences | first;
    if (misaligned % 4 == 0) {
      pieces.word = 4;
    } else if (misaligned % 2 == 0) {
      pieces.word = 2;
    }
    pieces.rows = (misaligned & kRowsTag) != 0;
    pieces.packed = (misaligned & kWordsTag) != 0;
    if (pieces.packed) return pieces;
    const auto head = static_cast<uint32_t>((0 - first) % 16);
    if (differences % 16 != 0 || head % element != 0 || head + 16 > bytes) return pieces;
    pieces.head = head;
    pieces.aligned = (bytes - head) / 16;
    return pieces;
  }

  static AXCCL_DEVICE Pieces Of(const Box& box) {
    const bool whole = box.piece == 16 && box.word == 16;
    return Pieces{box.piece, whole ? static_cast<uint32_t>(box.pieces) : 0, 0, box.word < 4 ? box.word : 4, &box};
  }

  // The address of an operand's piece. `where` is its index in the box, or its offset in bytes from the operand's
  // start.
  AXCCL_DEVICE uint8_t* Address(uint32_t operand, uint8_t* place, uint32_t where) const {
    if (box != nullptr) return InShared(*box).Address(operand, place, where);
    return place + (uint64_t{where} << IsPacked(place));
  }

  // Whether they are runs of words of 4 bytes, without a common alignment.
  AXCCL_DEVICE bool InWords() const {
    return word == 4 && aligned == 0 && !rows && !packed && box == nullptr && kept == nullptr;
  }
  // The number of pieces that are not aligned, of at most 16 bytes; some may be empty.
  AXCCL_DEVICE uint32_t NumOthers() const {
    if (box != nullptr) return static_cast<uint32_t>(box->pieces) - aligned;
    return aligned != 0 ? 2 : (bytes + 15) / 16;
  }
  AXCCL_DEVICE uint32_t Other(uint32_t index, uint32_t* at) const {
    if (box != nullptr) return bytes;
    if (aligned != 0 && index == 0) {
      *at = 0;
      return head;
    }
    *at = aligned != 0 ? head + 16 * aligned : 16 * index;
    return bytes - *at < 16 ? bytes - *at : 16;
  }
};

// Loads a whole piece in words of 4 or 2 bytes; all loads are in flight together.
AXCCL_DEVICE Raw LoadWords(const uint8_t* p, uint32_t word) {
  Raw raw;
  if (word == 4) {
#pragma unroll
    for (int w = 0; w < 4; ++w) raw.word[w] = LoadWord<uint32_t>(p + 4 * w);
  } else {
#pragma unroll
    for (int w = 0; w < 4; ++w)
      raw.word[w] = LoadWord<uint16_t>(p + 4 * w) | uint32_t{LoadWord<uint16_t>(p + 4 * w + 2)} << 16;
  }
  return raw;
}
AXCCL_DEVICE void StoreWords(uint8_t* p, const Raw& raw, uint32_t word) {
  if (word == 4) {
#pragma unroll
    for (int w = 0; w < 4; ++w) StoreWord<uint32_t>(p + 4 * w, raw.word[w]);
  } else {
#pragma unroll
    for (int h = 0; h < 8; ++h) StoreWord<uint16_t>(p + 2 * h, static_cast<uint16_t>(raw.word[h / 2] >> (h % 2 * 16)));
  }
}

// Loads the first `bytes` bytes of a piece; the rest is zero. Inlined in every mover, so the rest of it is small.
AXCCL_DEVICE Raw LoadPart(const uint8_t* p, uint32_t bytes, uint32_t word) {
  const bool packed = IsPacked(p);
  if (bytes == 16 && word > 1 && !packed) return LoadWords(p, word);
  uint64_t half[2] = {0, 0};
#pragma unroll 1
  for (uint32_t at = 0; at < bytes;) {
    const uint32_t size = packed ? 4 : bytes - at < word ? 1 : word;
    uint64_t value;
    if (packed) {
      value = static_cast<uint32_t>(LoadFlagged(PackedWord(p, at)));
    } else if (size == 4) {
      value = LoadWord<uint32_t>(p + at);
    } else if (size == 2) {
      value = LoadWord<uint16_t>(p + at);
    } else {
      value = LoadWord<uint8_t>(p + at);
    }
    value <<= 8 * (at % 8);
    half[0] |= at < 8 ? value : 0;
    half[1] |= at < 8 ? 0 : value;
    at += size;
  }
  return Raw{{static_cast<uint32_t>(half[0]), static_cast<uint32_t>(half[0] >> 32), static_cast<uint32_t>(half[1]),
              static_cast<uint32_t>(half[1] >> 32)}};
}

// `flag`: the flag of a packed operand's words.
AXCCL_DEVICE void StorePart(uint8_t* p, const Raw& raw, uint32_t bytes, uint32_t word, uint64_t flag) {
  const bool packed = IsPacked(p);
  if (bytes == 16 && word > 1 && !packed) return StoreWords(p, raw, word);
  const uint64_t half[2] = {raw.word[0] | uint64_t{raw.word[1]} << 32, raw.word[2] | uint64_t{raw.word[3]} << 32};
#pragma unroll 1
  for (uint32_t at = 0; at < bytes;) {
    const uint32_t size = packed ? 4 : bytes - at < word ? 1 : word;
    const uint64_t value = (at < 8 ? half[0] : half[1]) >> (8 * (at % 8));
    if (packed) {
      StoreFlagged(PackedWord(p, at), static_cast<uint32_t>(value) | flag << 32);
    } else if (size == 4) {
      StoreWord<uint32_t>(p + at, static_cast<uint32_t>(value));
    } else if (size == 2) {
      StoreWord<uint16_t>(p + at, static_cast<uint16_t>(value));
    } else {
      StoreWord<uint8_t>(p + at, static_cast<uint8_t>(value));
    }
    at += size;
  }
}

// ---- rows ----

// The piece at a place of rows: its bytes, and its offset in an operand that is not a slot of rows. There is none at
// the places of flags, nor beyond the end, where rows are added so that whole warps store.
AXCCL_DEVICE uint32_t PieceAt(uint32_t place, uint32_t bytes, uint32_t* at) {
  *at = 16 * (place - place / kRowPlaces);
  return IsOfFlag(place) || *at >= bytes ? 0 : bytes - *at < 16 ? bytes - *at : 16;
}

AXCCL_DEVICE Raw LoadPiece(const uint8_t* from, uint32_t place, const Pieces& pieces) {
  uint32_t at;
  const uint32_t size = PieceAt(place, pieces.bytes, &at);
  if (IsRowed(from)) return size != 0 ? LoadRaw(RowPlace(from) + 16 * place) : Raw{};
  return size == 16 && pieces.aligned != 0 ? LoadRaw(from + at) : LoadPart(from + at, size, pieces.word);
}

// To a slot of rows of so many places.
AXCCL_DEVICE void StorePlace(uint8_t* slot, uint32_t place, uint32_t places, const Raw& piece, uint64_t flag) {
  StoreRow(place < places ? RowPlace(slot) + 16 * place : nullptr, IsOfFlag(place) ? FlagPlace(flag) : piece);
}

AXCCL_DEVICE void StorePiece(uint8_t* to, uint32_t place, const Raw& piece, const Pieces& pieces) {
  uint32_t at;
  const uint32_t size = PieceAt(place, pieces.bytes, &at);
  if (size == 16 && pieces.aligned != 0) return StoreRaw(to + at, piece);
  StorePart(to + at, piece, size, pieces.word, 0);
}

}  // namespace axccl::kernels::cuda
