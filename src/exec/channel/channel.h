// A channel: one replica group of a communicator, its shared memory and sequence numbers, on the side of one rank.
//
// Its parts are its members, the log of their calls, and what the executor of the rank keeps for it. Operations of a
// channel run one after the other (the communicator ensures that). One thread at a time uses a channel: the one that
// drives the operation. Sequence and turn numbers advance equally on all ranks because all ranks run the same
// operations; op records and line signatures show when they do not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/device/host/timeline.h"
#include "src/exec/channel/call_log.h"
#include "src/exec/channel/members.h"
#include "transports/transport.h"

namespace axccl::exec {

// What an executor keeps for a channel from one operation to the next. Only the executor knows what that is.
class ChannelState {
 public:
  virtual ~ChannelState() = default;
};

// Makes that state: what a channel knows of its rank's device. `members` are the channel's and outlive the state.
class StateMaker {
 public:
  virtual std::unique_ptr<ChannelState> MakeState(const Members& members) = 0;

 protected:
  ~StateMaker() = default;
};

struct ChannelOptions {
  device::host::TimelinePtr order = nullptr;  // launches on channels of one order follow each other
  Connector* connector = nullptr;             // the first operation connects the members
  bool group_order = false;                   // all its reductions are in group order
  // For a communicator's channel: a key that is the same on all ranks, for it and the channels of its messages.
  uint64_t order_key = 1;
  StateMaker* device = nullptr;  // null: nothing runs on the channel
};

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  Channel(ChannelOwner* owner, std::vector<Member> members, int self, const ChannelOptions& options = {});

  Members& members() { return members_; }
  const Members& members() const { return members_; }
  CallLog& log() { return log_; }
  const CallLog& log() const { return log_; }
  // Null where the executor keeps nothing here.
  ChannelState* state() const { return state_.get(); }

  // The members' properties that are used most.
  int size() const { return members_.size(); }
  int self() const { return members_.self(); }
  const Member& member(int position) const { return members_[position]; }
  const Member& own() const { return members_.own(); }
  ChannelOwner* owner() const { return members_.owner(); }

  const device::host::TimelinePtr& order() const { return order_; }
  bool group_order() const { return group_order_; }
  uint64_t order_key() const { return order_key_; }
  // The channel whose messages between two ranks this one carries, or that its pipeline is on; itself, if it is
  // neither. A created channel must be held together with those of its messages: see Hold.
  Channel* main() { return main_ != nullptr ? main_ : this; }
  const Channel* main() const { return main_ != nullptr ? main_ : this; }
  // Makes `pair` carry this channel's messages to the rank, or from it.
  void AddPair(int rank, bool sending, Channel* pair);
  // Returns null if there have been no such messages.
  const Channel* FindPair(int rank, bool sending) const;
  // Makes `pipeline`, whose key is the same on all its ranks, run in the order of this channel, until it is removed.
  // This channel must live as long.
  void AddPipeline(uint64_t key, Channel* pipeline);
  void RemovePipeline(uint64_t key);
  // Returns null if there is none.
  const Channel* FindPipeline(uint64_t key) const;
  // The key of a pipeline's channel; 0: another kind of channel.
  uint64_t pipeline_key() const { return pipeline_key_; }
  // Keeps this channel, and those of its messages, alive; null if the communicator does so.
  std::shared_ptr<Channel> Hold() { return main()->weak_from_this().lock(); }

 private:
  Members members_;
  CallLog log_;
  const std::unique_ptr<ChannelState> state_;
  const device::host::TimelinePtr order_;
  const bool group_order_;
  const uint64_t order_key_;
  Channel* main_ = nullptr;
  uint64_t pipeline_key_ = 0;
  mutable std::mutex messages_mutex_;  // also of pipelines
  std::map<uint64_t, Channel*> pipelines_;
  std::map<std::pair<int, bool>, Channel*> messages_;  // by rank and whether sending
};

}  // namespace axccl::exec
