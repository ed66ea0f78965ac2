// Packed slots (launch.h): where they are, and their words.
//
// Who passes a wait for a packed slot has seen the turn's flag in all its words, and who loads them behind the barrier
// after that sees the same words: not older ones, as nobody sees a word change back, and not newer ones, as the owner
// stores those of two turns later once it knows that all have ended this turn. The threads of a block store the words
// of a turn behind a barrier after their moves before it (MovePortion has one), so words of a turn say that, too.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

AXCCL_DEVICE uint8_t* PackedSlot(Channel& channel, uint32_t position, uint32_t endpoint, uint64_t turn) {
  const uint32_t index = endpoint * kRotation + static_cast<uint32_t>(turn % kRotation);
  return channel.members()[position].packed + uint64_t{index} * kPackedSlotBytes;
}

// For movers: the place of a packed operand has a bit that no address has.
inline constexpr uint64_t kPackedTag = uint64_t{1} << 63;
AXCCL_DEVICE bool IsPacked(const uint8_t* place) { return (reinterpret_cast<uint64_t>(place) & kPackedTag) != 0; }
AXCCL_DEVICE uint8_t* Tagged(uint8_t* slot) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uint64_t>(slot) | kPackedTag);
}

// The word with the data from byte `at` on.
AXCCL_DEVICE uint64_t* PackedWord(const uint8_t* place, uint32_t at) {
  return reinterpret_cast<uint64_t*>(reinterpret_cast<uint64_t>(place) & ~kPackedTag) + at / 4;
}
AXCCL_DEVICE bool HasFlag(uint64_t word, uint32_t flag) { return static_cast<uint32_t>(word >> 32) == flag; }

}  // namespace axccl::kernels::cuda
