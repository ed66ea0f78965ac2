// The channels that the ranks of a communicator create, on the side of one rank.
//
// Creating is local. A rank lays out its part in its heap without touching it, and enters it in a table in its block
// (exec/layout.h), under a key that all members of the group compute alike. A channel's first operation finds the parts
// of the other members and waits until they have found each other; from then on it runs like any other. The key counts
// how often a rank has created a channel of the same id and group after the last one was gone, so a rank that is ahead
// never finds another rank's earlier channel.
//
// A part goes back to the heap when its channel is gone here and no peer uses it any more. This is checked whenever a
// channel is created or released, and at the latest together with the communicator's block.
//
// Thread-safe. A GroupChannel lives until it is released and its last operation has dropped it, but never longer than
// its communicator.
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/device/host/timeline.h"
#include "src/exec/channel/channel.h"

namespace axccl::comm {

class ChannelTable;
class Communicator;

// The identity of a channel within a communicator.
struct ChannelName {
  int64_t id = 0;
  std::vector<int32_t> ranks;  // of the communicator, in group order
  // For a pair (sender, receiver), a pipeline and a tag: the text of the channel from whose key the id is derived.
  std::string messages_on = {}, pipeline_on = {}, tag_on = {};
  // The id of that channel, if it was created.
  std::optional<int64_t> on_id = {};

  uint64_t Hash() const;
  std::string Text() const;  // "channel 7 of ranks [0 2]"
  friend auto operator<=>(const ChannelName&, const ChannelName&) = default;
};

class GroupChannel : private exec::Connector, public exec::Channel {
 public:
  // This rank's part: memory in its heap, and its entry in the block.
  struct Part {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
    uint32_t slot = 0;
    uint32_t place = 0;  // of the word that refers to the slot
    uint64_t key = 0;
    uint32_t generation = 0;
    int area = -1;                                               // see exec::Connector
    std::vector<transport::Reach*> reaches;                      // of the members
    std::vector<std::weak_ptr<transport::Reach::Area>> mirrors;  // through which members have the part
  };

  GroupChannel(ChannelTable* table, ChannelName name, Part part, std::vector<exec::Member> members, int self,
               device::host::TimelinePtr order, bool group_order);
  ~GroupChannel();

  const ChannelName& name() const { return name_; }
  const Part& part() const { return part_; }
  // The channel for messages between this rank and the one at `position` (another rank). `sending`: from here to there.
  // It shares this channel's order and lives as long. For a tag, it has an order of its own.
  Result<exec::Channel*> PairChannel(int position, bool sending);
  // The orders of those channels, if they have some of their own.
  void AddOrdersOfPairs(std::vector<device::host::TimelinePtr>* orders);
  // This is the channel of a pipeline on that one.
  void PutOn(exec::Channel* on);
  // For the first channel of a pipeline: returns an error if a member has created another one under the same number.
  // Looks at the members that have been found to agree no more. Used by the thread that drives the pipeline.
  Status CompareCreated();
  void* user = nullptr;                             // set by the API; guarded by the table
  std::vector<std::shared_ptr<GroupChannel>> tags;  // of this channel, once it is released

 private:
  friend class ChannelTable;

  // exec::Connector
  Result<int> Connect(std::vector<exec::Member>* members) override;
  bool HasJoined(int position) const override;
  Status CheckMissing(int position) const override;
  Status CheckLeft(int position) const override;
  Result<int> TakeArea() override;
  void PublishArea() override;
  std::string Name() const override { return name_.Text(); }

  static constexpr uint32_t kNotFound = ~0u;
  void Leave();
  uint32_t PlaceAt(const exec::Member& peer) const;
  bool IsGoneFrom(const exec::Member& peer, uint64_t key) const;
  Result<bool> Agrees(const exec::Member& peer) const;
  Status CheckUnused(int position) const;
  Result<bool> Find(size_t position, exec::Member* member);
  Status CheckOther(const exec::Member& peer, uint32_t place) const;
  bool IsOurs(exec::ChannelSlot* slot) const;

  ChannelTable* const table_;
  const ChannelName name_;
  Part part_;
  std::vector<uint32_t> found_;  // by position: the slot in that member's block
  uint64_t main_key_ = 0;        // for messages: the key of their channel
  // Likewise, on GPU ranks: this rank saw that the member has created it, and has not used it.
  std::vector<bool> created_;
  std::vector<bool> agreed_;  // by position: see CompareCreated
  // For a pipeline: the channel that it is on, and, if that was created, what keeps it alive.
  exec::Channel* on_ = nullptr;
  std::shared_ptr<exec::Channel> on_hold_;
  std::mutex pairs_mutex_;
  std::map<std::pair<int, bool>, std::shared_ptr<GroupChannel>> pairs_;
};

class ChannelTable {
 public:
  explicit ChannelTable(Communicator* comm) : comm_(comm) {}

