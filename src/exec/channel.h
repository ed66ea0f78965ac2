// A channel: one replica group of a communicator, its shared memory, sequence numbers and plans, on the side of one
// rank.
//
// Operations of a channel run one after the other (the communicator sees to that); a channel is used by one thread at a
// time, namely the one that drives the operation. Sequence and turn numbers advance equally on all ranks because all
// ranks run the same operations; op records and line signatures tell when they do not.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/status.h"
#include "src/device/host/timeline.h"
#include "src/exec/call.h"
#include "src/exec/host/workspace.h"
#include "src/exec/layout.h"
#include "src/exec/outbound.h"
#include "src/exec/program.h"
#include "src/plan/region.h"
#include "src/tune/tune.h"
#include "transports/transport.h"

namespace axccl::exec {

// How this rank reaches a member of the group (itself included).
struct Member {
  int rank = 0;                   // in the communicator, for messages
  BlockHeader* header = nullptr;  // of its block in the communicator, as mapped here
  std::byte* block = nullptr;     // memory that holds its part of the channel, as mapped here; null until connected
  ChannelLayout layout;           // of this channel in that memory
  std::byte* scratch =
      nullptr;  // where layout.apart: memory that has its scratch, as mapped here; null until it is needed
  std::byte* announcements = nullptr;  // likewise
  transport::PeerProcess* process = nullptr;
  transport::RemoteRank* remote =
      nullptr;  // the process, where block is a mirror: the rank shares no memory with this one
  std::shared_ptr<transport::RemoteRank::Area> remote_area;  // of a created channel: what the mirror is of
  bool same_process = false;
  int device = 0;          // host device, where same_process
  int machine = 0;         // the same number for ranks that share memory, on every rank
  bool call_copy = false;  // process_vm_readv works in both directions
  int area = -1;           // of a created channel, on GPU ranks: what it has of the rank's device; -1: not known yet
};

// After a sequentially consistent store that `member` may be waiting for: rings it if it sleeps.
void WakeMember(const Member& member);

// Writes down the form of a call on views whose hash is `hash`: what ranks compare and messages say.
void WriteForm(const ViewList& views, uint32_t hash, OpRecord* record);

// What channels need from their communicator. All functions are thread-safe.
class Host {
 public:
  virtual ~Host() = default;
  // True once the communicator has failed or was aborted; Failure() then says why.
  virtual bool failed() const = 0;
  virtual Status Failure() const = 0;
  // Makes the communicator fail, and tells the peers. The first failure stays.
  virtual void Fail(const Status& status) = 0;
  virtual Result<std::shared_ptr<const Program>> GetProgram(const plan::Contract& contract, std::string_view algorithm,
                                                            int lanes, int rank, const plan::Placement& placement) = 0;
  virtual const tune::Chooser& chooser() const = 0;
  // Whether [p, p + bytes) is in this process's heap, and where.
  virtual bool InHeap(const void* p, size_t bytes, uint64_t* offset) const = 0;
  // Copies from plain memory of another process by system call.
  virtual Status CallRead(uint32_t pid, void* local, uint64_t remote, size_t bytes) = 0;
  // Of memory in this process's heap: other processes do not reach it any more, nor a step of theirs that is under way.
  virtual Status TakeBack(const void* p, size_t bytes) = 0;
  // Whether that has been done to any page of it.
  virtual bool TakenBack(const void* p, size_t bytes) const = 0;
  // Shared memory of this rank, zeroed, and its place in the heap. Until the communicator is gone.
  virtual Result<std::byte*> TakeShared(uint64_t bytes, uint64_t* offset) = 0;
  virtual uint64_t cache_bytes() const = 0;    // a rank's share of the last-level cache
  virtual double timeout_seconds() const = 0;  // of one operation, 0 = none
  virtual double notice_seconds() const = 0;   // after which the user is told of a wait, 0 = never

