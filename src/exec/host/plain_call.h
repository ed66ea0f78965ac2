// A plain call under way (Prepared::plain): one so small that its instructions are what it costs. Its prepared form has
// everything that does not depend on the call's buffers, so that a step is a few loads and stores, and a look at a line
// that a member has yet to signal is a load and a compare. Therefore, most of it is inline.
//
// A call that meets nothing unusual runs from begin to end as a PlainCall alone. An Operation handles whatever else may
// come: a call that needs more begins as one, and a call that has to wait for long becomes one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/host/mover.h"
#include "src/exec/host/binding.h"
#include "src/exec/host/flat_operands.h"
#include "src/exec/host/handover.h"

namespace axccl::exec {

class PlainCall {
 public:
  // Not begun: for Begin, which alone may follow.
  PlainCall() {}  // NOLINT: members stay uninitialised; this is made for every call
  // The part of an operation that runs `binding`'s prepared call, from step `at` on.
  PlainCall(const Binding& binding, uint32_t signature, uint32_t at);

  // Begins the channel's next operation; `call` and its buffers must outlive this. Returns false, having changed
  // nothing, if it needs an Operation: nothing is prepared for it, another plan ran before it, or there is more to do
  // than to move and fold bytes. The caller has made sure that the communicator has not failed.
  bool Begin(Channel* channel, const Call& call);
  // Takes steps until a member has to be waited for; returns true once all are done.
  bool Run();
  // Whether the member that Run waits for has signalled, and for this call.
  bool Passed() const { return Passed(prepared_->plain_program.steps[at_]); }
  // For Handover::Run.
  Turn TakeTurn() {
    if (!Passed()) return Turn::kWaits;
    return Run() ? Turn::kEnded : Turn::kMoved;
  }
  bool AwaitsNeighbour() const;
  // The operation has found that the wait is over.
  void PassWait() { ++at_; }
  // Ends what Begin began, after Run has returned true.
  void End() {
    CallLog::End(record_);
    host_->turns().NoteEnd(*prepared_);
    channel_->owner()->NoteAlgorithm(prepared_->program->algorithm);
  }

  const Prepared& prepared() const { return *prepared_; }
  uint64_t sequence() const { return sequence_; }
  // The step that has to wait.
  uint32_t at() const { return at_; }

 private:
  bool Passed(const PlainStep& step) const {
    const Line* const line = step.line[copy_];
    return line->value.load(std::memory_order_acquire) >= (turn_ << 16 | step.value) &&
           line->signature.load(std::memory_order_relaxed) == signature_ &&
           line->sequence.load(std::memory_order_relaxed) == static_cast<uint32_t>(sequence_);
  }
  // Copies bytes that do not overlap.
  static void CopyFew(void* to, const void* from, size_t bytes) {
    if (bytes == sizeof(uint64_t)) {
      std::memcpy(to, from, sizeof(uint64_t));
    } else {
      std::memcpy(to, from, bytes);
    }
  }
  void Signal(const PlainStep& step) const;
  void Move(const PlainStep& step) const;
  void TakeBases(const Call& call);
  void* AddressOf(const PlainOperand& operand) const {
    return reinterpret_cast<void*>(base_[operand.base] + operand.offset[copy_]);
  }

