#include "src/comm/pair_channels.h"

#include "src/comm/communicator.h"

namespace axccl::comm {

// A pair's group is (source, destination): position 0 sends. Its scratch exists before it signals, so it need not wait
// for the other rank.
Result<std::vector<exec::Member>> PairChannels::MembersOf(int src, int dst) const {
  const std::vector<exec::Member>& members = comm_->members();
  std::vector<exec::Member> pair{members[static_cast<size_t>(src)], members[static_cast<size_t>(dst)]};
  for (exec::Member& member : pair)
    member.layout = comm_->block().layout().Pair(static_cast<uint32_t>(src), static_cast<uint32_t>(dst),
                                                 static_cast<uint32_t>(member.rank));
  exec::Member& sender = pair[0];
  const bool sends = src == comm_->identity().rank;
  if (!comm_->device().traits().stages_in_block || !sends || sender.layout.apart == 0) return pair;
  uint64_t offset = 0;
  AXCCL_ASSIGN_OR_RETURN(sender.scratch, comm_->TakeShared(sender.layout.scratch_bytes, &offset));
  sender.layout.ApartOf(sender.block)->scratch.store(offset, std::memory_order_release);
  return pair;
}

Result<exec::Channel*> PairChannels::Of(int peer, bool sending) {
  std::lock_guard lock(mutex_);
  auto& pair = pairs_[2 * static_cast<size_t>(peer) + (sending ? 0 : 1)];
  if (pair == nullptr) {
    const int self = comm_->identity().rank;
    AXCCL_ASSIGN_OR_RETURN(std::vector<exec::Member> members, MembersOf(sending ? self : peer, sending ? peer : self));
    pair =
        std::make_unique<exec::Channel>(comm_, std::move(members), sending ? 0 : 1,
                                        exec::ChannelOptions{.order = comm_->launches(), .device = &comm_->device()});
    comm_->channel()->AddPair(peer, sending, pair.get());
  }
  return pair.get();
}

}  // namespace axccl::comm
