// The exchange of ranks of a communicator that make others from it (split, shrink and grow), or a window.
//
// A call takes part from the moment it is made (BeginMaking), whatever thread executes it and when; calls that run at
// the same time never mix (control_log.h). A rank's contribution is in a slot of its block; for ranks on other
// machines, it is sent to the mirror of that. A slot is reused for another call when the logs of all participants say
// that they have read it, so nothing is overwritten before a rank that has stopped has read it. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/status.h"
#include "src/comm/control_log.h"
#include "src/comm/exchange.h"
#include "src/exec/layout.h"

namespace axccl::comm {

class Communicator;

// A call of this rank that makes a communicator or a window: the exchange among the participants. Used by one thread.
// Ends with Finish or Fail, and fails when it is dropped before. Keeps the communicator alive.
class MakingCall : public Exchange {
 public:
  using Clock = std::chrono::steady_clock;
  // Called by Begin.
  explicit MakingCall(std::shared_ptr<Communicator> comm);
  ~MakingCall() override;
  Status Begin(Making what, std::vector<int> group);
  const std::vector<int>& group() const { return call_.group; }
  const std::shared_ptr<Communicator>& comm() const { return comm_; }

  // Sets the latest time to wait until, and the flag that ends waits. Call it before the first exchange.
  void SetLimits(Clock::time_point deadline, const std::atomic<bool>* abort);
  // Also ends when a rank dies, leaves the communicator, gives up or makes a call that does not match this one, and
  // when the communicator fails. For shrinks, see shrink.h.
  Status AllGather(const void* mine, size_t bytes, void* all) override;
  // For ranks that meet elsewhere until all have finished this call: returns why they never will, as far as this
  // communicator knows.
  Status WhyBroken();
  void Fail(const Status& reason) override;
  void Finish();
  // Continues with a group of the ranks of a split.
  std::shared_ptr<MakingCall> Continue(std::vector<int> group);

 protected:
  // Why waiting for those ranks is useless, if it is.
  virtual Trouble TroubleAmong(const std::vector<int>& missing);
  Trouble Aborted() const;
  void End(const Trouble& trouble);

  const std::shared_ptr<Communicator> comm_;
  LoggedCall call_;
  Clock::time_point deadline_ = Clock::time_point::max();
  const std::atomic<bool>* abort_ = nullptr;
  bool ended_ = true;

 private:
  class Wait;
  Status TakeSlot();
  Trouble WhyStop(const std::vector<int>& missing);
  template <class Why>
  bool MustStop(const Why& why, Trouble* trouble) const;

  int slot_ = -1;
  uint64_t round_ = 0;
};

// The slots and the log of a rank.
class ControlExchange {
 public:
  // `members`, `block` and `layout` are the communicator's, and must live as long.
  ControlExchange(const std::vector<exec::Member>* members, std::byte* block, const exec::BlockLayout& layout,
                  int self);
  ControlLog& log() { return log_; }

  // Returns a slot for the call, or -1 while none is free or it is not the call's turn.
  int TryTake(const LoggedCall& call);
  // The call has ended; others may still read the slot.
  void Leave(int slot, bool failed);
  void Contribute(int slot, const LoggedCall& call, uint64_t round, const void* data, size_t bytes);
  // Reads the contribution of `rank` to a round of the call of that kind and name; returns false while there is none.
  bool Read(int rank, Making what, uint64_t name, uint64_t round, void* data, size_t bytes) const;

 private:
  struct Use {
    uint64_t name = 0;  // of the call; 0: free
    std::vector<int> group;
    bool left = false, failed = false;
  };
  bool Free(const Use& use) const;
  std::byte* BlockOf(int rank) const;

  const std::vector<exec::Member>* const members_;
  std::byte* const block_;
  const exec::BlockLayout layout_;
  const int self_;
  ControlLog log_;
  std::mutex mutex_;
  std::vector<Use> uses_{exec::kControlSlots};
};

// Begins a call on `comm`, in the order of the program. `group`: the ranks that take part, ascending, including this
// one.
Result<std::shared_ptr<MakingCall>> BeginMaking(const std::shared_ptr<Communicator>& comm, Making what,
                                                std::vector<int> group);

}  // namespace axccl::comm
