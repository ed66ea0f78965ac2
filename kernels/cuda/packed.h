// Packed slots (launch.h): their addresses, words and rows.
//
// A strand that passes a wait for a packed slot has seen the turn's flag in all its words or rows. Threads that load
// them after the following barrier see the same: nothing older, because memory does not change back, and nothing newer,
// because the owner stores the slot of two turns later only once it knows that all have ended this turn. The threads of
// a block store the slot of a turn after a barrier that follows their earlier moves (MovePortion has one), so the words
// or rows also show that these are done.
//
// Eight threads store a row in one instruction, and it arrives as a whole, so a thread that sees its flag finds its
// data: it is loaded like any other, piece by piece.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

// The slot of an endpoint in a turn, among those of its kind, of which the first one is given.
AXCCL_DEVICE uint8_t* SlotAmong(uint8_t* first, uint32_t endpoint, uint64_t turn, size_t slot_bytes) {
  const uint32_t index = endpoint * kRotation + static_cast<uint32_t>(turn % kRotation);
  return first + index * slot_bytes;
}
AXCCL_DEVICE uint8_t* PackedSlot(Channel& channel, uint32_t position, uint32_t endpoint, uint64_t turn, bool rows) {
  const Member& member = channel.members()[position];
  return SlotAmong(rows ? member.rows : member.packed, endpoint, turn, rows ? kRowedSlotBytes : kPackedSlotBytes);
}

// Tags for movers: the address of a packed operand has a bit set that no real address has.
inline constexpr uint64_t kWordsTag = uint64_t{1} << 63, kRowsTag = uint64_t{1} << 62;
AXCCL_DEVICE bool IsPacked(const uint8_t* place) { return (reinterpret_cast<uint64_t>(place) & kWordsTag) != 0; }
AXCCL_DEVICE bool IsRowed(const uint8_t* place) { return (reinterpret_cast<uint64_t>(place) & kRowsTag) != 0; }
AXCCL_DEVICE uint8_t* Tagged(uint8_t* slot, bool rows) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uint64_t>(slot) | (rows ? kRowsTag : kWordsTag));
}

// A tag for slots of all ranks, too, which only the code of multicast.h reads and writes.
inline constexpr uint64_t kAllTag = uint64_t{1} << 61;
AXCCL_DEVICE bool IsOfAll(const uint8_t* place) { return (reinterpret_cast<uint64_t>(place) & kAllTag) != 0; }
AXCCL_DEVICE uint8_t* OfAll(uint8_t* slot) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uint64_t>(slot) | kAllTag);
}
AXCCL_DEVICE uint8_t* AddressOfAll(const uint8_t* place) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uint64_t>(place) & ~kAllTag);
}

// The word with the data from byte `at` on.
AXCCL_DEVICE uint64_t* PackedWord(const uint8_t* place, uint32_t at) {
  return reinterpret_cast<uint64_t*>(reinterpret_cast<uint64_t>(place) & ~kWordsTag) + at / 4;
}
AXCCL_DEVICE bool HasFlag(uint64_t word, uint32_t flag) { return static_cast<uint32_t>(word >> 32) == flag; }

// Flags of words repeat after 2^32 turns (those of rows never do). So that no word keeps a flag for that long, each
// turn clears this word of its slot, if it does not use it.
AXCCL_DEVICE uint32_t WordToForget(uint64_t turn) {
  return static_cast<uint32_t>(turn / kRotation % PackedWords(kPackedBytes));
}

// A place of a row, and the content of a flag's place.
AXCCL_DEVICE uint8_t* RowPlace(const uint8_t* place) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uint64_t>(place) & ~kRowsTag);
}
AXCCL_DEVICE bool IsOfFlag(uint32_t place) { return place % kRowPlaces == kRowPieces; }
// The offset in a slot of rows of the data from byte `at` on, where a piece begins.
AXCCL_DEVICE uint32_t InRows(uint32_t at) { return at + at / (16 * kRowPieces) * 16; }
AXCCL_DEVICE Raw FlagPlace(uint64_t flag) {
  return Raw{{static_cast<uint32_t>(flag), static_cast<uint32_t>(flag >> 32), 0, 0}};
}
AXCCL_DEVICE const uint64_t* FlagOfRow(const uint8_t* slot, uint32_t row) {
  return reinterpret_cast<const uint64_t*>(slot + row * kRowBytes + 16 * kRowPieces);
}

}  // namespace axccl::kernels::cuda
