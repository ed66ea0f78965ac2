#include "src/exec/host/operation.h"

#include <algorithm>
#include <utility>

#include "src/base/call_user.h"
#include "src/base/log.h"
#include "src/device/host/waiting.h"

namespace axccl::exec {
namespace {

using device::host::Poll;
using plan::OpKind;

// Bytes one Progress() moves before it comes back, so that aborts are seen and other work gets its turn.
constexpr int64_t kBudget = 2 << 20;
// Announcing buffers costs a small call a quarter of its time, and an application's buffers are of one kind mostly.
constexpr uint64_t kSmallBlock = 128u << 10;
constexpr uint32_t kUnasked = 31;
// A blocked operation looks at the clock every so many polls, and first when it has been blocked for a few: a peer that
// was gone before is found then, and a call that comes at the same time as the peers' has not paid for it.
constexpr uint32_t kPollsPerClock = 256;
constexpr uint32_t kPollsToFirstLook = 32;
// Work that moves does so sooner.
constexpr std::chrono::milliseconds kStandstill(60);

uint64_t Target(uint64_t turn, uint16_t value) { return turn << 16 | value; }

// A step in which ranks of other processes may be written to. Sequentially consistent, as are a member's failure and
// its look at this: either the step sees the failure, or the member sees the step.
class Writing {
 public:
  // Null: none.
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

Poll Operation::Fail(Status status) {
  channel_->owner()->Fail(status);
  status_ = std::move(status);
  return Leave();
}

// What has come for this rank or others of the process. A new operation first sends what it has to send.
void Operation::TakeMessages() {
  transport::RemoteRank* const remote = channel_->remote();
  if (remote == nullptr) return;
  if (!std::exchange(last_look_, false)) polling_.Begin(remote);
  if (stage_ != Stage::kNew || channel_->members().connector() != nullptr) remote->Progress();
}

// Whoever drives this, a thread of the library or another rank's call, is not to have what it throws.
Poll Operation::Progress() try {
  if (stage_ == Stage::kFinished) return Poll::kDone;
  if (stage_ == Stage::kLeaving) return Leave();
  if (channel_->owner()->failed()) {
    status_ = channel_->owner()->Failure();
    return Leave();
  }
  TakeMessages();
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
  for (;;) {
    switch (call_.callback == nullptr ? RunStage() : RunStageWithCallback()) {
      case Run::kBlocked:
        return Poll::kBlocked;
      case Run::kAgain:
        return Poll::kAgain;
      case Run::kFailed:
        return Fail(std::move(status_));
      case Run::kSwitched:
        continue;
      case Run::kDone:
        if (Status status = CheckOutputs(); !status.ok()) return Fail(std::move(status));
        EndStage();
    }
    if (stage_ == Stage::kFinished) return Poll::kDone;
  }
} catch (abi::__forced_unwind&) {
  throw;
} catch (...) {
  const Status thrown = StatusOfException(plan::KindName(call_.kind));
  // The communicator has failed in any case, and this operation leaves in its next step where there was no memory for
  // that.
  Poll poll = Poll::kAgain;
  (void)CatchAll("leaving", [&] { return poll = Fail(thrown), Status(); });
  return poll;
}

// Before the first operation of a channel: no rank goes on before all have found each other, for one that is done may
// take its part of the channel away.
Operation::Run Operation::Connect() {
  for (int waited_for = -1;;) {
    const Result<int> missing = channel_->members().Connect();
    if (!missing.ok()) {
      status_ = missing.status();
      return Run::kFailed;
    }
    if (missing.value() < 0) {
      status_ = Status();
      return Run::kDone;
    }
    // As in PassWait: the member may have done its part and left between our two looks.
    if (missing.value() == waited_for) return Run::kFailed;
    waited_for = missing.value();
    const Run run = Blocked(waited_for);
    if (run != Run::kFailed || status_.code() != Code::kRemoteError) return run;
  }
}

Status Operation::Start() {
  sequence_ = channel_->log().TakeNumber();
  MemberBuffers& own = workspace_.BuffersOf(channel_->self());
  own = {
      static_cast<std::byte*>(const_cast<void*>(call_.input)), static_cast<std::byte*>(call_.output), false, false, {}};
  if (call_.scaling == Scaling::kPreMultiply)
    own.factor = LoadFactor(call_.type, call_.scalar_pointer != nullptr ? call_.scalar_pointer : &call_.scalar_bytes);
  if (call_.scaling == Scaling::kAverage) {
    averages_floats_ = IsFloat(ScalarType(call_.type));
    if (!averages_floats_) post_divisor_ = static_cast<uint64_t>(channel_->size());
  }
  scales_ = averages_floats_ || call_.scaling == Scaling::kPreMultiply;
  if (call_.uneven()) AXCCL_RETURN_IF_ERROR(StartUneven());
  if (call_.views != nullptr) StartViews();
  scales_result_ = call_.views != nullptr && call_.views->scale != 0;
  if (scales_result_) post_factor_ = FactorOf(call_.type, call_.views->scale);
  // A plan of one rank has no opening.
  if (call_.uneven() && channel_->size() == 1) AXCCL_RETURN_IF_ERROR(SettlePieces());
  // Uneven calls begin with ranks telling each other their pieces, as direct ones do.
  const bool scratch_only = channel_->remote() != nullptr && !call_.uneven();
  AXCCL_ASSIGN_OR_RETURN(main_,
                         channel_->plans().Prepare(call_, scratch_only ? tune::Access::kNone : tune::Access::kMapped));
  main_ = channel_->plans().Redirected(main_);
  AXCCL_RETURN_IF_ERROR(WriteRecord());
  if (channel_->turns().NeedsBarrier(*main_)) {
    AXCCL_ASSIGN_OR_RETURN(const Prepared* barrier, channel_->plans().PrepareBarrier());
    Begin(Stage::kBarrier, barrier);
  } else {
    Begin(Stage::kMain, main_);
  }
  return Status();
}

Operation::Spot Operation::FindSpot(const void* p, uint64_t bytes) const {
  if (p == nullptr || bytes == 0) return {0, Reach::kUnused};
  if (uint64_t offset; channel_->owner()->InHeap(p, bytes, &offset)) return {offset, Reach::kHeap};
  return {reinterpret_cast<uint64_t>(p), Reach::kPlain};
}

// Published by the release of the operation's first signal; `sequence` brackets the rewriting of a record that a late
// reader may still look at.
Status Operation::WriteRecord() {
  OpRecord* record = channel_->log().Open(sequence_, call_, form_hash_, main_->plan_word);
  if (main_->program->plan->schedule.direct) {
    AXCCL_RETURN_IF_ERROR(Announce(record));
    const Factor factor = workspace_.BuffersOf(channel_->self()).factor;
    if (call_.scaling == Scaling::kPreMultiply)
      record->word[OpRecord::kFactor].store(factor.u64, std::memory_order_relaxed);
  }
  channel_->log().Close(record, sequence_);
  return Status();
}

Status Operation::Announce(OpRecord* record) {
  if (call_.views != nullptr) return AnnounceViews(record);
  const plan::Contract contract{call_.kind, channel_->size(), call_.root};
  const uint64_t block = call_.count * ElementSize(call_.type);
  const auto inputs = static_cast<uint64_t>(plan::InputBlocks(contract, channel_->self()));
  const auto outputs = static_cast<uint64_t>(plan::OutputBlocks(contract, channel_->self()));
  const Spot input = FindSpot(call_.input, block * inputs), output = FindSpot(call_.output, block * outputs);
  record->word[OpRecord::kInput].store(input.address, std::memory_order_relaxed);
  record->word[OpRecord::kInputReach].store(static_cast<uint64_t>(input.reach), std::memory_order_relaxed);
  record->word[OpRecord::kOutput].store(output.address, std::memory_order_relaxed);
  record->word[OpRecord::kOutputReach].store(static_cast<uint64_t>(output.reach), std::memory_order_relaxed);
  return Status();
}

void Operation::Begin(Stage stage, const Prepared* prepared) {
  stage_ = stage;
  prepared_ = prepared;
  around_cache_ = prepared->around_cache;
  Expose(stage == Stage::kMain && OthersMayWrite());
  // A barrier is the same for all calls.
  signature_ = prepared->signature ^ (stage == Stage::kMain ? form_hash_ : 0);
  first_lane_ = LaneState();
  workspace_.MakeRoom(prepared->program->max_operands);
  if (prepared->program->lanes.size() > 1) more_lanes_.assign(prepared->program->lanes.size() - 1, LaneState());
}

void Operation::EndStage() {
  channel_->turns().NoteEnd(*prepared_, stage_ == Stage::kBarrier);
  if (stage_ == Stage::kBarrier) {
    Begin(Stage::kMain, main_);
  } else {
    if (call_.views != nullptr && call_.views->zeros) FillZerosOfOthers();
    channel_->owner()->NoteAlgorithm(prepared_->program->algorithm);
    stage_ = Stage::kFinished;
    Expose(false);
    polling_.End(false);
  }
}

Operation::Run Operation::RunStageWithCallback() {
  Run run = Run::kFailed;
  Status thrown = CallUser("a reduction's callback (axcclRedOpCreateCallback)", [&] { run = RunStage(); });
  if (!thrown.ok()) status_ = std::move(thrown);
  return run;
}

Operation::Run Operation::RunStage() {
  if (prepared_->plain && channel_->members().has_scratch()) return RunPlain();
  Run result = RunLane(0);
  if (result == Run::kSwitched || result == Run::kFailed) return result;
  for (uint32_t lane = 1; lane < prepared_->program->lanes.size(); ++lane) {
    const Run run = RunLane(lane);
    if (run == Run::kFailed) return run;
    // kDone only if all are; kAgain if any can go on.
    if (run == Run::kAgain || (result == Run::kDone && run == Run::kBlocked)) result = run;
  }
  return result;
}

Operation::Run Operation::RunLane(uint32_t lane) {
  LaneState& state = State(lane);
  const std::vector<Step>& steps = prepared_->program->lanes[lane];
  for (; state.turn < prepared_->turns; ++state.turn, state.step = 0) {
    const uint64_t turn = channel_->turns().next() + state.turn;
    while (state.step < steps.size()) {
      const Step& step = steps[state.step];
      Run run = Run::kDone;
      if (step.kind == OpKind::kWait) {
        run = PassWait(step, lane, turn);
      } else if (step.kind == OpKind::kSignal) {
        const bool opens = lane == 0 && state.step < prepared_->program->prologue;
        if (!opens && !ReadWhileOwned()) return Run::kFailed;
        Signal(step, lane, turn);
      } else {
        const Writing writing(exposed_ ? channel_->own().header : nullptr);
        members_checked_ &= !exposed_;  // what was seen before the step was published does not count
        run = MembersPresent() ? Move(step, lane, &state) : Run::kFailed;
      }
      if (run != Run::kDone) return run;
      ++state.step;
      if (lane == 0 && state.step == prepared_->program->prologue) {
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

// What RunLane does, for calls of which instructions are all that counts.
Operation::Run Operation::RunPlain() {
  const std::vector<Step>& steps = prepared_->program->lanes[0];
  const uint64_t turn = channel_->turns().next(), set = prepared_->SetOffset(turn);
  uint32_t& at = first_lane_.step;
  for (; at < steps.size(); ++at) {
    const Step& step = steps[at];
    if (step.kind == OpKind::kSignal) {
      Signal(step, 0, turn);
    } else if (step.kind != OpKind::kWait) {
      MovePlain(step, turn, set);
    } else if (!PassedPlain(step, turn)) {
      if (const Run run = PassWait(step, 0, turn); run != Run::kDone) return run;
    }
  }
  return Run::kDone;
}

// Whether the peer has signalled, and for this very call; if not, PassWait finds out what there is to say.
bool Operation::PassedPlain(const Step& step, uint64_t turn) const {
  const Member& peer = channel_->member(step.peer);
  const Line* line = peer.layout.LineOf(peer.block, step.from_lane, step.endpoint, turn);
  return line->value.load(std::memory_order_acquire) >= Target(turn, step.value) &&
         line->signature.load(std::memory_order_relaxed) == signature_ &&
         line->sequence.load(std::memory_order_relaxed) == static_cast<uint32_t>(sequence_);
}

// A member that fails or aborts takes its buffers away: no step that begins after that may touch them. It waits for
// steps that have begun and may write (Leave); in those of other processes that read, it is what ReadWhileOwned is for.
bool Operation::MembersPresent() {
  if (members_checked_ || !prepared_->program->plan->schedule.direct) return true;
  members_checked_ = true;
  status_ = channel_->members().Check(-1);
  return status_.ok();
}

// Whether what has been read of members' buffers was theirs to show, and so is what they called with: a member that
// fails says so before the application has its buffers again, and until this rank has signalled none of those it has
// read from can have ended well. So nobody hears of what a late reader found in memory that was used for something else
// by then. The reads are ordered before the look as in a seqlock.
bool Operation::ReadWhileOwned() {
  if (!prepared_->program->plan->schedule.direct) return true;
  std::atomic_thread_fence(std::memory_order_acquire);
  status_ = channel_->members().CheckOwners();
  return status_.ok();
}

// Sequentially consistent, as it is the look after Arm (waiting.h).
bool Operation::Ready(const Step& step, uint64_t turn) const {
  const Member& peer = channel_->member(step.peer);
  const Line* line = peer.layout.LineOf(peer.block, step.from_lane, step.endpoint, turn);
  return line->value.load(std::memory_order_seq_cst) >= Target(turn, step.value);
}

Operation::Run Operation::PassWait(const Step& step, uint32_t lane, uint64_t turn) {
  if (!Ready(step, turn)) {
    const Run run = Blocked(step.peer);
    // The member may have done its part and left, in good order, between our look at its signal and at its health.
    const bool left_after_all = run == Run::kFailed && status_.code() == Code::kRemoteError && Ready(step, turn);
    if (!left_after_all) return run;
    status_ = Status();
  }
  if (step.peer == channel_->self()) return Run::kDone;
  // The line still belongs to this turn: it says what the peer runs. Once it has moved on the line is of a later turn
  // (seen or half seen), and only the records can tell.
  const Member& peer = channel_->member(step.peer);
  const Line* line = peer.layout.LineOf(peer.block, step.from_lane, step.endpoint, turn);
  if (line->signature.load(std::memory_order_relaxed) != signature_ ||
      line->sequence.load(std::memory_order_relaxed) != static_cast<uint32_t>(sequence_)) {
    if (status_ = channel_->log().CompareWith(step.peer); !status_.ok()) return Run::kFailed;
  }
  if (!channel_->members().has_scratch()) {
    if (status_ = channel_->members().FindScratch(step.peer); !status_.ok()) return Run::kFailed;
  }
  if (lane == 0 && State(0).step < prepared_->program->prologue) {
    if (status_ = Bind(step.peer); !status_.ok()) return Run::kFailed;
  }
  polls_ = 0;
  return Run::kDone;
}

Operation::Run Operation::Blocked(int waiting_for) {
  if (++polls_ % kPollsPerClock == 0 || polls_ == kPollsToFirstLook || armed_) {
    armed_ = false;
    if (status_ = SlowCheck(waiting_for); !status_.ok()) return Run::kFailed;
  }
  return Run::kBlocked;
}

Status Operation::SlowCheck(int waiting_for) {
  const auto now = std::chrono::steady_clock::now();
  if (started_ == std::chrono::steady_clock::time_point()) {
    started_ = checked_ = now;
    return channel_->members().Check(waiting_for);
  }
  if (now - checked_ < device::host::kCheckInterval) return Status();
  checked_ = now;
  const Connector* connector = channel_->members().connector();
  AXCCL_RETURN_IF_ERROR(connector != nullptr ? connector->CheckMissing(waiting_for) : channel_->log().FindMismatch());
  AXCCL_RETURN_IF_ERROR(channel_->members().Check(waiting_for));
  if (connector == nullptr) AXCCL_RETURN_IF_ERROR(channel_->members().CheckLeft(waiting_for));
  const ChannelOwner* const owner = channel_->owner();
  const double waited = std::chrono::duration<double>(now - started_).count();
  stands_still_ = now - started_ >= kStandstill;
  if (const double limit = owner->timeout_seconds(); limit > 0 && waited > limit) {
    return MakeStatus(Code::kTimeout, "rank %d waited %.3g s for %s: deadline AXCCL_TIMEOUT passed; %s",
                      channel_->own().rank, limit, DescribeWait(waiting_for).c_str(),
                      connector != nullptr
                          ? "all ranks of a group must create its channel and take part in its operations"
                          : channel_->log().LastCallOf(waiting_for).c_str());
  }
  if (const double patience = owner->notice_seconds();
      patience > 0 && waited > patience && !std::exchange(told_, true)) {
    log::Tell("rank %d has waited %.3g s for %s%s%s; it goes on waiting (AXCCL_TIMEOUT, AXCCL_WAIT_NOTICE)",
              channel_->own().rank, patience, DescribeWait(waiting_for).c_str(), connector != nullptr ? "" : "; ",
              connector != nullptr ? "" : channel_->log().LastCallOf(waiting_for).c_str());
  }
  return Status();
}

// "rank 2 in ncclAllReduce count 100 float sum (operation 10)"
std::string Operation::DescribeWait(int waiting_for) const {
  const std::string rank = "rank " + std::to_string(channel_->member(waiting_for).rank);
  if (const Connector* connector = channel_->members().connector(); connector != nullptr)
    return rank + " to create and use " + connector->Name() + ", in " + DescribeCall(call_);
  return rank + " in " + DescribeCall(call_) + " (operation " + std::to_string(sequence_) + ")";
}

void Operation::Arm(int doorbell) {
  armed_ = true;
  channel_->own().header->waiter.store(static_cast<uint32_t>(doorbell) + 1, std::memory_order_seq_cst);
  polling_.End(true);
  last_look_ = true;
}

void Operation::Signal(const Step& step, uint32_t lane, uint64_t turn) {
  const Member& own = channel_->own();
  Line* line = own.layout.LineOf(own.block, lane, step.endpoint, turn);
  line->signature.store(signature_, std::memory_order_relaxed);
  line->sequence.store(static_cast<uint32_t>(sequence_), std::memory_order_relaxed);
  line->value.store(Target(turn, step.value), std::memory_order_seq_cst);
  if (step.peer == channel_->self()) return;
  if (channel_->remote() != nullptr) SendSignal(step, lane, turn);
  const int first = step.peer == plan::kAllPeers ? 0 : step.peer;
  const int last = step.peer == plan::kAllPeers ? channel_->size() - 1 : step.peer;
  for (int p = first; p <= last; ++p) {
    if (p != channel_->self()) WakeMember(channel_->member(p));
  }
}

// ---- announced buffers ----

Status Operation::MapBuffer(const Member& member, uint64_t address, uint64_t reach, uint64_t bytes, std::byte** where,
                            bool* by_call) {
  *where = nullptr;
  *by_call = false;
  if (reach == static_cast<uint64_t>(Reach::kUnused) || member.remote != nullptr) return Status();
  if (reach == static_cast<uint64_t>(Reach::kHeap)) {
    const size_t size = member.process->heap_bytes();
    if (address > size || bytes > size - address)
      return MakeStatus(Code::kRemoteError, "rank %d announced a buffer outside its heap", member.rank);
    AXCCL_ASSIGN_OR_RETURN(*where, member.process->At(address, bytes));
  } else {
    *where = reinterpret_cast<std::byte*>(address);
    *by_call = !member.same_process;
    binds_by_call_ |= *by_call;
  }
  return Status();
}

Status Operation::Bind(int position) {
  if (call_.views != nullptr) return BindViews(position);
  const Member& member = channel_->member(position);
  const OpRecord* record = member.layout.RecordOf(member.block, sequence_);
  auto word = [record](OpRecord::Word w) { return record->word[w].load(std::memory_order_relaxed); };
  const plan::Contract contract{call_.kind, channel_->size(), call_.root};
  const uint64_t block = call_.count * ElementSize(call_.type);
  MemberBuffers& binding = workspace_.BuffersOf(position);
  AXCCL_RETURN_IF_ERROR(MapBuffer(member, word(OpRecord::kInput), word(OpRecord::kInputReach),
                                  block * static_cast<uint64_t>(plan::InputBlocks(contract, position)), &binding.input,
                                  &binding.input_by_call));
  AXCCL_RETURN_IF_ERROR(MapBuffer(member, word(OpRecord::kOutput), word(OpRecord::kOutputReach),
                                  block * static_cast<uint64_t>(plan::OutputBlocks(contract, position)),
                                  &binding.output, &binding.output_by_call));
  if (call_.scaling == Scaling::kPreMultiply) binding.factor.u64 = word(OpRecord::kFactor);
  return Status();
}

// After the prologue of a direct program: every rank has seen every announcement and draws the same conclusion. True to
// go on; false when another program has been begun in its place.
Result<bool> Operation::ChooseAccess() {
  if (call_.uneven()) AXCCL_RETURN_IF_ERROR(SettlePieces());
  bool plain = channel_->remote() != nullptr;
  for (int p = 0; p < channel_->size(); ++p) {
    const Member& member = channel_->member(p);
    const OpRecord* record = member.layout.RecordOf(member.block, sequence_);
    plain |=
        record->word[OpRecord::kInputReach].load(std::memory_order_relaxed) == static_cast<uint64_t>(Reach::kPlain);
    plain |=
        record->word[OpRecord::kOutputReach].load(std::memory_order_relaxed) == static_cast<uint64_t>(Reach::kPlain);
  }
  if (!plain || channel_->members().all_same_process()) return true;
  // Views go through scratch, as a system call would take a list of every run in them.
  const bool calls = channel_->members().all_call_copy() && call_.views == nullptr;
  const tune::Access access = calls ? tune::Access::kCall : tune::Access::kNone;
  AXCCL_ASSIGN_OR_RETURN(const Prepared* other, channel_->plans().PrepareBeside(call_, access));
  if (other->program->plan->hash == prepared_->program->plan->hash) return true;
  if (call_.count * ElementSize(call_.type) <= kSmallBlock && !call_.uneven())
    channel_->plans().Redirect(*main_, *other, kUnasked);
  channel_->turns().NotePrologue();
  Begin(Stage::kMain, other);
  return false;
}

}  // namespace axccl::exec
