// Which pipelines the ranks of a channel have created under the same number.
#include <algorithm>
#include <atomic>

#include "src/comm/block.h"
#include "src/comm/channel_slots.h"
#include "src/comm/channels.h"
#include "src/comm/communicator.h"
#include "src/exec/channel/recorded_call.h"

namespace axccl::comm {

Status GroupChannel::CompareCreated() {
  for (size_t p = 0; p < agreed_.size(); ++p) {
    if (agreed_[p]) continue;
    AXCCL_ASSIGN_OR_RETURN(agreed_[p], Agrees(member(static_cast<int>(p))));
  }
  return Status();
}

// False: not known yet. A member that has destroyed its end is through with it, and no concern any more.
Result<bool> GroupChannel::Agrees(const exec::Member& peer) const {
  const exec::BlockLayout& layout = table_->comm_->block().layout();
  const uint32_t place = PlaceAt(peer);
  if (place == kNotFound) return IsGoneFrom(peer, part_.key);
  const std::atomic<uint64_t>* const word_there = layout.KeyOf(BlockOf(peer), place);
  const uint64_t word = word_there->load(std::memory_order_seq_cst);
  if (KeyIn(word) != part_.key || SlotIn(word) == exec::kGoneSlot) return false;
  const SlotUse use(layout, peer, place, word);
  if (!use.valid()) return false;
  const exec::RecordedCall theirs(layout.CreatedCallOf(BlockOf(peer), SlotIn(word)));
  // In a mirror, another channel's entry may have arrived meanwhile.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (word_there->load(std::memory_order_seq_cst) != word) return false;
  const exec::RecordedCall mine(layout.CreatedCallOf(table_->comm_->block().data(), part_.slot));
  if (mine == theirs) return true;
  const std::string my_text = mine.Text(), their_text = theirs.Text();
  return MakeStatus(
      Code::kInvalidUsage,
      "mismatch: %s is %s on rank %d, and %s%s on rank %d; ranks create the pipelines of a channel in the "
      "same order, with the same specs",
      name_.Text().c_str(), my_text.c_str(), own().rank, their_text.c_str(), my_text == their_text ? mine.Hidden() : "",
      peer.rank);
}

}  // namespace axccl::comm
