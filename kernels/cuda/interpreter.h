// The interpreter of plans on the device: the threads of a block together do what exec::Operation does on the host.
//
// A block runs its strands (launch.h) one at a time, each until it has to wait or has moved its share, and then the
// next. The control flow is the same in all threads of the block: what one thread learns from memory that others write,
// it passes on to the other threads through a barrier.
//
// Order of data and flags. A barrier precedes a signal, and the signalling thread stores the flag with release, so a
// thread that acquires the flag sees what all threads of the block have moved. A barrier also follows the wait that
// acquires a flag, so all threads see what preceded the flag. Packed slots (packed.h) need neither: their line only
// identifies their call. The words of chunks are stored and loaded like flags.
#pragma once

#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/multicast.h"
#include "kernels/cuda/portion.h"
#include "kernels/cuda/primitives.h"
#include "kernels/cuda/proxy.h"
#include "kernels/cuda/small.h"
#include "kernels/cuda/views.h"

namespace axccl::kernels::cuda {

class Interpreter {
 public:
  AXCCL_DEVICE Interpreter(const Launch& launch, BlockState& block) : launch_(launch), block_(block) {}

  AXCCL_DEVICE void Run();

 private:
  enum class Outcome : uint8_t { kDone, kBlocked, kAgain };

  static constexpr uint32_t kNone = ~0u;
  static constexpr uint32_t kPolls = 32;          // polls of a wait before `abort` is read
  static constexpr uint32_t kPollsBesides = 2;    // the same, if other strands could continue meanwhile
  static constexpr uint32_t kRoundsPerLook = 16;  // rounds between reads of the host's memory, which are slow
  static constexpr uint32_t kMostNanoseconds = 512;

  AXCCL_DEVICE void Visit(uint32_t index);
  AXCCL_DEVICE void LoadContext(uint32_t index, Stage stage);
  AXCCL_DEVICE Outcome RunStage();
  AXCCL_DEVICE Outcome RunStep(const Step& step, uint64_t turn);
  AXCCL_DEVICE const Step& StepAt(uint32_t index);
  AXCCL_DEVICE void EndStage(uint32_t index);
  AXCCL_DEVICE void StopEarly();
  AXCCL_DEVICE void Advance();

  static AXCCL_DEVICE_CALL bool Meet(Channel* channel, uint32_t lane);
  AXCCL_DEVICE Outcome AwaitBarrier();
  AXCCL_DEVICE Outcome PassWaits(uint64_t turn);
  AXCCL_DEVICE bool IsReady(const Step& await);
  AXCCL_DEVICE bool Poll(const Step& step, uint64_t turn, bool again);
  static AXCCL_DEVICE bool SlotsCame(const Context& c, uint32_t first, uint32_t num, uint64_t turn);
  static AXCCL_DEVICE bool PieceCame(const Context& c, const Step& step, uint32_t piece, uint64_t turn);
  AXCCL_DEVICE bool Matches(uint32_t peer, const Line* line, uint64_t words, bool packed);
  AXCCL_DEVICE bool Broken(Outcome outcome);
  AXCCL_DEVICE void TellWait();
  AXCCL_DEVICE void TellWaitFor(uint32_t position, uint64_t count);
  AXCCL_DEVICE void Break(Report report, uint32_t position);
  AXCCL_DEVICE void Signal(const Step& step, uint64_t turn);
  AXCCL_DEVICE void Notify(const Step& step);
  AXCCL_DEVICE uint32_t Stamp() const { return launch_.StampOf(context().sequence); }
  static AXCCL_DEVICE void ForgetWord(const Context& c, uint32_t endpoint, uint64_t turn);
  AXCCL_DEVICE void Announce();
  AXCCL_DEVICE void Agree();
  AXCCL_DEVICE void Bind(uint32_t position);

  struct Moved {
    uint32_t count;  // elements
    bool ends_part;
  };
  AXCCL_DEVICE Outcome MoveParts(const Step& step);
  struct Next {
    Portion portion;
    Moved moved;
  };
  static AXCCL_DEVICE Next FindNext(const Strand& now, const Context& c, const Step& step);
  static AXCCL_DEVICE_CALL Moved MoveNext(Strand now, uint32_t to, BlockState* in_shared);
  static AXCCL_DEVICE_CALL Moved MoveNextByMulticast(Strand now, uint32_t to, BlockState* in_shared);

