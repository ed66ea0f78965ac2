#include "src/exec/host/operation.h"

#include <utility>

#include "src/base/call_user.h"
#include "src/exec/host/factors.h"
#include "src/exec/host/flat_operands.h"

namespace axccl::exec {
namespace {

using device::host::Poll;
using plan::OpKind;

// Bytes that one Progress() moves before it returns, so that aborts are noticed and other work gets its turn.
constexpr int64_t kBudget = 2 << 20;
// Announcing buffers costs a small call a quarter of its time, and an application's buffers are mostly of one kind.
constexpr uint64_t kSmallBlock = 128u << 10;
constexpr uint32_t kUnasked = 31;

uint64_t Target(uint64_t turn, uint16_t value) { return turn << 16 | value; }

// A step that may write to ranks of other processes. Sequentially consistent, as are a member's failure and its look at
// this: either the step sees the failure, or the member sees the step.
class Writing {
 public:
  // Null: no such step.
  explicit Writing(BlockHeader* own) : own_(own) {
    if (own_ != nullptr) own_->writing.fetch_add(1, std::memory_order_seq_cst);
  }
  ~Writing() {
    if (own_ != nullptr) own_->writing.fetch_sub(1, std::memory_order_release);
  }
  Writing(const Writing&) = delete;

 private:
  BlockHeader* const own_;
};

}  // namespace

Operation::Operation(Channel* channel, const Call& call)
    : channel_(channel),
      operands_(Operands::FormOf(call)),
      binding_(channel, call),
      outbox_(channel->members().inbox()) {
  binding_.call.group_order = (call.group_order || channel->group_order()) && call.OrderMatters();
}

Operation::Operation(Channel* channel, const Call& call, const PlainCall& begun) : Operation(channel, call) {
  binding_.sequence = begun.sequence();
  main_ = &begun.prepared();
  Begin(Stage::kMain, main_);
  first_lane_.step = begun.at();
}

Poll Operation::Fail(Status status) {
  channel_->owner()->Fail(status);
  status_ = std::move(status);
  return Leave();
}

Poll Operation::Leave() {
  if (stage_ != Stage::kLeaving) {
    outbox_.Close();
    exposure_.BeginLeaving();
    stage_ = Stage::kLeaving;
  }
  if (!exposure_.HasLeft(binding_, *operands_)) return Poll::kBlocked;
  stage_ = Stage::kFinished;
  exposure_.Update(binding_, false);
  return Poll::kDone;
}

// The thread that drives this, a thread of the library or another rank's call, must not get its exceptions.
Poll Operation::Progress() try {
  awaited_ = {};
  if (stage_ == Stage::kFinished) return Poll::kDone;
  if (stage_ == Stage::kLeaving) return Leave();
  if (channel_->owner()->failed()) {
    status_ = channel_->owner()->Failure();
    return Leave();
  }
  // A new operation first sends what it has to send.
  outbox_.TakeMessages(stage_ != Stage::kNew || channel_->members().connector() != nullptr);
  if (stage_ == Stage::kNew) {
    if (channel_->members().connector() != nullptr) {
      const Run run = Connect();
      if (run == Run::kFailed) return Fail(std::move(status_));
      if (run == Run::kBlocked) return Poll::kBlocked;
    }
    if (Status status = Start(); !status.ok()) return Fail(std::move(status));
  }
  members_checked_ = false;
  budget_ = kBudget;
  moved_ = false;
  for (;;) {
    switch (binding_.call.callback == nullptr ? RunStage() : RunStageWithCallback()) {
      case Run::kBlocked:
        // A thread that waits for messages goes on looking as long as they come.
        return moved_ && channel_->members().inbox() != nullptr ? Poll::kAgain : Poll::kBlocked;
      case Run::kAgain:
        monitor_.Restart();  // in the middle of a step
        return Poll::kAgain;
      case Run::kFailed:
        return Fail(std::move(status_));
      case Run::kSwitched:
        continue;
      case Run::kDone:
        if (stage_ == Stage::kPutOff) {
          if (Status status = BeginStages(); !status.ok()) return Fail(std::move(status));
          continue;
        }
        if (Status status = exposure_.CheckOutputs(binding_, *operands_); !status.ok()) return Fail(std::move(status));
        EndStage();
    }
    if (stage_ == Stage::kFinished) return Poll::kDone;
  }
} catch (abi::__forced_unwind&) {
  throw;
} catch (...) {
  const Status thrown = StatusOfException(plan::KindName(binding_.call.kind));
  // The communicator has failed in any case. If there was no memory to record that, this operation leaves in its next
  // step.
  Poll poll = Poll::kAgain;
  (void)CatchAll("leaving", [&] { return poll = Fail(thrown), Status(); });
  return poll;
}

// Before the first operation of a channel: no rank continues before all have found each other, because a rank that is
// done may free its part of the channel.
Operation::Run Operation::Connect() {
  for (int waited_for = -1;;) {
    const Result<int> missing = channel_->members().Connect();
    if (!missing.ok()) {
      status_ = missing.status();
      return Run::kFailed;
    }
    if (missing.value() < 0) {
      monitor_.Restart();
      status_ = Status();
      return Run::kDone;
    }
    // As in PassWait: the member may have done its part and left between the two looks.
    if (missing.value() == waited_for) return Run::kFailed;
    waited_for = missing.value();
    const Run run = Blocked(waited_for);
    if (run != Run::kFailed || status_.code() != Code::kRemoteError) return run;
  }
}

Status Operation::Start() {
  binding_.sequence = channel_->log().TakeNumber();
  if (binding_.call.scaling != Scaling::kNone) StartScales(&binding_);
  AXCCL_RETURN_IF_ERROR(operands_->Start(&binding_));
  tune::Access access = channel_->members().heap_access();
  // Members learn sizes from announcements, which only direct programs make, even if no rank can access buffers.
  if (access != tune::Access::kMapped && !operands_->sizes_known()) access = tune::Access::kMapped;
  AXCCL_ASSIGN_OR_RETURN(main_, binding_.host->plans().Prepare(binding_.call, access));
  main_ = binding_.host->plans().Redirected(main_);
  AXCCL_RETURN_IF_ERROR(WriteRecord());
  MessageEnd& end = binding_.host->message_end();
  if (end.kept()) end.Sent(channel_->member(0).reach->PublishKept());
  if (end.put_off().waits.empty()) return BeginStages();
  stage_ = Stage::kPutOff;
  binding_.prepared = main_;
  return Status();
}

Status Operation::BeginStages() {
  binding_.behind = 0;
  if (binding_.host->turns().NeedsBarrier(*main_)) {
    AXCCL_ASSIGN_OR_RETURN(const Prepared* barrier, binding_.host->plans().PrepareBarrier());
    Begin(Stage::kBarrier, barrier);
  } else {
    Begin(Stage::kMain, main_);
  }
  return Status();
}

// The release of the operation's first signal publishes the record.
Status Operation::WriteRecord() {
  OpRecord* record = channel_->log().Open(binding_.sequence, binding_.call, binding_.form_hash, main_->plan_word);
  if (main_->program->plan->schedule.direct) {
    AXCCL_RETURN_IF_ERROR(operands_->Announce(&binding_, record));
    AnnounceFactor(binding_, record);
  }
  channel_->log().Close(record, binding_.sequence);
  return Status();
}

void Operation::Begin(Stage stage, const Prepared* prepared) {
  stage_ = stage;
  binding_.prepared = prepared;
  binding_.around_cache = prepared->around_cache && (prepared->around_cache_in_place || !binding_.InPlace());
  exposure_.Update(binding_, stage == Stage::kMain);
  // A barrier is the same for all calls.
  signature_ = prepared->signature ^ (stage == Stage::kMain ? binding_.form_hash : 0);
  first_lane_ = LaneState();
  binding_.workspace().MakeRoom(prepared->program->max_operands);
  if (stage == Stage::kMain && prepared->program->plan->sends_ahead) BeginMessage();
  if (prepared->program->lanes.size() > 1) more_lanes_.assign(prepared->program->lanes.size() - 1, LaneState());
}

void Operation::BeginMessage() {
  const Member& peer = channel_->member(1 - channel_->self());
  if (!IsMirror(peer)) return;
  MessageEnd& end = binding_.host->message_end();
  binding_.receives = channel_->self() == 1;
  binding_.keeps_signals = binding_.receives && end.Keep();
  binding_.sends_ahead = !binding_.receives && end.Answered(peer.reach->received());
  if (binding_.sends_ahead) signature_ ^= MessageEnd::kAhead;
}

void Operation::EndStage() {
  binding_.host->turns().NoteEnd(*binding_.prepared);
  if (stage_ == Stage::kBarrier) {
    Begin(Stage::kMain, main_);
  } else {
    operands_->End(binding_);
    channel_->log().End(binding_.sequence);
    channel_->owner()->NoteAlgorithm(binding_.prepared->program->algorithm);
    if (binding_.receives) channel_->member(0).reach->NoteReceived();
    stage_ = Stage::kFinished;
    exposure_.Update(binding_, false);
    outbox_.Close();
  }
}

Operation::Run Operation::RunStageWithCallback() {
  Run run = Run::kFailed;
  Status thrown = CallUser("a reduction's callback (axcclRedOpCreateCallback)", [&] { run = RunStage(); });
  if (!thrown.ok()) status_ = std::move(thrown);
  return run;
}

Operation::Run Operation::RunStage() {
  if (stage_ == Stage::kPutOff) return PassPutOff();
  if (binding_.prepared->plain && channel_->members().at_hand()) return RunPlain();
  Run result = RunLane(0);
  if (result == Run::kSwitched || result == Run::kFailed) return result;
  for (uint32_t lane = 1; lane < binding_.prepared->program->lanes.size(); ++lane) {
    const Run run = RunLane(lane);
    if (run == Run::kFailed) return run;
    // kDone only if all are done; kAgain if any can continue.
    if (run == Run::kAgain || (result == Run::kDone && run == Run::kBlocked)) result = run;
  }
  return result;
}

Operation::Run Operation::RunLane(uint32_t lane) {
  LaneState& state = State(lane);
  const std::vector<Step>& steps = binding_.prepared->program->lanes[lane];
  for (; state.turn < binding_.prepared->turns; ++state.turn, state.step = 0) {
    const uint64_t turn = binding_.host->turns().next() + state.turn;
    while (state.step < steps.size()) {
      const Step& step = steps[state.step];
      Run run = Run::kDone;
      if (step.kind == OpKind::kWait) {
        run = PassWait(step, lane, turn);
      } else if (step.kind == OpKind::kSignal) {
        const bool opens = lane == 0 && state.step < binding_.prepared->program->prologue;
        if (!opens && !ReadWhileOwned()) return Run::kFailed;
        Signal(step, lane, turn);
      } else {
        const Writing writing(exposure_.exposed() ? channel_->own().header : nullptr);
        members_checked_ &= !exposure_.exposed();  // looks before the step was published do not count
        run = MembersPresent() ? Move(step, lane, &state) : Run::kFailed;
      }
      if (run != Run::kDone) return run;
      NoteMove();
      ++state.step;
      if (lane == 0 && state.step == binding_.prepared->program->prologue) {
        Result<bool> stay = ChooseAccess();
        if (!stay.ok()) {
          status_ = stay.status();
          return Run::kFailed;
        }
        if (!*stay) return Run::kSwitched;
      }
    }
  }
  return Run::kDone;
}

// The same as RunLane, for calls whose cost is dominated by instructions.
Operation::Run Operation::RunPlain() {
  PlainCall plain(binding_, signature_, first_lane_.step);
  for (;;) {
    const bool done = plain.Run();
    if (std::exchange(first_lane_.step, plain.at()) != plain.at()) monitor_.Restart();
    if (done) return Run::kDone;
    const Step& step = binding_.prepared->program->lanes[0][plain.at()];
    if (const Run run = PassWait(step, 0, binding_.host->turns().next()); run != Run::kDone) return run;
    plain.PassWait();
  }
}

Operation::Run Operation::Move(const Step& step, uint32_t lane, LaneState* state) {
  const uint32_t together = binding_.prepared->together ? step.together : 1;
  const Moved moved = operands_->Move(binding_, step, lane, state->turn, together, &state->moved, &budget_, &status_);
  if (moved != Moved::kAll) return moved == Moved::kSome ? Run::kAgain : Run::kFailed;
  state->step += together - 1;
  return Run::kDone;
}

// A member that fails or aborts takes its buffers away: no step that begins after that may access them. It waits for
// running steps that may write (Leave); reads by other processes are covered by ReadWhileOwned.
bool Operation::MembersPresent() {
  if (members_checked_ || !binding_.prepared->program->plan->schedule.direct) return true;
  members_checked_ = true;
  status_ = channel_->members().Check(-1);
  return status_.ok();
}

// Whether what was read from members' buffers and announcements was valid. A member that fails publishes that before
// the application has its buffers again, and until this rank has signalled, no member that it has read from can have
// ended successfully. So no result depends on what a late reader found in memory that was reused by then. The reads are
// ordered before the look, as in a seqlock.
bool Operation::ReadWhileOwned() {
  if (!binding_.prepared->program->plan->schedule.direct) return true;
  std::atomic_thread_fence(std::memory_order_acquire);
  status_ = channel_->members().CheckOwners();
  return status_.ok();
}

Operation::Run Operation::PassWait(const Step& step, uint32_t lane, uint64_t turn) {
  const MessageEnd::Wait wait{step.from_lane, step.endpoint, step.value};
  const uint32_t signature = binding_.sends_ahead ? signature_ ^ MessageEnd::kAhead : signature_;  // of the peer's
  if (binding_.sends_ahead && binding_.IsLast(turn)) {
    MessageEnd::PutOff& put_off = binding_.host->message_end().put_off();
    put_off.sequence = binding_.sequence;
    put_off.turn = turn;
    put_off.signature = signature;
    put_off.waits.push_back(wait);
    return Run::kDone;
  }
  const Run run = AwaitSignal({step.peer, wait, turn, binding_.sequence, signature});
  if (run != Run::kDone) return run;
  if (lane == 0 && State(0).step < binding_.prepared->program->prologue) {
    if (status_ = operands_->Bind(&binding_, step.peer); !status_.ok()) return Run::kFailed;
    BindFactor(binding_, step.peer);
  }
  return Run::kDone;
}

// The sender has signalled, and told by its signature whether it waits for what this rank keeps.
void Operation::HearSender(bool ahead) {
  MessageEnd& end = binding_.host->message_end();
  end.NoteSender(ahead);
  if (ahead) return;
  binding_.keeps_signals = false;  // those of other lanes, which follow
  if (!end.kept()) return;
  (void)channel_->member(0).reach->PublishKept();
  end.Sent(true);
}

Operation::Run Operation::PassPutOff() {
  MessageEnd::PutOff& put_off = binding_.host->message_end().put_off();
  binding_.behind = binding_.sequence - put_off.sequence;
  for (; !put_off.waits.empty(); put_off.waits.pop_back()) {
    const Run run =
        AwaitSignal({1 - channel_->self(), put_off.waits.back(), put_off.turn, put_off.sequence, put_off.signature});
    if (run != Run::kDone) return run;
    NoteMove();
  }
  return Run::kDone;
}

Operation::Run Operation::AwaitSignal(const Needed& needed) {
  const Member& peer = channel_->member(needed.peer);
  const MessageEnd::Wait& wait = needed.wait;
  const Line* const line = peer.layout.LineOf(peer.block, wait.from_lane, wait.endpoint, needed.turn);
  const uint64_t target = Target(needed.turn, wait.value);
  // Sequentially consistent, because it is the look after Arm (waiting.h).
  const auto ready = [&] { return line->value.load(std::memory_order_seq_cst) >= target; };
  if (!ready()) {
    const Run run = Blocked(needed.peer);
    // Where lines come in messages, a look at one is not enough.
    const bool alone = binding_.prepared->program->lanes.size() == 1 && channel_->members().inbox() == nullptr;
    if (run == Run::kBlocked && alone) awaited_ = {&line->value, target};
    // The member may have done its part and left, in good order, between the looks at its signal and at its health.
    const bool left_after_all = run == Run::kFailed && status_.code() == Code::kRemoteError && ready();
    if (!left_after_all) return run;
    status_ = Status();
  }
  if (needed.peer == channel_->self()) return Run::kDone;
  // While the line belongs to this turn, it shows what the peer runs. Once it has moved on, the line is of a later turn
  // (read completely or in part), and only the records show it.
  uint32_t signature = line->signature.load(std::memory_order_relaxed);
  const bool ahead = binding_.receives && signature == (needed.signature ^ MessageEnd::kAhead);
  if (ahead) signature = needed.signature;
  if (signature != needed.signature ||
      line->sequence.load(std::memory_order_relaxed) != static_cast<uint32_t>(needed.sequence)) {
    if (status_ = channel_->log().CompareWith(needed.peer); !status_.ok()) return Run::kFailed;
  }
  if (!channel_->members().has_scratch()) {
    if (status_ = channel_->members().FindScratch(needed.peer); !status_.ok()) return Run::kFailed;
  }
  if (binding_.receives) HearSender(ahead);
  return Run::kDone;
}

Turn Operation::TakeTurn() {
  if (!MayContinue()) return Turn::kWaits;
  const bool waited = awaited_.counter != nullptr;
  if (Progress() != Poll::kBlocked) return Turn::kEnded;
  return waited ? Turn::kMoved : Turn::kWaits;
}

// Including those that it would wait for next, as PlainCall does. If it waits for something else, looking is no cheaper
// than giving up the core.
bool Operation::AwaitsNeighbour() const {
  if (awaited_.counter == nullptr) return true;
  const std::vector<Step>& steps = binding_.prepared->program->lanes[0];
  const uint64_t turn = binding_.host->turns().next() + first_lane_.turn;
  for (size_t at = first_lane_.step; at < steps.size() && steps[at].kind != OpKind::kSignal; ++at) {
    const Step& step = steps[at];
    if (step.kind != OpKind::kWait || !Handover::IsNeighbour(channel_->members(), step.peer)) continue;
    const Member& peer = channel_->member(step.peer);
    const Line* const line = peer.layout.LineOf(peer.block, step.from_lane, step.endpoint, turn);
    if (line->value.load(std::memory_order_relaxed) < Target(turn, step.value)) return true;
  }
  return false;
}

Operation::Run Operation::Blocked(int waiting_for) {
  Status over = monitor_.Look(binding_, waiting_for);
  if (over.ok()) return Run::kBlocked;
  status_ = std::move(over);
  return Run::kFailed;
}

void Operation::Arm(int doorbell) {
  if (doorbell != device::host::Work::kNoDoorbell) monitor_.Arm();
  channel_->own().header->waiter.store(static_cast<uint32_t>(doorbell) + 1, std::memory_order_seq_cst);
  if (doorbell != device::host::Work::kNoDoorbell) outbox_.Sleep();
}

void Operation::Signal(const Step& step, uint32_t lane, uint64_t turn) {
  const Member& own = channel_->own();
  Line* line = own.layout.LineOf(own.block, lane, step.endpoint, turn);
  line->signature.store(signature_, std::memory_order_relaxed);
  line->sequence.store(static_cast<uint32_t>(binding_.sequence), std::memory_order_relaxed);
  line->value.store(Target(turn, step.value), std::memory_order_release);  // as in PlainCall
  if (step.peer == channel_->self()) return;
  outbox_.Send(binding_, step, lane, turn);
  const int first = step.peer == plan::kAllPeers ? 0 : step.peer;
  const int last = step.peer == plan::kAllPeers ? channel_->size() - 1 : step.peer;
  for (int p = first; p <= last; ++p) {
    if (p != channel_->self()) WakeMember(channel_->member(p));
  }
}

// Called after the first exchange of a direct program: every rank has read every announcement and reaches the same
// conclusion. Returns true to continue; false when another program has been begun instead.
Result<bool> Operation::ChooseAccess() {
  AXCCL_RETURN_IF_ERROR(operands_->Settle(&binding_));
  bool plain = channel_->members().heap_access() != tune::Access::kMapped;
  for (int p = 0; p < channel_->size(); ++p) {
    const Member& member = channel_->member(p);
    const OpRecord& record = *member.layout.RecordOf(member.block, binding_.sequence);
    plain |= Word(record, OpRecord::kInputKind) == static_cast<uint64_t>(MemoryKind::kPlain);
    plain |= Word(record, OpRecord::kOutputKind) == static_cast<uint64_t>(MemoryKind::kPlain);
  }
  const tune::Access reached = channel_->members().plain_access();
  if (!plain || reached == tune::Access::kMapped) return true;
  const tune::Access access = operands_->may_read_by_call() ? reached : tune::Access::kNone;
  AXCCL_ASSIGN_OR_RETURN(const Prepared* other, binding_.host->plans().PrepareBeside(binding_.call, access));
  if (other->program->plan->hash == binding_.prepared->program->plan->hash) return true;
  if (binding_.call.count * ElementSize(binding_.call.type) <= kSmallBlock && operands_->sizes_known())
    binding_.host->plans().Redirect(*main_, *other, kUnasked);
  binding_.host->turns().NotePrologue();
  Begin(Stage::kMain, other);
  return false;
}

}  // namespace axccl::exec