  // Returns the live channel of that name, or a new one (`made`). This rank must be in the group. `note` is called
  // before other calls here can find it. kInvalidUsage when there are too many, or the live one has the other order.
  using Note = std::function<void(GroupChannel*, bool made)>;
  Result<GroupChannel*> Acquire(ChannelName name, bool group_order, const Note& note);
  // What a channel for one plan needs of each of its ranks. Without lanes: nothing runs on it.
  struct Needs {
    std::vector<int32_t> ranks;  // of the communicator
    uint32_t lanes = 1, endpoints = 1;
    uint64_t scratch_bytes = 0;
  };
  // Makes the channels of a pipeline on the channel `on`, which is called `name`. The number of such calls, the same on
  // all ranks of that channel, tells pipelines apart; a call that fails does not count. The first of them has all ranks
  // of `on`, and says to them that the pipeline is for `call` (GroupChannel::CompareCreated). Devices of which channels
  // take an area have one for each on which something runs. To be released one by one.
  Result<std::vector<GroupChannel*>> AddForPipeline(exec::Channel* on, const std::string& name, const exec::Call& call,
                                                    std::span<const Needs> needs);
  // The channel for the messages with that tag (not 0) on the channel `on`; made when a rank first uses it. Nothing
  // runs on it but messages (PairChannel). It lives as long as `on`.
  Result<GroupChannel*> TagOn(exec::Channel* on, int tag);
  // Removes the channel if `last` returns true, which is called while no other thread can acquire it; otherwise returns
  // null. The channel is destroyed when the caller and its running operations have dropped it.
  std::shared_ptr<GroupChannel> Release(GroupChannel* channel, const std::function<bool()>& last);

  // Everything that has been launched on channels so far.
  std::vector<device::host::Mark> Outstanding();
  // Releases all channels. Returns the memory that peers still use.
  std::vector<void*> Close();
  // Bytes of memory that channels occupy.
  uint64_t resident_bytes();

 private:
  friend class GroupChannel;

  // *channel must outlive the lock that the caller holds, because destroying a channel takes that lock.
  Status Make(const ChannelName& name, device::host::TimelinePtr order, bool group_order,
              const exec::ChannelLayout& layout, uint64_t bytes, const exec::Call* created_call,
              std::shared_ptr<GroupChannel>* channel);
  // Makes the channel known, as one at that offset of the heap.
  void FillSlot(const GroupChannel& channel, uint64_t offset, const exec::Call* created_call);
  // The same with the layout that all channels have which run any call.
  Status MakeUsual(const ChannelName& name, device::host::TimelinePtr order, bool group_order,
                   std::shared_ptr<GroupChannel>* channel);
  // Finds room for a part with that key.
  Status Enter(GroupChannel::Part* part) const;
  // Called when a channel ends: no rank finds its part any more.
  void Withdraw(const GroupChannel::Part& part);
  // Makes the members see the word at the part's place, and `stretches` before it.
  void PublishEntry(const GroupChannel::Part& part, std::span<const transport::Reach::Stretch> stretches) const;
  bool TryFree(const GroupChannel::Part& part);
  bool MayReadArea(const transport::Reach& reach, uint64_t key) const;
  void Sweep();
  // With the lock: returns an error unless that many areas of the rank's device are free.
  Status CheckAreas(size_t needed);
  // Likewise.
  Status TakeArea(GroupChannel::Part* part);
  // Whether this rank has created that channel, now or in the past.
  bool HasCreated(const ChannelName& name, uint32_t generation);

  Communicator* const comm_;
  std::mutex mutex_;  // guards everything below
  std::map<ChannelName, std::shared_ptr<GroupChannel>> channels_;
  std::map<std::pair<uint64_t, int>, std::shared_ptr<GroupChannel>> tags_;  // by order key of the channel, and tag
  std::unordered_map<uint64_t, uint32_t> created_;    // how often, by hash of the name; grows with the names ever used
  std::unordered_map<uint64_t, uint32_t> pipelines_;  // how many so far, by the key of the channel that they are on
  std::bitset<exec::kChannelWords> taken_;            // words of the table
  std::vector<uint32_t> free_slots_;                  // used before; reused first, so that few pages are touched
  uint32_t used_slots_ = 0;                           // slots from here on were never used
  std::vector<bool> areas_;                           // for a GPU rank: which areas are taken
  std::vector<GroupChannel::Part> limbo_;             // withdrawn, in use by peers
  std::vector<device::host::TimelinePtr> retired_;    // orders of released channels that may have work left
};

}  // namespace axccl::comm