  AXCCL_DEVICE Context& context() const { return block_.context; }
  AXCCL_DEVICE const Task& task() const { return block_.context.task; }
  AXCCL_DEVICE Channel& channel() const { return *block_.context.task.channel; }

  const Launch& launch_;
  BlockState& block_;
  // The following have the same values in all threads.
  Strand now_{};                 // the running strand
  uint32_t in_context_ = kNone;  // the strand to which the context belongs
  uint32_t moves_ = 0;           // so far
  uint32_t visit_bytes_ = 0;
  bool progress_ = false;  // a strand advanced in this round
};

// ---- strands ----

AXCCL_DEVICE void Interpreter::Run() {
  const uint32_t total = launch_.num_tasks * launch_.lanes;
  const uint32_t here = BlockIndex() < total ? (total - BlockIndex() - 1) / NumBlocks() + 1 : 0;
  if (here == 1 && RunSmall(launch_, block_)) return;
  for (uint32_t i = ThreadIndex(); i < here; i += NumThreads()) block_.strands[i] = Strand{0, 0, 0, 0, Stage::kNew};
  if (IsFirst()) {
    block_.polls = here == 1 ? kPolls : kPollsBesides;
    block_.rounds = 0;
    block_.box.tile_memory = &block_.moves[1];
#if defined(AXCCL_CUDA_HAS_BULK)
    block_.ring.Begin();
    block_.moves[0].ring = block_.moves[1].ring = &block_.ring;
#endif
  }
  Barrier();
  uint32_t idle = 0;
  for (bool left = here != 0; left;) {
    left = progress_ = false;
    if (IsFirst()) ++block_.rounds;
#pragma unroll 1
    for (uint32_t i = 0; i < here; ++i) {
      if (block_.strands[i].stage == Stage::kEnded) continue;
      Visit(i);
      left |= now_.stage != Stage::kEnded;
    }
    idle = progress_ ? 0 : idle + 1;
    if (idle > 4) Backoff(idle * 32 < kMostNanoseconds ? idle * 32 : kMostNanoseconds);
  }
}

AXCCL_DEVICE void Interpreter::Visit(uint32_t index) {
  now_ = block_.strands[index];
  visit_bytes_ = 0;
  if (in_context_ != index) LoadContext(index, now_.stage);
  while (now_.stage != Stage::kEnded) {
    if (context().broken) {
      StopEarly();
      break;
    }
    if (const Outcome outcome = RunStage(); outcome != Outcome::kDone) {
      if (Broken(outcome)) StopEarly();
      break;
    }
    EndStage(index);
  }
  progress_ |= Differ(block_.strands[index], now_);
  Barrier();  // all threads have read the strand's state
  if (IsFirst()) block_.strands[index] = now_;
  Barrier();
}

AXCCL_DEVICE void Interpreter::LoadContext(uint32_t index, Stage stage) {
  Barrier();  // no thread reads the old context any more
  const uint32_t strand = BlockIndex() + index * NumBlocks();
  CopyTask(launch_, strand / launch_.lanes, &context().task);
  Barrier();
  if (IsFirst()) Describe(strand % launch_.lanes, stage, &context());
  in_context_ = index;
  Barrier();
  const Stage first = context().unmet ? Stage::kMeeting : context().barriers != 0 ? Stage::kBarrier : Stage::kMain;
  now_.stage = stage == Stage::kNew ? first : stage;
  if (!context().has_steps) now_.stage = Stage::kEnded;
  if (stage != Stage::kNew || task().sliced == nullptr || context().lane != 0 || !IsFirst()) return;
  StoreRelaxed(task().sliced->begun + launch_.in_graph, Stamp());
}

AXCCL_DEVICE void Interpreter::EndStage(uint32_t index) {
  now_ = Strand{0, 0, 0, 0, now_.stage};
  if (now_.stage == Stage::kMeeting) return LoadContext(index, Stage::kNew);
  if (now_.stage == Stage::kMain) {
    Advance();
    now_.stage = Stage::kEnded;
    return;
  }
  if (context().lane == 0) {
    if (task().staged != nullptr) Agree();
    Barrier();
    if (IsFirst()) StoreRelease(&channel().state.barriers_done, context().barriers);
  }
  LoadContext(index, Stage::kMain);
}

// Loops on the words of chunks must end soon.
AXCCL_DEVICE void Interpreter::StopEarly() {
  now_.stage = Stage::kEnded;
  const Sliced* const sliced = task().sliced;
  if (sliced == nullptr) return;
  for (uint32_t i = ThreadIndex(); i < sliced->num_in + sliced->num_out; i += NumThreads()) {
    uint32_t* const word = i < sliced->num_in ? sliced->in + i : sliced->out + (i - sliced->num_in);
    CompareExchange(word, Sliced::kNotYet, Sliced::kFailed);
  }
}

// The last strand of the task that ends prepares the channel for the next operation.
AXCCL_DEVICE void Interpreter::Advance() {
  Barrier();
  const Context& c = context();
  State& state = channel().state;
  if (IsFirst()) FenceAliases(c);
  bool last = IsFirst() && FetchAdd(&state.strands_done, 1) + 1 == c.strands;
  if (task().views != nullptr) {
    last = BarrierCount(last) != 0;
    if (last) FillZeros(&block_);
  }
  if (!last || !IsFirst()) return;
  if (task().sliced != nullptr) StoreRelease(task().sliced->ended + launch_.in_graph, Stamp());
  state.strands_done = 0;
  state.sequence = c.sequence + 1;
  state.turn = c.turn + c.turns;
  state.last = RunOf(*c.program, task().staged == nullptr ? task().cut.slot_bytes : ~uint64_t{0});
  if (task().staged != nullptr) CountTaken(task());
  if (c.packing != Packing::kNone && channel().wait != nullptr) {
    const auto index = static_cast<uint32_t>(c.packing) - 1;
    StoreRelaxed(&channel().wait->packed[index], ++state.packed[index]);
  }
}

// ---- steps ----

AXCCL_DEVICE Interpreter::Outcome Interpreter::RunStage() {
  if (now_.stage == Stage::kMeeting) return Meet(&channel(), context().lane) ? Outcome::kDone : Outcome::kBlocked;
  if (now_.stage == Stage::kBarrier && context().lane != 0) return AwaitBarrier();
  for (; now_.turn < context().turns; ++now_.turn, now_.step = 0) {
    const uint64_t turn = context().turn + now_.turn;
    while (now_.step < context().num_steps) {
      const Outcome outcome = RunStep(StepAt(now_.step), turn);
      if (outcome != Outcome::kDone) return outcome;
    }
  }
  return Outcome::kDone;
}

AXCCL_DEVICE Interpreter::Outcome Interpreter::RunStep(const Step& step, uint64_t turn) {
  if (step.kind == StepKind::kWait) return PassWaits(turn);
  if (step.kind == StepKind::kAwait) {
    if (!IsReady(step)) return Outcome::kBlocked;
  } else if (step.kind == StepKind::kSignal) {
    Signal(step, turn);
  } else if (step.kind == StepKind::kNotify) {
    Notify(step);
  } else if (const Outcome outcome = MoveParts(step); outcome != Outcome::kDone) {
    return outcome;
  }
  ++now_.step;
  return Outcome::kDone;
}

// Steps are copied to shared memory in groups.
AXCCL_DEVICE const Step& Interpreter::StepAt(uint32_t index) {
  Context& c = context();
  if (index - c.window_begin >= c.window_size) {
    Barrier();
    const uint32_t size = c.num_steps - index < kStepWindow ? c.num_steps - index : kStepWindow;
    for (uint32_t i = ThreadIndex(); i < size; i += NumThreads()) c.window[i] = c.steps[index + i];
    Barrier();
    if (IsFirst()) c.window_begin = index;
    if (IsFirst()) c.window_size = size;
    Barrier();
  }
  return c.window[index - c.window_begin];
}

// ---- waiting ----

// Returns false if the members are not there yet.
AXCCL_DEVICE_CALL inline bool Interpreter::Meet(Channel* channel, uint32_t lane) {
  Meeting* const meeting = channel->meeting;
  bool met = true;
  if (IsFirst()) met = lane == 0 ? LoadAcquire(&meeting->met) != 0 : LoadAcquire(&channel->state.unmet) == 0;
  if (BarrierCount(!met) != 0) return false;
  if (lane != 0) return true;
  const auto* const from = reinterpret_cast<const uint64_t*>(meeting->members());
  auto* const to = reinterpret_cast<uint64_t*>(channel->members());
  for (uint32_t w = ThreadIndex(); w < channel->size * (sizeof(Member) / sizeof(uint64_t)); w += NumThreads())
    StoreRelaxed(to + w, LoadRelaxed(from + w));
  Barrier();
  if (IsFirst()) StoreRelease(&channel->state.unmet, uint64_t{0});
  return true;
}

AXCCL_DEVICE Interpreter::Outcome Interpreter::AwaitBarrier() {
  bool done = true;
  if (IsFirst()) {
    const uint64_t* const barriers = &channel().state.barriers_done;
    done = LoadAcquire(barriers) >= context().barriers;
    for (uint32_t polls = 1; !done && polls < block_.polls; ++polls) done = LoadAcquire(barriers) >= context().barriers;
  }
  return BarrierCount(!done) == 0 ? Outcome::kDone : Outcome::kBlocked;
}

// Whether the user has declared the input chunk ready.
AXCCL_DEVICE bool Interpreter::IsReady(const Step& await) {
  bool ready = true;
  if (IsFirst()) {
    const uint32_t* const word = task().sliced->in + await.value;
    ready = LoadAcquire(word) == Sliced::kThere;
    for (uint32_t polls = 1; !ready && polls < block_.polls; ++polls) ready = LoadAcquire(word) == Sliced::kThere;
    if (ready) StoreRelaxed(task().sliced->seen + await.value, Stamp());
  }
  return BarrierCount(!ready) == 0;
}

// Consecutive waits are passed together, with a thread to poll each, because reading flags of other devices is slow.
AXCCL_DEVICE Interpreter::Outcome Interpreter::PassWaits(uint64_t turn) {
  const Context& c = context();
  const uint32_t first = now_.step - c.window_begin;
  // Only the waits of the first exchange bring announcements, or of a plan with slices those for the first signals.
  const bool sliced = c.task.sliced != nullptr;
  const bool binds = !sliced && c.lane == 0 && now_.step < c.program->prologue;
  uint32_t most = c.window_size - first;
  if (binds && most > c.program->prologue - now_.step) most = c.program->prologue - now_.step;
  if (most > NumThreads()) most = NumThreads();
  uint32_t num = 1;
  while (num < most && c.window[first + num].kind == StepKind::kWait) ++num;
  bool passed = false;
  for (uint32_t polls = 0; !passed && polls < block_.polls; ++polls) {
    passed = ThreadIndex() >= num || Poll(c.window[first + ThreadIndex()], turn, polls != 0);
    if (passed && c.packing != Packing::kNone) passed = SlotsCame(c, first, num, turn);
  }
  if (BarrierCount(!passed) != 0) return Outcome::kBlocked;
  if (binds || sliced) {
    if (ThreadIndex() < num) {
      const Step& wait = c.window[first + ThreadIndex()];
      if (binds || (wait.from_lane == 0 && wait.endpoint == 0)) Bind(static_cast<uint32_t>(wait.peer));
    }
    Barrier();
  }
  now_.step += num;
  return Outcome::kDone;
}

// Whether the flag has arrived and belongs to the same call. An acquire load clears caches, so only the first of many
// polls is one.
AXCCL_DEVICE bool Interpreter::Poll(const Step& step, uint64_t turn, bool again) {
  const auto peer = static_cast<uint32_t>(step.peer);
  const Line* const line = channel().LineOf(peer, step.from_lane, step.endpoint, turn);
  const bool packed = context().packing != Packing::kNone && step.packed != 0;
  const auto [value, words] = packed || again ? LoadPair(&line->value) : LoadPairAcquire(&line->value);
  if (value < (turn << 16 | step.value)) return false;
  if (again && !packed) FenceAcquire(&line->value);
  return peer == channel().self || Matches(peer, line, words, packed);
}

// Whether the packed slots of `num` waits of the window have all their words or rows. The threads share these.
AXCCL_DEVICE bool Interpreter::SlotsCame(const Context& c, uint32_t first, uint32_t num, uint64_t turn) {
  const uint64_t bytes = c.task.cut.partition.count * c.element;
  const uint32_t pieces = c.packing == Packing::kRows ? PackedRows(bytes) : PackedWords(bytes);
#pragma unroll 1
  for (uint32_t i = ThreadIndex(); i < num * pieces; i += NumThreads()) {
    const Step& step = c.window[first + i / pieces];
    if (step.packed != 0 && !PieceCame(c, step, i % pieces, turn)) return false;
  }
  return true;
}

AXCCL_DEVICE bool Interpreter::PieceCame(const Context& c, const Step& step, uint32_t piece, uint64_t turn) {
  const bool rows = c.packing == Packing::kRows;
  const auto peer = static_cast<uint32_t>(step.peer);
  const uint8_t* const slot = PackedSlot(*c.task.channel, peer, step.endpoint, turn, rows);
  const uint64_t word = LoadFlagged(rows ? FlagOfRow(slot, piece) : PackedWord(slot, 4 * piece));
  return rows ? word == RowFlag(turn) : HasFlag(word, PackedFlag(turn));
}

// A member that has finished this turn may be writing its line for a later one, and this thread may read half of that
// write. So neither a later operation nor, in a barrier, the operation after it is a mismatch. If there is one, the
// other member finds it in this rank's line. The line of a packed slot is stored in no order: a line of an earlier
// operation means that the new one has not arrived. `words` are the line's signature and sequence, but perhaps from
// before its value.
AXCCL_DEVICE bool Interpreter::Matches(uint32_t peer, const Line* line, uint64_t words, bool packed) {
  const Context& c = context();
  if (words == (uint64_t{c.signature} | (c.sequence + 1) << 32)) return true;
  words = LoadRelaxed(reinterpret_cast<const uint64_t*>(&line->signature));
  const auto signature = static_cast<uint32_t>(words), sequence = static_cast<uint32_t>(words >> 32);
  const auto ahead = static_cast<int32_t>(sequence - static_cast<uint32_t>(c.sequence + 1));
  if (ahead > 0) return true;
  if (ahead < 0 && packed) return false;
  if (ahead == 0 && (signature == c.signature || signature == c.next_signature)) return true;
  Break(Report::kMismatch, peer);
  return false;
}

// Called after a visit that did not end the stage: whether to give up.
AXCCL_DEVICE bool Interpreter::Broken(Outcome outcome) {
  bool broken = false;
  if (IsFirst()) {
    if (block_.rounds % kRoundsPerLook == 0) {
      if (outcome == Outcome::kBlocked) TellWait();
      if (LoadRelaxed(&channel().control->abort) != 0) Break(Report::kAborted, channel().self);
    }
    broken = LoadRelaxed(&channel().state.broken) != 0;
  }
  return BarrierCount(broken) != 0;
}

// Called by one thread when a strand's polls ran out. A strand that waits for another lane of its rank reports nothing;
// that lane does.
AXCCL_DEVICE void Interpreter::TellWait() {
  const Context& c = context();
  if (now_.stage != Stage::kMain && c.lane != 0) return;
  if (now_.stage == Stage::kMeeting) return TellWaitFor(Wait::kUnmet, c.task.cut.partition.count);
  const Step& now = c.window[now_.step - c.window_begin];
  if (now.kind == StepKind::kAwait) return TellWaitFor(Wait::kInput, now.value);
  const uint64_t turn = c.turn + now_.turn;
  for (uint32_t i = now_.step - c.window_begin; i < c.window_size && c.window[i].kind == StepKind::kWait; ++i) {
    const Step& step = c.window[i];
    const auto peer = static_cast<uint32_t>(step.peer);
    if (peer == channel().self) continue;
    const Line* const line = channel().LineOf(peer, step.from_lane, step.endpoint, turn);
    if (LoadRelaxed(&line->value) >= (turn << 16 | step.value)) continue;
    return TellWaitFor(peer, c.task.cut.partition.count);
  }
}

AXCCL_DEVICE void Interpreter::TellWaitFor(uint32_t position, uint64_t count) {
  const Context& c = context();
  Wait* const wait = channel().wait;
  StoreRelaxed(&wait->call, c.task.call);
  StoreRelaxed(&wait->count, count);
  StoreRelease(&wait->look, Wait::Look(c.sequence, position, block_.rounds / kRoundsPerLook));
}

// Called by one thread. Only the first strand that stops reports the reason.
AXCCL_DEVICE void Interpreter::Break(Report report, uint32_t position) {
  const Context& c = context();
  Control* const control = channel().control;
  if (Exchange(&channel().state.broken, 1) != 0 || LoadRelaxed(&control->report) != 0) return;
  StoreRelaxed(&control->position, position);
  StoreRelaxed(&control->sequence, c.sequence);
  StoreRelaxed(&control->turn, c.turn + now_.turn);
  StoreRelease(&control->report, static_cast<uint32_t>(report));
}

// ---- signals and announcements ----

AXCCL_DEVICE void Interpreter::Signal(const Step& step, uint64_t turn) {
  const Context& c = context();
  const bool first_lane_announces =
      now_.stage == Stage::kBarrier ? task().staged != nullptr : now_.step < c.program->prologue;
  const bool opens = task().sliced != nullptr && step.endpoint == 0;
  const bool announces = c.lane == 0 && (first_lane_announces || opens);
  const bool packed = c.packing != Packing::kNone && step.packed != 0;
  if (announces && task().views != nullptr) AnnounceViews(context());
  if (!packed) {
    Barrier();  // all threads have moved the data that the signal publishes
  }
  if (!IsFirst()) return;
  FenceAliases(c);
  if (announces) Announce();
  Line* const line = channel().LineOf(channel().self, c.lane, step.endpoint, turn);
  // One store, because readers must see both values of one call.
  StoreRelaxed(reinterpret_cast<uint64_t*>(&line->signature), uint64_t{c.signature} | (c.sequence + 1) << 32);
  if (packed) {
    if (c.packing == Packing::kWords) ForgetWord(c, step.endpoint, turn);
    StoreFlagged(&line->value, turn << 16 | step.value);
  } else {
    StoreRelease(&line->value, turn << 16 | step.value);
    if (channel().ring != nullptr) PostSignal(c, step, turn, line);
  }
}

AXCCL_DEVICE void Interpreter::Notify(const Step& step) {
  Barrier();  // the chunk is complete
  if (!IsFirst()) return;
  const Sliced& sliced = *task().sliced;
  StoreRelease(sliced.out + step.value, uint32_t{Sliced::kThere});
  StoreRelease(sliced.came + step.value, Stamp());
}

AXCCL_DEVICE void Interpreter::ForgetWord(const Context& c, uint32_t endpoint, uint64_t turn) {
  const uint32_t word = WordToForget(turn);
  if (word < PackedWords(c.task.cut.partition.count * c.element)) return;
  Channel& channel = *c.task.channel;
  StoreFlagged(PackedWord(PackedSlot(channel, channel.self, endpoint, turn, false), 4 * word), uint64_t{0});
}

AXCCL_DEVICE void Interpreter::Announce() {
  const Context& c = context();
  Announcement* const announcement = channel().AnnouncementOf(channel().self, c.sequence);
  StoreRelaxed(&announcement->input_offset, task().input_offset);
  StoreRelaxed(&announcement->output_offset, task().output_offset);
  StoreRelaxed(&announcement->input_map, task().input_map);
  StoreRelaxed(&announcement->output_map, task().output_map);
  StoreRelaxed(&announcement->factor, c.own_factor.u64);
  StoreRelaxed(&announcement->scratch_map, task().scratch_map);
}

// Called by all threads after the barrier before a task of several programs: decides which one all ranks use. The end
// of the barrier passes the decision to other lanes, and where grown scratch is.
AXCCL_DEVICE void Interpreter::Agree() {
  bool unmapped = false, cramped = task().grown == nullptr;
  for (uint32_t p = ThreadIndex(); p < channel().size; p += NumThreads()) {
    const Announcement* const announcement = channel().AnnouncementOf(p, context().sequence);
    unmapped |= LoadRelaxed(&announcement->input_map) == kUnmapped;
    unmapped |= LoadRelaxed(&announcement->output_map) == kUnmapped;
    cramped |= LoadRelaxed(&announcement->scratch_map) == kUnmapped;
  }
  uint32_t taken = State::kFirst;
  if (BarrierCount(unmapped) != 0) taken = BarrierCount(cramped) != 0 ? State::kStaged : State::kGrown;
  if (IsFirst()) StoreRelaxed(&channel().state.taken, taken);
  if (taken != State::kGrown) return;
  for (uint32_t p = ThreadIndex(); p < channel().size; p += NumThreads()) {
    Member& member = channel().members()[p];
    const uint32_t map = LoadRelaxed(&channel().AnnouncementOf(p, context().sequence)->scratch_map);
    member.scratch[Member::kGrown] = reinterpret_cast<uint8_t*>(LoadRelaxed(&member.maps[map]));
  }
}

// Reads the member's announcement once it has arrived. The tokens of lane 0 pass the binding to other lanes.
AXCCL_DEVICE void Interpreter::Bind(uint32_t position) {
  const Announcement* const announcement = channel().AnnouncementOf(position, context().sequence);
  const uint64_t* const maps = channel().members()[position].maps;
  Binding& binding = channel().bindings()[position];
  // The host fills maps while kernels run.
  binding.input = reinterpret_cast<uint8_t*>(LoadRelaxed(&maps[LoadRelaxed(&announcement->input_map)]) +
                                             LoadRelaxed(&announcement->input_offset));
  binding.output = reinterpret_cast<uint8_t*>(LoadRelaxed(&maps[LoadRelaxed(&announcement->output_map)]) +
                                              LoadRelaxed(&announcement->output_offset));
  binding.factor.u64 = LoadRelaxed(&announcement->factor);
}

// ---- moves ----

AXCCL_DEVICE Interpreter::Outcome Interpreter::MoveParts(const Step& step) {
  while (now_.part < step.parts) {
    if (visit_bytes_ >= kPortionBytes) return Outcome::kAgain;
#if defined(AXCCL_CUDA_HAS_MULTICAST)
    const bool multicast = context().multicast;
    const Moved moved =
        multicast ? MoveNextByMulticast(now_, moves_ % 2, &block_) : MoveNext(now_, moves_ % 2, &block_);
#else
    const Moved moved = MoveNext(now_, moves_ % 2, &block_);
#endif
    moves_ += moved.count != 0;
    visit_bytes_ += moved.count * context().element;
    now_.offset += moved.count;
    if (!moved.ends_part) continue;
    ++now_.part;
    now_.offset = 0;
  }
  now_.part = 0;
  return Outcome::kDone;
}

// The next portion of the current step. None if `count` is 0.
AXCCL_DEVICE Interpreter::Next Interpreter::FindNext(const Strand& now, const Context& c, const Step& step) {
  const plan::Partition& cut = c.task.cut.partition;
  plan::Range range{0, cut.count};
  if (c.task.sliced != nullptr) {
    range = plan::Resolve(c.task.sliced->slicing, c.program->data_parts()[step.data_parts + now.part]);
  } else if (c.task.cut.whole == 0) {
    range = plan::Resolve(cut, c.lane, now.turn, c.program->data_parts()[step.data_parts + now.part]);
  }
  uint64_t count = range.count - now.offset;
  if (count > kPortionBytes / c.element) count = kPortionBytes / c.element;
  return {{c.turn + now.turn, range.begin + now.offset, count, now.offset, now.part},
          {static_cast<uint32_t>(count), now.offset + count == range.count}};
}

// Moves the next portion of the current step, if there is one. Like all code that moves data it is called, not inlined,
// so that the interpreter's variables take no registers from it.
AXCCL_DEVICE_CALL inline Interpreter::Moved Interpreter::MoveNext(Strand now, uint32_t to, BlockState* in_shared) {
  BlockState* const block = &InShared(*in_shared);
  const Context& c = block->context;
  const Step& step = c.window[now.step - c.window_begin];
  const auto [portion, moved] = FindNext(now, c, step);
  if (portion.count != 0 && c.task.views != nullptr) {
    Barrier();  // no thread reads the last portion any more
    if (IsFirst()) block->portion = portion;
    Barrier();
    MoveViews(step, block);
  } else if (portion.count != 0) {
    MovePortion(step, portion, c, &block->moves[to]);
  }
  return moved;
}

#if defined(AXCCL_CUDA_HAS_MULTICAST)
// The same for a program with slots of all ranks.
AXCCL_DEVICE_CALL inline Interpreter::Moved Interpreter::MoveNextByMulticast(Strand now, uint32_t to,
                                                                             BlockState* in_shared) {
  BlockState* const block = &InShared(*in_shared);
  const Context& c = block->context;
  const Step& step = c.window[now.step - c.window_begin];
  const auto [portion, moved] = FindNext(now, c, step);
  if (portion.count != 0) MoveByMulticast(step, portion, c, &block->moves[to]);
  return moved;
}
#endif

}  // namespace axccl::kernels::cuda
