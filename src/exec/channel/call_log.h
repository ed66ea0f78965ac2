// The calls of the ranks of a channel, as op records in their blocks (layout.h): this rank writes its own records, and
// compares them with those of the others when something seems wrong.
//
// A record is written before its operation's first signal and stays for the next operations, as many as the
// layout has records. It also says how far the operation has come, which any thread may read and add to. What peers
// have written is checked: any bits are legal. Used by the thread that drives the channel's operations; other threads
// may read records while none is written.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "src/base/status.h"
#include "src/exec/call/call.h"
#include "src/exec/channel/members.h"
#include "src/exec/channel/recorded_call.h"
#include "src/exec/layout.h"

namespace axccl::exec {

struct RecordedStamps;

class CallLog {
 public:
  // `members` must outlive the log.
  explicit CallLog(const Members* members) : members_(*members) {}
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  // The sequence number of the next operation.
  uint64_t next() const { return next_; }
  // Takes the next number for an operation.
  uint64_t TakeNumber() { return next_++; }

  // Begins this rank's record of the operation that has taken the number `sequence`, and runs a plan whose PlanWord is
  // `plan_word` (0: unknown). `form_hash`: of the views of a call on views. The operation writes the rest of its
  // announcement into the record before it is closed.
  OpRecord* Open(uint64_t sequence, const Call& call, uint32_t form_hash, uint64_t plan_word) {
    OpRecord* const record = Open(sequence, call.Named(), call.count, plan_word);
    if (call.views != nullptr) RecordedCall::WriteForm(*call.views, form_hash, record->word);
    return record;
  }
  // The same for a call that is not on views, of which Named() is known.
  OpRecord* Open(uint64_t sequence, uint64_t named, uint64_t count, uint64_t plan_word) {
    OpRecord* record = RecordOf(members_.own(), sequence);
    record->sequence.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    record->progress.store(OpRecord::kUnderWay, std::memory_order_relaxed);
    record->word[OpRecord::kCall].store(named, std::memory_order_relaxed);
    record->word[OpRecord::kCount].store(count, std::memory_order_relaxed);
    record->word[OpRecord::kPlan].store(plan_word, std::memory_order_relaxed);
    return record;
  }
  static void Close(OpRecord* record, uint64_t sequence) {
    record->sequence.store(sequence + 1, std::memory_order_release);
  }
  // The operation has ended well. What it wrote is visible to a thread that sees that.
  static void End(OpRecord* record) { record->progress.store(OpRecord::kDone, std::memory_order_release); }
  void End(uint64_t sequence) { End(RecordOf(members_.own(), sequence)); }
  // Records, as the next operation, a call that does not run on the host; of a start of a pipeline, where its stamps
  // are.
  void Record(const Call& call);
  void Record(const Call& call, const RecordedStamps& stamps);

  // The call of this rank's operation, if it is still recorded; "" if it is too long ago.
  std::string TextOf(uint64_t sequence) const { return TextOf(members_.self(), sequence); }
  // The last call of a member on this channel, as far as this rank knows: "rank 2 last called ... (operation 9)".
  std::string LastCallOf(int position) const;
  // "; not called by ranks 2, 3, or held up ...", as far as this rank knows; "" if all have. Those on other machines
  // are named apart: they may have called it, and have nothing to send to this rank.
  std::string Absent(uint64_t sequence) const;
  // Whether the member has recorded that operation or a later one.
  bool HasRecorded(int position, uint64_t sequence) const;
  // Looks for an operation for which a member made a different call. Ok when there is none (or it is too long ago).
  Status FindMismatch() const;
  // As FindMismatch, for one member.
  Status CompareWith(int position) const;

 private:
  static OpRecord* RecordOf(const Member& member, uint64_t sequence) {
    return member.layout.RecordOf(member.block, sequence);
  }
  std::string TextOf(int position, uint64_t sequence) const;
  // The first operation whose record may still be there.
  uint64_t Oldest() const {
    const uint64_t records = members_.own().layout.num_records;
    return next_ > records ? next_ - records : 0;
  }
  Status Compare(int position, uint64_t sequence) const;
  std::string CountSides(int position, uint64_t sequence) const;

  const Members& members_;
  uint64_t next_ = 0;
};

}  // namespace axccl::exec