  HostChannel* host_;
  Channel* channel_;
  const Call* call_;
  const Binding* binding_;  // of a call that scales, or folds by a callback; null: none of that
  const Prepared* prepared_;
  OpRecord* record_;  // of what Begin began
  uint64_t sequence_;
  uint64_t turn_;
  uint64_t copy_;  // of lines and slots: turn_ % kRotation
  uintptr_t base_[PlainOperand::kBases];
  uint32_t signature_;
  uint32_t at_;
};

inline bool PlainCall::Begin(Channel* channel, const Call& call) {
  const Members& members = channel->members();
  if (!members.at_hand()) return false;
  if (call.views != nullptr || call.callback != nullptr) return false;
  // One test instead of four.
  const unsigned more = static_cast<unsigned>(call.scaling) | call.permutes | call.group_order | channel->group_order();
  if (more != 0) return false;
  HostChannel* const host = HostChannel::Of(*channel);
  const uint64_t packed = call.PackedFlat();
  const Prepared* const found = host->plans().FindPrepared(packed, call.count, tune::Access::kMapped);
  if (found == nullptr) return false;
  const Prepared* const next = PlanCache::NextOf(found);
  if (!next->plain || host->turns().NeedsBarrier(*next)) return false;
  if (host->workspace().room() < next->program->max_operands) return false;
  host_ = host;
  channel_ = channel;
  call_ = &call;
  binding_ = nullptr;
  prepared_ = host->plans().Redirected(found);
  turn_ = host->turns().next();
  copy_ = turn_ % plan::kRotation;
  TakeBases(call);
  signature_ = prepared_->signature;
  at_ = 0;
  sequence_ = channel->log().TakeNumber();
  record_ = channel->log().Open(sequence_, call.NamedAs(packed), call.count, prepared_->plan_word);
  CallLog::Close(record_, sequence_);
  return true;
}

inline void PlainCall::TakeBases(const Call& call) {
  const uint64_t set = prepared_->sets.OffsetOf(turn_);
  base_[PlainOperand::kSlot] = set;
  base_[PlainOperand::kApart] = reinterpret_cast<uintptr_t>(channel_->member(0).scratch) + set;
  base_[PlainOperand::kInput] = reinterpret_cast<uintptr_t>(call.input);
  base_[PlainOperand::kOutput] = reinterpret_cast<uintptr_t>(call.output);
}

inline bool PlainCall::Run() {
  const PlainStep* const steps = prepared_->plain_program.steps.data();
  const auto count = static_cast<uint32_t>(prepared_->plain_program.steps.size());
  for (; at_ < count; ++at_) {
    const PlainStep& step = steps[at_];
    if (step.kind == plan::OpKind::kWait) {
      if (!Passed(step)) return false;
    } else if (step.kind == plan::OpKind::kSignal) {
      Signal(step);
    } else if (binding_ != nullptr) {
      FlatOperands::MovePlain(*binding_, prepared_->program->lanes[0][at_], turn_);
    } else if (step.num_dst != 0) {
      Move(step);
    }
  }
  return true;
}

// A release store, although looks at the waiter words follow: see waiting.h.
inline void PlainCall::Signal(const PlainStep& step) const {
  Line* const line = step.line[copy_];
  line->signature.store(signature_, std::memory_order_relaxed);
  line->sequence.store(static_cast<uint32_t>(sequence_), std::memory_order_relaxed);
  line->value.store(turn_ << 16 | step.value, std::memory_order_release);
  for (int i = 0; i < step.num_readers; ++i) WakeMember(*step.readers[i]);
}

inline void PlainCall::Move(const PlainStep& step) const {
  const size_t bytes = prepared_->plain_program.block_bytes;
  const PlainOperand* const operand = step.operands;
  const PlainOperand* const source = operand + step.num_dst;
  if (step.kind == plan::OpKind::kCopy) {
    const void* const from = AddressOf(*source);
    for (int i = 0; i < step.num_dst; ++i) {
      void* const to = AddressOf(operand[i]);
      if (to != from) CopyFew(to, from, bytes);
    }
    return;
  }
  kernels::ReduceRequest request;
  request.num_dst = step.num_dst;
  request.num_src = step.num_src;
  request.count = call_->count;
  request.type = call_->type;
  request.combine = call_->combine;
  if (step.num_dst == 1 && step.num_src == 2) {  // of two ranks: no loops
    void* const dst[1] = {AddressOf(operand[0])};
    const void* const src[2] = {AddressOf(source[0]), AddressOf(source[1])};
    request.dst = dst;
    request.src = src;
    return kernels::ReduceUnscaled(request);
  }
  void** const dst = host_->workspace().destinations();
  const void** const src = host_->workspace().sources();
  for (int i = 0; i < step.num_dst; ++i) dst[i] = AddressOf(operand[i]);
  for (int i = 0; i < step.num_src; ++i) src[i] = AddressOf(source[i]);
  request.dst = dst;
  request.src = src;
  kernels::ReduceUnscaled(request);
}

}  // namespace axccl::exec