  // Operations whose outputs ranks of other processes may write to.
  std::atomic<int> exposed{0};
  // Of the operation that ended last, on whatever channel; static text.
  std::atomic<const char*> last_algorithm{""};
};

// How a channel whose ranks make their parts of it on their own, without telling each other, finds the others' parts.
// Used by the thread that drives the channel's operations.
class Connector {
 public:
  virtual ~Connector() = default;
  // Fills in the memory of the members that have made their parts. The position of one that has not, or that has not
  // found this rank's part yet; -1 when all have.
  virtual Result<int> Connect(std::vector<Member>* members) = 0;
  // An error when the member at `position` will never make its part.
  virtual Status CheckMissing(int position) const = 0;
  // Once connected: an error when the member at `position` has let go of its part. What it has not done by then it
  // never will.
  virtual Status CheckLeft(int position) const = 0;
  // GPU ranks: takes an area of this rank's device for the channel, until that is gone. The others find the part only
  // after it has been told.
  virtual Result<int> TakeArea() = 0;
  virtual void TellArea() = 0;
  virtual std::string Name() const = 0;  // "channel 7 of ranks [0 2]"
};

// Where an operand of a move is: *base + offset[turn % kRotation], and part_bytes further for each further part of it.
// Slots in scratch are further on by SetOffset(turn).
struct OperandPlace {
  std::byte* const* base = nullptr;  // of a member's block, or in a Workspace
  uint64_t offset[plan::kRotation] = {};
  uint64_t part_bytes = 0;  // scratch only: parts of a buffer are where the partition says
};

// A call made ready to run: which program, and how its data is cut.
struct Prepared {
  std::shared_ptr<const Program> program;
  plan::Partition partition;
  uint64_t turns = 1;
  uint64_t slot_bytes = 0;    // stride between scratch slots
  uint64_t set_bytes = 0;     // the slots of one turn
  uint64_t sets = 1;          // sets of a half of the scratch, which its turns take one after the other; see SetOffset
  bool inline_slots = false;  // slots live in endpoint lines
  bool whole = false;         // a tile of one part on one lane: every move is of the whole block
  bool plain =
      false;  // whole, in one turn and through scratch alone, with no more than a slot an operand: see RunPlain
  bool together = false;                     // copies that follow each other are made at once: blocks lie side by side
  bool around_cache = false;                 // inputs and outputs are too large for the cache: outputs go past it
  uint64_t plan_word = 0;                    // of plan and tiles, for the op record: see PlanWord
  uint32_t signature = 0;                    // of call, plan and tiles, for the lines
  std::shared_ptr<const Outbound> outbound;  // where some members are remote
  std::vector<OperandPlace> places;          // of the program's operands
  // Of a small direct call whose ranks turned out to have plain memory: what runs instead, for the next so many of
  // these calls, without asking again. All ranks have seen the same announcements, so they agree.
  mutable const Prepared* instead = nullptr;
  mutable uint32_t instead_for = 0;

  // Of the set of slots that this turn uses, within its half. Memory that others have just read is slow to write again,
  // as their cores still hold it: so all of the scratch is used in turn, until it is larger than what a core can hold.
  // Every kTurnsPerSet turns of the channel there is one more, so that few operations take few pages of memory. What is
  // sent to other machines the own core reads: there is one set then, which stays in its cache.
  uint64_t SetOffset(uint64_t turn) const {
    if (sets == 1) return 0;
    return turn / plan::kRotation % std::min(sets, 1 + turn / kTurnsPerSet) * set_bytes;
  }
  static constexpr uint64_t kTurnsPerSet = 32;
};

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // Launches on channels of one `order` follow each other. With a connector, the first operation connects the members.
  Channel(Host* host, std::vector<Member> members, int self, device::host::TimelinePtr order = nullptr,
          Connector* connector = nullptr);

