#include "src/exec/host/sliced_run.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "src/exec/host/factors.h"

namespace axccl::exec {
namespace {

using device::host::Poll;
using plan::OpKind;

uint64_t ValueOf(uint64_t turn, uint16_t value) { return turn << 16 | value; }

}  // namespace

SlicedRun::SlicedRun(const PipelinePart& part, Words words)
    : binding_(part.channel, part.call),
      text_(part.channel->members().Name() + ", " + DescribeCall(part.call)),
      operands_(Operands::FormOf(binding_.call)),
      words_(words),
      outbox_(part.channel->members().inbox()) {}

Result<std::unique_ptr<SlicedRun>> SlicedRun::Make(const PipelinePart& part, Words words) {
  PipelinePart own = part;
  AXCCL_ASSIGN_OR_RETURN(std::unique_ptr<Shadow> shadow, Shadow::For(&own));
  std::unique_ptr<SlicedRun> run(new SlicedRun(own, words));
  run->shadow_ = std::move(shadow);
  Binding& binding = run->binding_;
  AXCCL_ASSIGN_OR_RETURN(run->prepared_, binding.host->plans().PrepareSliced(own.call, own.program, own.slicing));
  Prepared& prepared = run->prepared_;
  binding.prepared = &prepared;
  binding.around_cache = prepared.around_cache;
  run->scratch_bytes_ = prepared.sets.bytes * plan::kRotation;
  const auto members = static_cast<size_t>(own.channel->size());
  run->lanes_.resize(own.program->lanes.size());
  run->met_.resize(members);
  run->met_[static_cast<size_t>(own.channel->self())] = 1;
  run->in_chunks_ = run->NumChunks(Pipeline::kIn);
  if (own.program->plan->schedule.produced) run->counted_.resize(run->in_chunks_);
  binding.workspace().MakeRoom(own.program->max_operands);
  if (binding.call.scaling != Scaling::kNone) StartScales(&binding);
  AXCCL_RETURN_IF_ERROR(run->operands_->Start(&binding));
  run->signature_ = prepared.signature ^ binding.form_hash;
  return run;
}

Poll SlicedRun::Fail(Status status) {
  binding_.channel->owner()->Fail(status);
  status_ = std::move(status);
  return Leave();
}

size_t SlicedRun::NumChunks(Pipeline::Side side) const {
  const plan::Contract contract = binding_.contract();
  const int self = binding_.channel->self();
  const int blocks = side == Pipeline::kIn ? plan::InputBlocks(contract, self) : plan::OutputBlocks(contract, self);
  return static_cast<size_t>(blocks) * prepared_.slicing.slices;
}

void SlicedRun::FailWords() {
  Pipeline::Fail(words_.in, NumChunks(Pipeline::kIn));
  Pipeline::Fail(words_.out, NumChunks(Pipeline::kOut));
}

void SlicedRun::ForgetReady() {
  if (counted_.empty()) return;
  const std::lock_guard lock(count_lock_);
  ready_ = 0;
  std::fill(counted_.begin(), counted_.end(), uint8_t{0});
}

// Null: counts in none any more.
void SlicedRun::Show(OpRecord* record) {
  const auto show = [&](uint64_t ready) {
    shown_ = record;
    if (record != nullptr) record->progress.store(ready * OpRecord::kReadyChunk, std::memory_order_relaxed);
  };
  if (counted_.empty()) return show(in_chunks_);
  const std::lock_guard lock(count_lock_);
  show(ready_);
}

void SlicedRun::CountReady(size_t chunk) {
  const std::lock_guard lock(count_lock_);
  if (std::exchange(counted_[chunk], uint8_t{1}) != 0) return;
  ++ready_;
  if (shown_ != nullptr) shown_->progress.fetch_add(OpRecord::kReadyChunk, std::memory_order_relaxed);
}

Poll SlicedRun::Leave() {
  if (stage_ != Stage::kLeaving) {
    FailWords();
    Show(nullptr);
    outbox_.Close();
    exposure_.BeginLeaving();
    stage_ = Stage::kLeaving;
  }
  if (!exposure_.HasLeft(binding_, *operands_)) return Poll::kBlocked;
  stage_ = Stage::kIdle;
  return Poll::kDone;
}

// The thread that drives this must not get its exceptions.
Poll SlicedRun::Progress(int64_t budget) try {
  awaited_ = {};
  if (stage_ == Stage::kIdle) return Poll::kDone;
  if (stage_ == Stage::kLeaving) return Leave();
  if (binding_.channel->owner()->failed()) {
    status_ = binding_.channel->owner()->Failure();
    return Leave();
  }
  outbox_.TakeMessages(true);
  if (stage_ == Stage::kNew) {
    if (Status status = Start(); !status.ok()) return Fail(std::move(status));
  }
  return ProgressMain(budget);
} catch (abi::__forced_unwind&) {
  throw;
} catch (...) {
  const Status thrown = StatusOfException("a pipeline");
  Poll poll = Poll::kAgain;
  (void)CatchAll("leaving", [&] { return poll = Fail(thrown), Status(); });
  return poll;
}

Status SlicedRun::Start() {
  stage_ = Stage::kMain;
  std::fill(lanes_.begin(), lanes_.end(), LaneState());
  monitor_ = WaitMonitor();
  binding_.sequence = binding_.channel->log().TakeNumber();
  const plan::Schedule& schedule = prepared_.program->plan->schedule;
  if (shadow_ != nullptr && shadow_->has_input() && !schedule.produced) {
    const int blocks = plan::InputBlocks(binding_.contract(), binding_.channel->self());
    for (uint32_t c = 0; c < static_cast<uint32_t>(blocks) * schedule.slices; ++c) shadow_->CopyIn(c);
  }
  return WriteRecord();
}

// Later records lack the announcement, which members have read by then.
Status SlicedRun::WriteRecord() {
  CallLog& log = binding_.channel->log();
  OpRecord* record = log.Open(binding_.sequence, binding_.call, binding_.form_hash, prepared_.plan_word);
  if (prepared_.program->plan->schedule.direct && !announced_) {
    AXCCL_RETURN_IF_ERROR(operands_->Announce(&binding_, record));
    AnnounceFactor(binding_, record);
    announced_ = true;
  }
  Show(record);
  log.Close(record, binding_.sequence);
  return Status();
}

Result<int> SlicedRun::Connect() {
  Members& members = binding_.channel->members();
  if (members.connector() == nullptr) return -1;
  AXCCL_ASSIGN_OR_RETURN(const int missing, members.Connect());
  outbox_.SendHeld(binding_, binding_.host->turns().next());
  return missing;
}

Poll SlicedRun::ProgressMain(int64_t budget) {
  const Result<int> missing = Connect();
  if (!missing.ok()) return Fail(missing.status());
  members_checked_ = false;
  budget_ = budget;
  bool moved = false, again = false;
  uint32_t left = 0;
  for (uint32_t l = 0; l < lanes_.size(); ++l) {
    const LaneState before = lanes_[l];
    const Run run = RunLane(l);
    if (run == Run::kFailed) return Fail(std::move(status_));
    moved |= lanes_[l].step != before.step || lanes_[l].moved.offset != before.moved.offset;
    left += run != Run::kDone;
    again |= run == Run::kAgain;
  }
  if (moved) monitor_.Restart();
  if (left == 0) return End();
  if (left > 1 || binding_.channel->members().inbox() != nullptr) awaited_ = {};
  return moved || again ? Poll::kAgain : Poll::kBlocked;
}

// A member that has not found this rank's part of the channel yet would wait for ever if it went away.
Poll SlicedRun::End() {
  const Result<int> missing = Connect();
  Status over = missing.ok() ? Status() : missing.status();
  if (over.ok() && missing.value() >= 0) over = monitor_.Look(binding_, missing.value());
  if (!over.ok()) return Fail(std::move(over));
  if (missing.value() >= 0) return Poll::kBlocked;
  binding_.host->turns().NoteEnd(prepared_);
  operands_->End(binding_);
  shown_->progress.fetch_or(OpRecord::kDone, std::memory_order_release);
  Show(nullptr);
  binding_.channel->owner()->NoteAlgorithm(prepared_.program->algorithm);
  outbox_.Close();
  stage_ = Stage::kIdle;
  return Poll::kDone;
}

SlicedRun::Run SlicedRun::RunLane(uint32_t lane) {
  LaneState& state = lanes_[lane];
  const std::vector<Step>& steps = prepared_.program->lanes[lane];
  while (state.step < steps.size()) {
    const Run run = RunStep(steps[state.step], lane, &state);
    if (run != Run::kDone) return run;
    ++state.step;
  }
  return Run::kDone;
}

SlicedRun::Run SlicedRun::RunStep(const Step& step, uint32_t lane, LaneState* state) {
  switch (step.kind) {
    case OpKind::kWait:
      return PassWait(step);
    case OpKind::kAwait:
      return PassAwait(step);
    case OpKind::kNotify:
      return Notify(step);
    case OpKind::kSignal:
      if (!ReadWhileOwned()) return Run::kFailed;
      Signal(step, lane);
      return Run::kDone;
    default:
      return Move(step, lane, state);
  }
}

SlicedRun::Run SlicedRun::Move(const Step& step, uint32_t lane, LaneState* state) {
  // As in Operation: no step on members' buffers begins after one of them has failed.
  if (prepared_.program->plan->schedule.direct && !std::exchange(members_checked_, true)) {
    status_ = binding_.channel->members().Check(-1);
    if (!status_.ok()) return Run::kFailed;
  }
  const Moved moved = operands_->Move(binding_, step, lane, 0, 1, &state->moved, &budget_, &status_);
  if (moved != Moved::kAll) return moved == Moved::kSome ? Run::kAgain : Run::kFailed;
  return Run::kDone;
}

// As in Operation: what was read counts only if its owners have not failed since.
bool SlicedRun::ReadWhileOwned() {
  if (!prepared_.program->plan->schedule.direct) return true;
  std::atomic_thread_fence(std::memory_order_acquire);
  status_ = binding_.channel->members().CheckOwners();
  return status_.ok();
}

// "3 of 16 chunks of the output are there"
std::string SlicedRun::ChunksThere() const {
  const size_t all = NumChunks(Pipeline::kOut);
  const auto is_there = [](const Pipeline::Word& word) {
    return word.load(std::memory_order_relaxed) == Pipeline::kThere;
  };
  return std::to_string(std::count_if(words_.out, words_.out + all, is_there)) + " of " + std::to_string(all) +
         " chunks of the output are there";
}

SlicedRun::Run SlicedRun::Blocked(Status over) {
  if (over.ok()) return Run::kBlocked;
  status_ = std::move(over);
  if (status_.code() == Code::kTimeout)
    status_ = MakeStatus(Code::kTimeout, "%s; %s", status_.message().data(), ChunksThere().c_str());
  return Run::kFailed;
}

// The first look at the member's signals.
Result<bool> SlicedRun::Meet(int position) {
  Channel& channel = *binding_.channel;
  const Member& member = channel.member(position);
  if (member.block == nullptr || !channel.log().HasRecorded(position, binding_.sequence)) return false;
  AXCCL_RETURN_IF_ERROR(channel.log().CompareWith(position));
  if (prepared_.program->plan->schedule.direct) {
    AXCCL_RETURN_IF_ERROR(operands_->Bind(&binding_, position));
    BindFactor(binding_, position);
  }
  met_[static_cast<size_t>(position)] = 1;
  return true;
}

SlicedRun::Run SlicedRun::PassWait(const Step& step) {
  Channel& channel = *binding_.channel;
  if (met_[static_cast<size_t>(step.peer)] == 0) {
    const Result<bool> met = Meet(step.peer);
    if (!met.ok()) return Blocked(met.status());
    if (!met.value()) return Blocked(monitor_.Look(binding_, step.peer));
  }
  const uint64_t turn = binding_.host->turns().next();
  const Member& peer = channel.member(step.peer);
  const Line* const line = peer.layout.LineOf(peer.block, step.from_lane, step.endpoint, turn);
  // Sequentially consistent, because it is the look after Arm (waiting.h).
  const auto ready = [&] { return line->value.load(std::memory_order_seq_cst) >= ValueOf(turn, step.value); };
  if (!ready()) {
    Status over = monitor_.Look(binding_, step.peer);
    // The member may have done its part and left, in good order, between the two looks.
    const bool left_after_all = over.code() == Code::kRemoteError && ready();
    if (!left_after_all) {
      awaited_ = {&line->value, ValueOf(turn, step.value)};
      return Blocked(std::move(over));
    }
  }
  if (step.peer == channel.self()) return Run::kDone;
  if (line->signature.load(std::memory_order_relaxed) != signature_ ||
      line->sequence.load(std::memory_order_relaxed) != static_cast<uint32_t>(binding_.sequence)) {
    if (status_ = channel.log().CompareWith(step.peer); !status_.ok()) return Run::kFailed;
  }
  return Run::kDone;
}

SlicedRun::Run SlicedRun::PassAwait(const Step& step) {
  if (words_.in[step.chunk].load(std::memory_order_acquire) == Pipeline::kNotYet)
    return Blocked(monitor_.LookForInput(binding_, step.chunk));
  CountReady(step.chunk);  // the program may have stored the word itself
  if (shadow_ != nullptr && shadow_->has_input()) shadow_->CopyIn(step.chunk);
  return Run::kDone;
}

SlicedRun::Run SlicedRun::Notify(const Step& step) {
  if (!ReadWhileOwned()) return Run::kFailed;
  if (shadow_ != nullptr && shadow_->has_output()) shadow_->CopyOut(step.chunk);
  // First, so that a thread that sees the word sees it counted.
  shown_->progress.fetch_add(OpRecord::kThereChunk, std::memory_order_relaxed);
  words_.out[step.chunk].store(Pipeline::kThere, std::memory_order_release);
  return Run::kDone;
}

// Unlike those of calls, these signals are for threads that mostly sleep, so none may be missed: see waiting.h.
void SlicedRun::Signal(const Step& step, uint32_t lane) {
  Channel& channel = *binding_.channel;
  const Member& own = channel.own();
  const uint64_t turn = binding_.host->turns().next();
  Line* const line = own.layout.LineOf(own.block, lane, step.endpoint, turn);
  line->signature.store(signature_, std::memory_order_relaxed);
  line->sequence.store(static_cast<uint32_t>(binding_.sequence), std::memory_order_relaxed);
  line->value.store(ValueOf(turn, step.value), std::memory_order_seq_cst);
  if (step.peer == channel.self()) return;
  outbox_.Send(binding_, step, lane, turn);
  const int first = step.peer == plan::kAllPeers ? 0 : step.peer;
  const int last = step.peer == plan::kAllPeers ? channel.size() - 1 : step.peer;
  for (int p = first; p <= last; ++p) {
    if (p != channel.self()) WakeMember(channel.member(p));
  }
}

void SlicedRun::Arm(int doorbell) {
  if (doorbell != device::host::Work::kNoDoorbell) monitor_.Arm();
  binding_.channel->own().header->waiter.store(static_cast<uint32_t>(doorbell) + 1, std::memory_order_seq_cst);
  if (doorbell != device::host::Work::kNoDoorbell) outbox_.Sleep();
}

}  // namespace axccl::exec
