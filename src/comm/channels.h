// The channels that the ranks of a communicator create for themselves, on the side of one rank.
//
// Creating is local: a rank lays out its part in its heap, touching none of it, and enters it, under a key that all
// members of the group compute alike, in a table in its block (exec/layout.h). A channel's first operation finds the
// parts of the others and waits until they have found each other; from then on it runs like any. The key counts how
// often a rank has created a channel of the same id and group after the last one was gone, so that a rank that is ahead
// never meets a rank's earlier channel.
//
// A part goes back to the heap when its channel is gone here and no peer uses it any more, which is looked at whenever
// a channel comes or goes, and at the latest together with the communicator's block.
//
// Thread-safe. A GroupChannel lives until it is released and its last operation has let go of it; never longer than its
// communicator.
#pragma once

#include <atomic>
#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/device/host/timeline.h"
#include "src/exec/channel.h"

namespace axccl::comm {

class ChannelTable;
class Communicator;

// What tells channels of a communicator apart.
struct ChannelName {
  int64_t id = 0;
  std::vector<int32_t> ranks;  // of the communicator, in group order
  std::string messages_on =
      {};  // of a pair (sender, receiver): the text of their channel; the id is made of its key then

  uint64_t Hash() const;
  std::string Text() const;  // "channel 7 of ranks [0 2]"
  friend auto operator<=>(const ChannelName&, const ChannelName&) = default;
};

class GroupChannel : private exec::Connector, public exec::Channel {
 public:
  // The own part: memory in the own heap, and where it is entered in the block.
  struct Part {
    std::byte* memory = nullptr;
    uint64_t bytes = 0;
    uint32_t slot = 0;
    uint32_t place = 0;  // of the word that leads there
    uint64_t key = 0;
    uint32_t generation = 0;
    int area = -1;                                                 // see exec::Connector
    std::vector<transport::Reach*> reaches;                        // of the members
    std::vector<std::shared_ptr<transport::Reach::Area>> mirrors;  // by which members have the part
  };

  GroupChannel(ChannelTable* table, ChannelName name, Part part, std::vector<exec::Member> members, int self,
               device::host::TimelinePtr order, bool group_order);
  ~GroupChannel();

  const ChannelName& name() const { return name_; }
  const Part& part() const { return part_; }
  // The channel for messages between this rank and the one at `position` (another). `sending`: from here to there. It
  // has the order of this one and lives as long.
  Result<exec::Channel*> PairChannel(int position, bool sending);
  void* user = nullptr;  // of the API; guarded by the table

 private:
  // exec::Connector
  Result<int> Connect(std::vector<exec::Member>* members) override;
  Status CheckMissing(int position) const override;
  Status CheckLeft(int position) const override;
  Result<int> TakeArea() override;
  void TellArea() override;
  std::string Name() const override { return name_.Text(); }

  static constexpr uint32_t kNotFound = ~0u;
  void Leave();
  uint32_t PlaceAt(const exec::Member& peer) const;
  bool IsGoneFrom(const exec::Member& peer, uint64_t key) const;
  Status CheckUnused(int position) const;
  Result<bool> Find(size_t position, exec::Member* member);
  bool HasJoined(int position) const;
  Status CheckOther(const exec::Member& peer, uint32_t place) const;
  bool IsOurs(exec::ChannelSlot* slot) const;

  ChannelTable* const table_;
  const ChannelName name_;
  Part part_;
  std::vector<uint32_t> found_;  // by position: the slot in that member's block
  uint64_t main_key_ = 0;        // of messages: the key of their channel
  std::vector<bool> created_;    // likewise, GPU ranks: the member was seen to have created it, and not to have used it
  std::mutex pairs_mutex_;
  std::map<std::pair<int, bool>, std::shared_ptr<GroupChannel>> pairs_;
};

class ChannelTable {
 public:
  explicit ChannelTable(Communicator* comm) : comm_(comm) {}

  // The live channel of that name, or a new one (`made`). This rank is one of the group. `note` is called before other
  // calls here can find it. kInvalidUsage when there are too many, or the live one is of the other order.
  using Note = std::function<void(GroupChannel*, bool made)>;
  Result<GroupChannel*> Acquire(ChannelName name, bool group_order, const Note& note);
  // Takes the channel out if `last` says so, which is called while nobody can acquire it; null otherwise. It is gone
  // when the caller, and the operations still under way, let go of it.
  std::shared_ptr<GroupChannel> Release(GroupChannel* channel, const std::function<bool()>& last);

  // All that has been launched on channels so far.
  std::vector<device::host::Mark> Outstanding();
  // Lets go of all channels. Returns the memory that peers still use.
  std::vector<void*> Close();
  // Memory that channels take up, in bytes.
  uint64_t resident_bytes();

 private:
  friend class GroupChannel;

  // *channel is to outlive the lock that the caller holds, as the end of a channel takes it.
  Status Make(const ChannelName& name, device::host::TimelinePtr order, bool group_order,
              std::shared_ptr<GroupChannel>* channel);
  // Finds room for a part of that key.
  Status Enter(GroupChannel::Part* part) const;
  // By the end of a channel: nobody finds its part any more.
  void Withdraw(const GroupChannel::Part& part);
  // Makes the members see the word at the part's place, and `stretches` before it.
  void PublishEntry(const GroupChannel::Part& part, std::span<const transport::Reach::Stretch> stretches) const;
  bool TryFree(const GroupChannel::Part& part);
  void Sweep();
  Status TakeArea(GroupChannel::Part* part);
  // Whether this rank has created that channel, now or in the past.
  bool HasCreated(const ChannelName& name, uint32_t generation);

  Communicator* const comm_;
  std::mutex mutex_;  // guards everything below
  std::map<ChannelName, std::shared_ptr<GroupChannel>> channels_;
  std::unordered_map<uint64_t, uint32_t> created_;  // how often, by hash of the name; grows with the names ever used
  std::bitset<exec::kChannelWords> taken_;          // words of the table
  std::vector<uint32_t> free_slots_;                // of those used before, so that few pages are touched
  uint32_t used_slots_ = 0;                         // slots from here on never were
  std::vector<bool> areas_;                         // of a GPU rank: those that are taken
  std::vector<GroupChannel::Part> limbo_;           // withdrawn, in use by peers
  std::vector<device::host::TimelinePtr> retired_;  // orders of released channels that may have work left
};

}  // namespace axccl::comm
