// How a rank reads the tables of channels in the blocks of its peers (exec/layout.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "src/exec/channel/members.h"
#include "src/exec/layout.h"

namespace axccl::comm {

// A member's table of channels is in its block of the communicator.
inline std::byte* BlockOf(const exec::Member& member) { return reinterpret_cast<std::byte*>(member.header); }

// The content of a word of the table of channels.
inline uint64_t KeyIn(uint64_t word) { return word & ~exec::kSlotBits; }
inline uint32_t SlotIn(uint64_t word) { return static_cast<uint32_t>(word & exec::kSlotBits); }

// Looks at the places for that key in the table of channels of a block: the first whose word `is(word)`.
template <class Is>
std::optional<uint32_t> FindPlace(const exec::BlockLayout& layout, std::byte* block, uint64_t key, const Is& is) {
  for (uint32_t probe = 0; probe < exec::kSlotProbes; ++probe) {
    const uint32_t place = exec::PlaceOfKey(key, probe);
    if (is(layout.KeyOf(block, place)->load(std::memory_order_seq_cst))) return place;
  }
  return std::nullopt;
}
// The place of a channel that the owner of the block has and has not released.
inline std::optional<uint32_t> PlaceOf(const exec::BlockLayout& layout, std::byte* block, uint64_t key) {
  return FindPlace(layout, block, key,
                   [key](uint64_t word) { return KeyIn(word) == key && SlotIn(word) != exec::kGoneSlot; });
}

// Holds a peer's slot while it is read, so that its owner does not free the part meanwhile.
class SlotUse {
 public:
  // `word` is the value that was read at `place` of the peer's table.
  SlotUse(const exec::BlockLayout& layout, const exec::Member& peer, uint32_t place, uint64_t word)
      : slot_(layout.SlotOf(BlockOf(peer), SlotIn(word))) {
    slot_->users.fetch_add(1, std::memory_order_seq_cst);
    valid_ = layout.KeyOf(BlockOf(peer), place)->load(std::memory_order_seq_cst) == word;
  }
  ~SlotUse() {
    if (slot_ != nullptr) slot_->users.fetch_sub(1, std::memory_order_seq_cst);
  }
  SlotUse(const SlotUse&) = delete;
  SlotUse& operator=(const SlotUse&) = delete;
  bool valid() const { return valid_; }
  void Keep() { slot_ = nullptr; }

 private:
  exec::ChannelSlot* slot_;
  bool valid_;
};

}  // namespace axccl::comm
