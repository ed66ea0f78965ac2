// What the ranks of a channel have called, as op records in their blocks (layout.h): this rank writes its own, and
// compares them with those of the others where something looks wrong.
//
// A record is written before its operation's first signal and stays for the next kRecords operations. What peers have
// written is data to be checked: any bits are legal. Used by the thread that drives the channel's operations; records
// may be looked at by others, while none is written.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "src/base/status.h"
#include "src/exec/call.h"
#include "src/exec/layout.h"
#include "src/exec/members.h"

namespace axccl::exec {

class CallLog {
 public:
  // `members` outlive the log.
  explicit CallLog(const Members* members) : members_(*members) {}
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // The sequence number of the next operation.
  uint64_t next() const { return next_; }
  // Takes that number for an operation.
  uint64_t TakeNumber() { return next_++; }

  // Begins this rank's record of the operation that has taken the number `sequence`, and runs a plan whose PlanWord is
  // `plan_word` (0: it does not say). `form_hash`: of the views of a call on views. What else the operation announces
  // is written into the record before it is closed.
  OpRecord* Open(uint64_t sequence, const Call& call, uint32_t form_hash, uint64_t plan_word) {
    OpRecord* record = RecordOf(members_.own(), sequence);
    record->sequence.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    record->word[OpRecord::kCall].store(call.Named(), std::memory_order_relaxed);
    record->word[OpRecord::kCount].store(call.count, std::memory_order_relaxed);
    record->word[OpRecord::kPlan].store(plan_word, std::memory_order_relaxed);
    if (call.views != nullptr) WriteForm(*call.views, form_hash, record);
    return record;
  }
  static void Close(OpRecord* record, uint64_t sequence) {
    record->sequence.store(sequence + 1, std::memory_order_release);
  }
  // Writes down, as the next operation's, a call that runs elsewhere than on the host.
  void Record(const Call& call);

  // What this rank has called as an operation, as far as it is written down; "" if it is too long ago.
  std::string TextOf(uint64_t sequence) const { return TextOf(members_.self(), sequence); }
  // What a member has called last on this channel, as far as it is known here: "rank 2 last called ... (operation 9)".
  std::string LastCallOf(int position) const;
  // Whether the member has written down that operation or a later one.
  bool HasRecorded(int position, uint64_t sequence) const;
  // Looks for an operation for which a member called something else. Ok when there is none (or it is too long ago).
  Status FindMismatch() const;
  // As above for one member.
  Status CompareWith(int position) const;

 private:
  static OpRecord* RecordOf(const Member& member, uint64_t sequence) {
    return member.layout.RecordOf(member.block, sequence);
  }
  static void WriteForm(const ViewList& views, uint32_t hash, OpRecord* record);
  std::string TextOf(int position, uint64_t sequence) const;
  // The first of the operations whose records may still be there.
  uint64_t Oldest() const { return next_ > kRecords ? next_ - kRecords : 0; }
  Status Compare(int position, uint64_t sequence) const;
  std::string CountSides(int position, uint64_t sequence) const;

  const Members& members_;
  uint64_t next_ = 0;
};

}  // namespace axccl::exec