  int size() const { return static_cast<int>(members_.size()); }
  int self() const { return self_; }
  const Member& member(int position) const { return members_[static_cast<size_t>(position)]; }
  const Member& own() const { return members_[static_cast<size_t>(self_)]; }
  Host* host() const { return host_; }
  const plan::Placement& placement() const { return placement_; }
  const device::host::TimelinePtr& order() const { return order_; }
  // The channel whose messages between two ranks this one carries; itself, if it is not for messages. A created one
  // must be held with those of its messages: see Hold.
  Channel* main() { return main_ != nullptr ? main_ : this; }
  const Channel* main() const { return main_ != nullptr ? main_ : this; }
  // Makes `pair` carry this channel's messages to the rank, or from it.
  void AddPair(int rank, bool sending, Channel* pair);
  // Null if there have been none.
  const Channel* FindPair(int rank, bool sending) const;
  // Keeps it, and those of its messages; null if the communicator does.
  std::shared_ptr<Channel> Hold() { return main()->weak_from_this().lock(); }
  // Null once the members are connected.
  const Connector* connector() const { return connector_; }
  // As Connector::CheckLeft.
  Status CheckLeft(int position) const { return home_ == nullptr ? Status() : home_->CheckLeft(position); }
  // As Connector::Connect.
  Result<int> Connect();
  // As Connector::TakeArea; before members are connected.
  Result<int> TakeArea();
  void TellArea() { connector_->TellArea(); }

  // The prepared form of `call` when the ranks' buffers allow `access`; cached. For an operation that starts: what was
  // prepared for earlier ones may be forgotten.
  Result<const Prepared*> Prepare(const Call& call, tune::Access access) { return Prepare(call, access, true); }
  // The same while what was prepared for the operation at its start is still needed.
  Result<const Prepared*> PrepareBeside(const Call& call, tune::Access access) { return Prepare(call, access, false); }
  Result<const Prepared*> PrepareBarrier();
  // Prepared calls kept per channel, and places of operands in them (2 MiB), of which plans for many ranks have many.
  // Applications use few shapes, and building one again is cheap.
  static constexpr size_t kMaxPrepared = 4096;
  static constexpr size_t kMaxPlaces = (size_t{2} << 20) / sizeof(OperandPlace);
  // Whether a barrier must separate this from what ran before on the channel. Complete plans (plan::Plan::complete)
  // follow each other freely: who has ended a turn knows that all others have ended the turn before it, and with it are
  // done with the scratch of the next. Others may only follow themselves, with their slots at the same places: the
  // verifier has seen that what touches a slot in a turn comes before what touches it two turns later, and so before
  // all later turns of the same half, one of which is the next to use the same set.
  bool NeedsBarrier(const Prepared& next) const;
  // That it has run on the channel, to its end.
  void NoteEnd(const Prepared& prepared, bool barrier) {
    const plan::Plan& plan = *prepared.program->plan;
    turn += prepared.turns;
    last_plan = plan.hash;
    last_slot_bytes = prepared.slot_bytes;
    last_complete = plan.complete;
    last_was_barrier = barrier;
  }
  // That the prologue of a direct plan has, in whose place another plan begins: a barrier of its own, which took a
  // turn.
  void NotePrologue() {
    ++turn;
    ForgetLast();
  }
  // As if nothing had run before.
  void ForgetLast() { last_plan = {}; }

  // Writes down, as the next operation's, a call that runs elsewhere than on the host.
  void RecordCall(const Call& call);
  // What this rank has called as an operation, as far as it is written down; "" if it is too long ago.
  std::string RecordedText(uint64_t sequence) const;
  // What a member has called last on this channel, as far as it is known here: "rank 2 last called ... (operation 9)".
  std::string LastCallOf(int position) const;
  // Whether the member has written down that operation or a later one.
  bool HasRecorded(int position, uint64_t sequence) const;
  // Looks for an operation for which a member called something else. Ok when there is none (or it is too long ago).
  Status FindMismatch() const;
  // As above for one member.
  Status CompareCalls(int position) const;
  // The members' health, seen from a rank that waits for `waiting_for`: dead, failed or closed members.
  Status CheckMembers(int waiting_for) const;
  // What a member found wrong itself, such as calls that differ; not that it left, or misses somebody who did.
  Status CheckFailures() const;
  // An error when a member has failed or aborted.
  Status CheckOwners() const;
  // What is said of a process of this machine that died.
  static Status DeathOf(const Member& peer);

