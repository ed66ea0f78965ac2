// The ranks that take part in a channel, as one of them sees the others: where their memory is mapped, which kind of
// access any two of them have, and whether they are still there.
//
// Members that make their parts of a channel on their own are connected by its first operation; until then their blocks
// are null. The thread that drives the channel's operations calls the connecting functions; any thread may call the
// rest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/exec/channel/channel_owner.h"
#include "src/exec/layout.h"
#include "src/plan/contract.h"
#include "src/tune/tune.h"
#include "transports/transport.h"

namespace axccl::exec {

// How this rank accesses a member of the group (itself included).
struct Member {
  int rank = 0;                   // in the communicator, for messages
  BlockHeader* header = nullptr;  // of its block in the communicator, as mapped here
  std::byte* block = nullptr;     // memory that holds its part of the channel, as mapped here; null until connected
  ChannelLayout layout;           // of this channel in that memory
  std::byte* scratch =
      nullptr;  // if layout.apart: memory that has its scratch, as mapped here; null until it is needed
  std::byte* announcements = nullptr;  // likewise
  transport::Reach* reach = nullptr;
  std::shared_ptr<transport::Reach::Area> mirror;  // for a created channel: keeps `block` alive if that is a mirror
  int device = 0;                                  // host device, in the same process
  int machine = 0;                                 // the same number for ranks that share memory, on every rank
  int process = 0;                                 // likewise for ranks of one process
  int cores = 0;                                   // likewise for ranks that share cores: a machine's, or a GPU's
  int area = -1;  // for a created channel, on GPU ranks: its area of the rank's device; -1: not known yet
};

// Whether its block is a mirror here (transports/transport.h): what this rank stores there reaches nobody.
inline bool IsMirror(const Member& member) { return member.reach->inbox() != nullptr; }

// Whether it has died, or destroyed its communicator. What it wrote before that is seen.
inline bool IsGone(const Member& member) {
  return member.header->closed.load(std::memory_order_acquire) != 0 || member.reach->Died();
}

// Wakes `member` if it sleeps. Call it after a store that the member may be waiting for: sequentially consistent, or a
// release, which is seen a little later if the member was just falling asleep (device/host/waiting.h).
void WakeSleeping(const Member& member);
inline void WakeMember(const Member& member) {
  if (member.header->waiter.load(std::memory_order_seq_cst) != 0) WakeSleeping(member);
}

// How a channel whose ranks make their parts of it on their own, without communication, finds the others' parts. Used
// by the thread that drives the channel's operations.
class Connector {
 public:
  virtual ~Connector() = default;
  // Fills in the memory of the members that have made their parts. Returns the position of one that has not, or that
  // has not found this rank's part yet; -1 when all have.
  virtual Result<int> Connect(std::vector<Member>* members) = 0;
  // Whether the member at `position` has found this rank's part.
  virtual bool HasJoined(int position) const = 0;
  // Returns an error when the member at `position` will never make its part.
  virtual Status CheckMissing(int position) const = 0;
  // Once connected: returns an error when the member at `position` has released its part. What it has not done by then,
  // it never will.
  virtual Status CheckLeft(int position) const = 0;
  // GPU ranks: reserves an area of this rank's device for the channel's lifetime. The others find the part only after
  // the area is published.
  virtual Result<int> TakeArea() = 0;
  virtual void PublishArea() = 0;
  virtual std::string Name() const = 0;  // "channel 7 of ranks [0 2]"
};

class Members {
 public:
  // With a connector, which must live as long, the members are connected later.
  Members(ChannelOwner* owner, std::vector<Member> members, int self, Connector* connector = nullptr);
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  int size() const { return static_cast<int>(members_.size()); }
  int self() const { return self_; }
  // Their addresses stay the same: prepared calls point to a member's block and scratch.
  const Member& operator[](int position) const { return members_[static_cast<size_t>(position)]; }
  const Member& own() const { return *own_; }
  ChannelOwner* owner() const { return owner_; }
  const plan::Placement& placement() const { return placement_; }
  int sharers() const { return sharers_; }  // the most members that share cores

  // The weakest access that any two members have to each other's buffers: those in heaps (mapped or none), and those in
  // plain memory.
  tune::Access heap_access() const { return inbox_ == nullptr ? tune::Access::kMapped : tune::Access::kNone; }
  tune::Access plain_access() const { return plain_access_; }
  // The inbox for what members publish; null if this rank has a mirror of none of them.
  transport::Inbox* inbox() const { return inbox_; }
  // The positions of the members of which it has a mirror: of all members (plan::kAllPeers), or only of that one.
  std::span<const int> Mirrored(int position) const;

  // Null once the members are connected.
  const Connector* connector() const { return connector_; }
  // Of a created channel, as Connector::Name; "" of another one.
  std::string Name() const { return home_ == nullptr ? std::string() : home_->Name(); }
  // As Connector::Connect.
  Result<int> Connect();
  // Whether the member and this rank have found each other's parts. What it is sent before is lost.
  bool IsConnected(int position) const {
    return connector_ == nullptr || ((*this)[position].block != nullptr && connector_->HasJoined(position));
  }
  // As Connector::CheckMissing, before members are connected, and Connector::CheckLeft. A member that fails publishes
  // that before it lets go of its part: its failure is the error then.
  Status CheckMissing(int position) const { return ReasonOf(connector_->CheckMissing(position)); }
  Status CheckLeft(int position) const { return home_ == nullptr ? Status() : ReasonOf(home_->CheckLeft(position)); }
  // As Connector::TakeArea; before members are connected.
  Result<int> TakeArea();
  void PublishArea() { connector_->PublishArea(); }

  // If scratch is apart: whether this rank has all that it needs of it. The member that sends has taken it before it
  // signals, and a rank that has seen its signal finds it.
  bool has_scratch() const { return has_scratch_; }
  // Whether all of them are connected, with all that an operation needs, and what they write is seen at once.
  bool at_hand() const { return at_hand_; }
  Status FindScratch(int position);
  // Where the member's announcements of that operation are: this rank's own, to be written, or a peer's, after it was
  // written.
  Result<std::atomic<uint64_t>*> AnnouncementOf(int position, uint64_t sequence);

  // The error for the death of a member.
  Status LossOf(int position) const;
  // Returns an error when a member is dead or has failed, or when the one at `waiting_for` (-1: none) has closed its
  // communicator.
  Status Check(int waiting_for) const;
  // Errors that a member found itself, such as calls that differ; not that it left, or misses a rank that did.
  Status CheckFailures() const;
  // Returns an error when another member has failed or aborted.
  Status CheckOwners() const;

 private:
  Status ReasonOf(Status left) const;
  void NoteReach() { at_hand_ = connector_ == nullptr && inbox_ == nullptr && has_scratch_; }

  ChannelOwner* const owner_;
  std::vector<Member> members_;  // never resized
  const int self_;
  const Member* const own_;
  const plan::Placement placement_;
  const int sharers_;
  Connector* connector_;
  const Connector* const home_;  // for a created channel, for as long as it lives
  bool has_scratch_ = true, at_hand_ = false;
  tune::Access plain_access_ = tune::Access::kMapped;
  transport::Inbox* inbox_ = nullptr;
  std::vector<int> mirrored_;  // ascending
};

}  // namespace axccl::exec
