// The calls of ranks that make communicators from an existing one, or windows of it, visible to all its ranks.
//
// Each call of a rank gets a name when it is made, which is the same on all ranks that take part: the k-th call of that
// group. The log in a rank's block (exec/layout.h) holds the calls that it has made, in their order, and how they
// ended. So a rank that waits for another sees whether that one has ended the call, or is in one that does not match
// it. Every two ranks must make the calls in which both take part in the same order.
//
// Ranks need not agree on whom a shrink leaves out: such a call is one of the rank's shrinks, by number, and may be
// several attempts, each with a name of its own (survivors.h).
//
// Thread-safe, except for a LoggedCall, which belongs to its call.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/comm/survivors.h"
#include "src/exec/channel/channel.h"
#include "src/exec/layout.h"

namespace axccl::comm {

// The kinds of calls. kColor: the part of a split among ranks of one colour, after all ranks have exchanged their
// colours. kWindow and kDeviceComm make a window of the communicator's ranks.
enum class Making : uint64_t { kSplit = 1, kShrink, kGrow, kColor, kWindow, kDeviceComm };
const char* NameOf(Making what);
// "a new communicator", or what else it makes.
const char* ProductOf(Making what);

struct LoggedCall {
  using Clock = std::chrono::steady_clock;
  Making what = Making::kSplit;
  uint64_t name = 0;
  uint64_t place = 0;      // in the rank's log
  std::vector<int> group;  // ranks that take part, ascending
  uint64_t split = 0;      // kColor: the name of the split
  // Among the calls of this rank; kColor: the order of the split; for attempts at a shrink: of the first one.
  uint64_t order = 0;
  uint64_t ordinal = 0;                                      // of a shrink
  Clock::time_point apart_since = Clock::time_point::max();  // since when a rank's last call is a different one
};

// Why a call ends early.
struct Trouble {
  Status why;             // ok: it does not
  bool refused = false;   // because another rank has made a call that does not match it,
  uint64_t against = 0;   // whose name is this
  bool regroups = false;  // a shrink goes on with another attempt
};

class ControlLog {
 public:
  using Group = std::vector<int>;
  // `block`: of this rank. All arguments must live as long as the log.
  ControlLog(const std::vector<exec::Member>* members, std::byte* block, const exec::BlockLayout& layout, int self);

  // Begins a call of this rank, in the order of the program; the caller must end it.
  Result<LoggedCall> Begin(Making what, Group group);
  // Begins the part of `group` in the split `call`, which has not ended.
  LoggedCall Continue(const LoggedCall& call, Group group);
  void Finish(const LoggedCall& call);
  // Ends an attempt at a shrink, and begins the next one.
  void Abandon(const LoggedCall& call);
  LoggedCall Attempt(const LoggedCall& call, const comm::Attempt& next);
  // An attempt that was abandoned has been successful after all.
  void Adopt(const LoggedCall& call);
  // Publishes the reason to the other ranks.
  void Fail(const LoggedCall& call, const Trouble& trouble);
  // Whether the call may contribute: only few earlier calls are still running.
  bool IsTurnOf(const LoggedCall& call);
  // Publishes to a rank what belongs to the call.
  void Tell(const exec::Member& member, const LoggedCall& call, std::span<const transport::Reach::Stretch> stretches,
            uint64_t line) const;
  // Whether `rank`, which has made the call, has ended it.
  bool Ended(int rank, uint64_t name) const;
  // Whether it has ended it successfully.
  bool Finished(int rank, uint64_t name) const;

  // Why this rank waits without end for the contributions of `missing`, if it does.
  Trouble FindTrouble(LoggedCall* call, std::span<const int> missing);
  // The attempts at shrinks that a rank's log shows.
  std::vector<SeenAttempt> AttemptsOf(int rank) const;
  // The trouble of a shrink in which that rank has given up, or left this one out.
  Trouble TroubleWith(const LoggedCall& call, int rank) const;
  // Whether two ranks have been apart for as long as one of them may need to make the other's call: `apart` now, *since
  // from the last time on.
  static bool IsApart(bool apart, LoggedCall::Clock::time_point* since);
  // The trouble of this rank itself, and of ranks that have not come in time.
  Trouble GivenUp(const Status& reason) const;
  Trouble NotInTime(const LoggedCall& call, std::span<const int> missing) const;

 private:
  // What a rank's log shows about a call of this rank.
  struct Sight {
    exec::ControlEntry* same = nullptr;     // the rank's part in the call
    exec::ControlEntry* failed = nullptr;   // it has failed there, or in the split before
    exec::ControlEntry* refuses = nullptr;  // a call of the rank that does not match it
    exec::ControlEntry* instead = nullptr;  // its last call, if that does not match
  };

  exec::ControlEntry* EntryOf(int rank, uint64_t place) const;
  template <class Fn>
  void ForEachEntry(int rank, const Fn& fn) const;
  LoggedCall Write(Making what, Group group, uint64_t name, uint64_t count, uint64_t split, uint64_t order);
  LoggedCall WriteShrink(uint64_t ordinal, Group group, uint64_t order);
  uint64_t PlaceForNext() const;
  void End(const LoggedCall& call, exec::ControlEntry::State state);
  void Publish(const LoggedCall& call, const void* from, size_t bytes) const;
  Sight LookAt(int rank, const LoggedCall& call);
  Trouble Refusal(const LoggedCall& call, int rank, exec::ControlEntry* entry) const;
  static Trouble Repeated(const exec::ControlEntry& entry);
  bool Made(uint64_t kind, const Group& group, uint64_t count);
  void CatchUp();
  Group MembersOf(exec::ControlEntry* entry) const;
  std::string Describe(int rank, uint64_t what, const Group& group) const;
  int ranks() const { return static_cast<int>(members_->size()); }

  const std::vector<exec::Member>* const members_;
  std::byte* const block_;
  const exec::BlockLayout layout_;
  const int self_;
  std::mutex mutex_;
  uint64_t calls_ = 0;
  std::map<Group, uint64_t> counts_;  // calls so far, by group; without shrinks
  uint64_t shrinks_ = 0;
  std::map<uint64_t, int> under_way_;  // by order: how many entries of each, because a split continues with its colour
};

}  // namespace axccl::comm