  uint64_t sequence = 0;  // of the next operation
  uint64_t turn = 0;      // the next turn
  // Of what ran last; no plan has the hash 0. By hash and not by address, as plans may be forgotten and made again.
  plan::Hash last_plan;
  uint64_t last_slot_bytes = 0;
  bool last_complete = true;
  bool last_was_barrier = true;
  uint64_t inline_bytes = kLineData;  // slots that are not larger live in lines; set before its first operation
  bool minds_runs = true;             // plans are chosen by the runs of views, too; set before its first operation
  bool group_order = false;           // all its reductions are in group order; set before its first operation
  uint64_t order_key = 1;  // of the communicator's channels, the same on all ranks: this one and those of its messages

  // Weakest access any two members have to plain memory, and whether all share one process.
  bool all_same_process() const { return all_same_process_; }
  bool all_call_copy() const { return all_call_copy_; }
  // Any of the members that are remote, or null: it stands for all of them where it is about progress.
  transport::RemoteRank* remote() const { return remote_; }
  // Of a prepared call's slot: its place in the block of the member that `operand` names.
  OperandPlace PlaceOfSlot(const Prepared& prepared, uint32_t lane, const plan::Operand& operand) const;

  // Where scratch is apart: whether this rank has all it needs of it. The member that sends has taken it before it
  // signals, and who has seen it signal finds it.
  bool has_scratch() const { return has_scratch_; }
  Status FindScratch(int position);
  // Where the member's announcements of that operation are: to be written by this rank, or once the peer's has been
  // written.
  Result<std::atomic<uint64_t>*> AnnouncementOf(int position, uint64_t sequence);

  Workspace& workspace() { return workspace_; }
  std::atomic<size_t> plans{0};  // prepared so far

 private:
  struct Key {
    uint64_t packed, count;
    uint32_t access;
    bool short_runs, split_rows;  // as in tune::Query
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      uint64_t h = key.packed * 0x9e3779b97f4a7c15ull ^ key.count;
      h ^= h >> 29;
      return static_cast<size_t>(h * 0xbf58476d1ce4e5b9ull + key.access * 4 + key.short_runs * 2 + key.split_rows);
    }
  };

  std::string RecordedText(int position, uint64_t sequence) const;
  static Status FailureOf(const Member& peer);
  // The first of the operations whose records may still be there.
  uint64_t OldestRecord() const { return sequence > kRecords ? sequence - kRecords : 0; }
  Status CompareCalls(int position, uint64_t seq) const;
  std::string CountSides(int position, uint64_t seq) const;
  Result<const Prepared*> Prepare(const Call& call, tune::Access access, bool may_forget);
  Result<Prepared> Build(const Call& call, tune::Access access, bool short_runs, bool split_rows) const;
  Status Fit(const Call& call, uint64_t tile_bytes, int lanes, Prepared* prepared) const;
  void Locate(const Call& call, Prepared* prepared) const;
  Status PlanMessages(Prepared* prepared) const;

  Host* const host_;
  std::vector<Member> members_;  // never resized, as prepared calls point into it
  Workspace workspace_;          // of the one operation that runs
  const int self_;
  const plan::Placement placement_;
  const device::host::TimelinePtr order_;
  Connector* connector_;
  const Connector* const home_;  // of a created channel, for as long as it lives
  bool has_scratch_ = true;
  Channel* main_ = nullptr;
  mutable std::mutex messages_mutex_;
  std::map<std::pair<int, bool>, Channel*> messages_;  // by rank and whether sending
  bool all_same_process_ = true;
  bool all_call_copy_ = true;
  transport::RemoteRank* remote_ = nullptr;
  std::unordered_map<Key, Prepared, KeyHash> prepared_;
  size_t num_places_ = 0;  // of all that is in prepared_
  Key last_key_{~0ull, 0, 0, false, false};
  const Prepared* last_prepared_ = nullptr;
  Prepared barrier_;
};

}  // namespace axccl::exec
