#include "src/exec/channel/channel.h"

namespace axccl::exec {

Channel::Channel(ChannelOwner* owner, std::vector<Member> members, int self, const ChannelOptions& options)
    : members_(owner, std::move(members), self, options.connector),
      log_(&members_),
      state_(options.device != nullptr ? options.device->MakeState(members_) : nullptr),
      order_(options.order),
      group_order_(options.group_order),
      order_key_(options.order_key) {}

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

void Channel::AddPipeline(uint64_t key, Channel* pipeline) {
  const std::lock_guard lock(messages_mutex_);
  pipelines_[key] = pipeline;
  pipeline->main_ = this;
  pipeline->pipeline_key_ = key;
}

void Channel::RemovePipeline(uint64_t key) {
  const std::lock_guard lock(messages_mutex_);
  pipelines_.erase(key);
}

const Channel* Channel::FindPipeline(uint64_t key) const {
  const std::lock_guard lock(messages_mutex_);
  const auto it = pipelines_.find(key);
  return it == pipelines_.end() ? nullptr : it->second;
}

}  // namespace axccl::exec
