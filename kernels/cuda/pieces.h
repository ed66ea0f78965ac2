// How the threads of a block share out operands that lie in one piece of memory each: 16 bytes at a time.
//
// Where all operands are aligned alike all pieces but the first and the last are whole and aligned; else every piece is
// taken apart into words. Pure functions, but for the loads and stores.
#pragma once

#include <cstdint>

#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

struct Pieces {
  uint64_t bytes;    // of an operand
  uint64_t aligned;  // how many aligned pieces there are, one after the other
  uint32_t head;     // bytes before them
  uint32_t word;     // bytes of the words of which all the rest is made

  // Of `num` operands that are made of elements of `element` bytes.
  static AXCCL_DEVICE Pieces Of(uint8_t* const* place, uint32_t num, uint64_t bytes, uint32_t element) {
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
    const auto head = static_cast<uint32_t>((0 - first) % 16);
    if (differences % 16 != 0 || head % element != 0 || head + 16 > bytes) return pieces;
    pieces.head = head;
    pieces.aligned = (bytes - head) / 16;
    return pieces;
  }

  // The pieces that are not aligned, of 16 bytes at most; some may be empty.
  AXCCL_DEVICE uint64_t NumOthers() const { return aligned != 0 ? 2 : (bytes + 15) / 16; }
  AXCCL_DEVICE uint32_t Other(uint64_t index, uint64_t* at) const {
    if (aligned != 0 && index == 0) {
      *at = 0;
      return head;
    }
    *at = aligned != 0 ? head + 16 * aligned : 16 * index;
    return static_cast<uint32_t>(bytes - *at < 16 ? bytes - *at : 16);
  }
};

// The first `bytes` bytes of a piece, the rest zero.
AXCCL_DEVICE_CALL inline Raw LoadPart(const uint8_t* p, uint32_t bytes, uint32_t word) {
  Raw raw;
#pragma unroll
  for (uint32_t w = 0; w < 4; ++w, p += 4) {
    const uint32_t left = bytes > 4 * w ? bytes - 4 * w : 0;
    uint32_t value = 0;
    if (word == 4 && left >= 4) {
      value = LoadWord<uint32_t>(p);
    } else if (word >= 2 && left >= 4) {
      value = LoadWord<uint16_t>(p) | uint32_t{LoadWord<uint16_t>(p + 2)} << 16;
    } else {
      for (uint32_t b = 0; b < 4 && b < left; ++b) value |= uint32_t{LoadWord<uint8_t>(p + b)} << (8 * b);
    }
    raw.word[w] = value;
  }
  return raw;
}

AXCCL_DEVICE_CALL inline void StorePart(uint8_t* p, Raw raw, uint32_t bytes, uint32_t word) {
#pragma unroll
  for (uint32_t w = 0; w < 4; ++w, p += 4) {
    const uint32_t left = bytes > 4 * w ? bytes - 4 * w : 0;
    const uint32_t value = raw.word[w];
    if (word == 4 && left >= 4) {
      StoreWord<uint32_t>(p, value);
    } else if (word >= 2 && left >= 4) {
      StoreWord<uint16_t>(p, static_cast<uint16_t>(value));
      StoreWord<uint16_t>(p + 2, static_cast<uint16_t>(value >> 16));
    } else {
      for (uint32_t b = 0; b < 4 && b < left; ++b) StoreWord<uint8_t>(p + b, static_cast<uint8_t>(value >> (8 * b)));
    }
  }
}

}  // namespace axccl::kernels::cuda
