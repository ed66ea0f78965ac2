// Packed slots (launch.h): where they are, their words and rows.
//
// Who passes a wait for a packed slot has seen the turn's flag in all its words or rows, and who loads them behind the
// barrier after that sees the same: nothing older, as nobody sees memory change back, and nothing newer, as the owner
// stores the slot of two turns later once it knows that all have ended this turn. The threads of a block store the slot
// of a turn behind a barrier after their moves before it (MovePortion has one), so its words or rows say that, too.
//
// A row is stored by eight threads in one instruction and arrives as a whole, so whoever sees its flag finds its data
// there: they are loaded like any others, piece by piece.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

AXCCL_DEVICE uint8_t* PackedSlot(Channel& channel, uint32_t position, uint32_t endpoint, uint64_t turn, bool rows) {
  const uint32_t index = endpoint * kRotation + static_cast<uint32_t>(turn % kRotation);
  const Member& member = channel.members()[position];
  return rows ? member.rows + uint64_t{index} * kRowedSlotBytes : member.packed + uint64_t{index} * kPackedSlotBytes;
}

// For movers: the place of a packed operand has a bit that no address has.
inline constexpr uint64_t kWordsTag = uint64_t{1} << 63, kRowsTag = uint64_t{1} << 62;
AXCCL_DEVICE bool IsPacked(const uint8_t* place) { return (reinterpret_cast<uint64_t>(place) & kWordsTag) != 0; }
AXCCL_DEVICE bool IsRowed(const uint8_t* place) { return (reinterpret_cast<uint64_t>(place) & kRowsTag) != 0; }
AXCCL_DEVICE uint8_t* Tagged(uint8_t* slot, bool rows) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uint64_t>(slot) | (rows ? kRowsTag : kWordsTag));
}

// The word with the data from byte `at` on.
AXCCL_DEVICE uint64_t* PackedWord(const uint8_t* place, uint32_t at) {
  return reinterpret_cast<uint64_t*>(reinterpret_cast<uint64_t>(place) & ~kWordsTag) + at / 4;
}
AXCCL_DEVICE bool HasFlag(uint64_t word, uint32_t flag) { return static_cast<uint32_t>(word >> 32) == flag; }

// A place of a row, and what is at that of the flag.
AXCCL_DEVICE uint8_t* RowPlace(const uint8_t* place) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uint64_t>(place) & ~kRowsTag);
}
AXCCL_DEVICE bool IsOfFlag(uint32_t place) { return place % kRowPlaces == kRowPieces; }
// Bytes from the start of a slot of rows to the data from byte `at` on, where a piece begins.
AXCCL_DEVICE uint32_t InRows(uint32_t at) { return at + at / (16 * kRowPieces) * 16; }
AXCCL_DEVICE Raw FlagPlace(uint64_t flag) {
  return Raw{{static_cast<uint32_t>(flag), static_cast<uint32_t>(flag >> 32), 0, 0}};
}
AXCCL_DEVICE const uint64_t* FlagOfRow(const uint8_t* slot, uint32_t row) {
  return reinterpret_cast<const uint64_t*>(slot + row * kRowBytes + 16 * kRowPieces);
}

}  // namespace axccl::kernels::cuda
