#include "src/exec/channel/channel.h"

namespace axccl::exec {

Channel::Channel(ChannelOwner* owner, std::vector<Member> members, int self, const ChannelOptions& options)
    : members_(owner, std::move(members), self, options.connector),
      workspace_(static_cast<size_t>(members_.size())),
      log_(&members_),
      plans_(&members_, options.plans,
             [this](const plan::Operand& operand) {
               const MemberBuffers& buffers = workspace_.BuffersOf(operand.rank);
               return operand.buffer == plan::Buffer::kInput ? &buffers.input : &buffers.output;
             }),
      order_(options.order),
      group_order_(options.group_order),
      order_key_(options.order_key) {
  if (members_.inbox() != nullptr) workspace_.MakeRoomForMessages();
}

void Channel::AddPair(int rank, bool sending, Channel* pair) {
  pair->main_ = this;
  std::lock_guard lock(messages_mutex_);
  messages_[{rank, sending}] = pair;
}

const Channel* Channel::FindPair(int rank, bool sending) const {
  std::lock_guard lock(messages_mutex_);
  const auto it = messages_.find({rank, sending});
  return it == messages_.end() ? nullptr : it->second;
}

}  // namespace axccl::exec
