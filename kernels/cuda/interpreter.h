// The interpreter of plans on the device: what exec::Operation does on the host, by the threads of a block together.
//
// A block runs its strands (launch.h) one at a time, each until it has to wait or has moved its share, and then the
// next. The control flow is the same in all threads of the block: what one of them finds out by looking at memory that
// others write, it tells the others in a barrier.
//
// What orders data and flags. Before a signal there is a barrier, and the thread that signals stores the flag with
// release: so what all threads of the block have moved is seen by whoever acquires the flag. After the wait that
// acquires a flag there is a barrier, too: so all threads see what came before the flag.
#pragma once

#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/factors.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/movers.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

class Interpreter {
 public:
  AXCCL_DEVICE Interpreter(const Launch& launch, BlockState& block) : launch_(launch), block_(block) {}

  AXCCL_DEVICE void Run();

 private:
  enum class Outcome : uint8_t { kDone, kBlocked, kAgain };

  static constexpr uint32_t kNone = ~0u;
  static constexpr uint32_t kPolls = 32;            // of a wait, before abort is looked at
  static constexpr uint32_t kPollsBesides = 2;      // where other strands could go on meanwhile
  static constexpr uint32_t kLooksPerAbort = 16;    // visits per look at the host's memory, which is far away
  static constexpr uint64_t kVisitBytes = 4 << 20;  // of a strand, before the next one gets its turn
  static constexpr uint32_t kMostNanoseconds = 512;

  AXCCL_DEVICE void Visit(uint32_t index);
  static AXCCL_DEVICE bool Moved(const Strand& a, const Strand& b);
  AXCCL_DEVICE void LoadContext(uint32_t index, Stage stage);
  AXCCL_DEVICE void Describe(uint32_t index, Stage stage);
  AXCCL_DEVICE void DescribeScaling();
  AXCCL_DEVICE Outcome RunStage();
  AXCCL_DEVICE Outcome RunStep(const Step& step, uint64_t turn);
  AXCCL_DEVICE const Step& StepAt(uint32_t index);
  AXCCL_DEVICE void EndStage(uint32_t index);
  AXCCL_DEVICE void Advance();

  AXCCL_DEVICE Outcome AwaitBarrier();
  AXCCL_DEVICE Outcome PassWaits(uint64_t turn);
  AXCCL_DEVICE bool Poll(const Step& step, const Line* line, uint64_t turn);
  AXCCL_DEVICE bool Matches(uint32_t peer, const Line* line);
  AXCCL_DEVICE bool Broken();
  AXCCL_DEVICE void Break(Report report, uint32_t position);
  AXCCL_DEVICE void Signal(const Step& step, uint64_t turn);
  AXCCL_DEVICE void Announce();
  AXCCL_DEVICE void Bind(uint32_t position);

  AXCCL_DEVICE Outcome MoveParts(const Step& step, uint64_t turn);
  AXCCL_DEVICE void MovePortion(const Step& step, uint64_t turn, uint64_t begin, uint64_t count);
  AXCCL_DEVICE void DescribeMove(const Step& step, uint64_t count, uint32_t element, Move* move) const;
  AXCCL_DEVICE bool SetFactor(const Operand& operand, uint32_t index, Move* move) const;
  AXCCL_DEVICE uint8_t* Place(const Operand& operand, uint64_t turn, uint64_t begin) const;
  AXCCL_DEVICE uint8_t* PlaceOfSlot(const Operand& operand, uint64_t turn) const;
  AXCCL_DEVICE Factor InputFactor(const Operand& operand) const;

  // Of calls on views: interpreter_views.h.
  struct Stretch {
    uint64_t begin, count;  // of the operand's block, elements
    uint64_t in_portion;    // bytes of the portion before it
  };
  AXCCL_DEVICE void AnnounceViews();
  AXCCL_DEVICE uint32_t FirstView(uint64_t at) const;
  AXCCL_DEVICE void MoveViews(const Step& step, uint64_t turn, uint64_t begin, uint64_t count);
  AXCCL_DEVICE void MoveView(const Step& step, uint64_t turn, uint32_t view, const Stretch& stretch);
  AXCCL_DEVICE uint8_t* PutView(const Operand& operand, uint64_t turn, uint32_t index, uint32_t view,
                                uint64_t in_portion);
  AXCCL_DEVICE void FillZeros();
  AXCCL_DEVICE void FillZeros(const ViewOperand& view, uint64_t begin, uint64_t count);

  AXCCL_DEVICE Context& context() const { return block_.context; }
  AXCCL_DEVICE const Task& task() const { return block_.context.task; }
  AXCCL_DEVICE Channel& channel() const { return *block_.context.task.channel; }
  AXCCL_DEVICE bool IsFirst() const { return ThreadIndex() == 0; }

  const Launch& launch_;
  BlockState& block_;
  // The same in all threads.
  Strand now_{};                 // the strand that runs
  uint32_t in_context_ = kNone;  // the strand that the context is of
  uint32_t looks_ = 0;           // at whether to give up
  uint32_t polls_ = 0;           // of a wait
  uint32_t moves_ = 0;           // so far
  uint64_t visit_bytes_ = 0;
  bool progress_ = false;  // in this round
};

// ---- strands ----

AXCCL_DEVICE void Interpreter::Run() {
  const uint32_t total = launch_.num_tasks * launch_.lanes;
  const uint32_t here = BlockIndex() < total ? (total - BlockIndex() - 1) / NumBlocks() + 1 : 0;
  for (uint32_t i = ThreadIndex(); i < here; i += NumThreads()) block_.strands[i] = Strand{0, 0, 0, 0, Stage::kNew};
  polls_ = here == 1 ? kPolls : kPollsBesides;
  Barrier();
  uint32_t idle = 0;
  for (bool left = here != 0; left;) {
    left = progress_ = false;
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
      now_.stage = Stage::kEnded;
      break;
    }
    if (RunStage() != Outcome::kDone) {
      if (Broken()) now_.stage = Stage::kEnded;
      break;
    }
    EndStage(index);
  }
  progress_ |= Moved(block_.strands[index], now_);
  Barrier();  // all threads have read where the strand was
  if (IsFirst()) block_.strands[index] = now_;
  Barrier();
}

AXCCL_DEVICE bool Interpreter::Moved(const Strand& a, const Strand& b) {
  return a.step != b.step || a.turn != b.turn || a.offset != b.offset || a.part != b.part || a.stage != b.stage;
}

AXCCL_DEVICE void Interpreter::LoadContext(uint32_t index, Stage stage) {
  Barrier();  // nobody looks at the last one any more
  if (IsFirst()) Describe(index, stage);
  in_context_ = index;
  Barrier();
  now_.stage = stage != Stage::kNew ? stage : context().barriers != 0 ? Stage::kBarrier : Stage::kMain;
  if (!context().has_steps) now_.stage = Stage::kEnded;
}

// Whether a barrier must separate this from what ran before on the channel; as exec::Channel::NeedsBarrier.
AXCCL_DEVICE bool NeedsBarrier(const State& state, const Program& next, const Cut& cut) {
  if (state.last_was_barrier != 0) return false;
  const bool same_plan = next.plan_id[0] == state.last_plan[0] && next.plan_id[1] == state.last_plan[1];
  if (same_plan && cut.slot_bytes == state.last_slot_bytes) return false;
  return state.last_complete == 0 || next.complete == 0;
}

// By one thread. The counters of the channel stay as they are until the last strand of the task has ended.
AXCCL_DEVICE void Interpreter::Describe(uint32_t index, Stage stage) {
  Context& c = context();
  const uint32_t strand = BlockIndex() + index * NumBlocks();
  if (launch_.more != nullptr) {
    c.task = launch_.more[strand / launch_.lanes];
  } else {
    c.task = launch_.tasks[strand / launch_.lanes];
  }
  c.lane = strand % launch_.lanes;
  c.program = c.task.program;
  c.has_steps = c.lane < c.program->lanes;
  if (!c.has_steps) return;
  const State& state = channel().state;
  c.broken = LoadRelaxed(&state.broken) != 0;
  c.sequence = state.sequence;
  c.turn = state.turn;
  c.turns = c.task.cut.turns;
  c.signature = c.next_signature = c.task.signature;
  c.barriers = 0;
  if (NeedsBarrier(state, *c.program, c.task.cut)) {
    c.barriers = state.turn + 1;
    if (stage == Stage::kMain) {
      c.turn += 1;
    } else {
      // It is the same for all calls.
      c.program = channel().barrier;
      c.turns = 1;
      c.signature = static_cast<uint32_t>(c.program->plan_id[1]);
    }
  }
  DescribeScaling();
  c.num_steps = 0;
  c.window_begin = c.window_size = 0;
  if (c.lane >= c.program->lanes) return;  // of a barrier
  const uint32_t begin = c.program->lane_begin[c.lane];
  c.steps = c.program->steps() + begin;
  c.num_steps = c.program->lane_begin[c.lane + 1] - begin;
}

AXCCL_DEVICE void Interpreter::DescribeScaling() {
  Context& c = context();
  const DataType type = c.task.type;
  const bool floats = IsFloat(ScalarType(type)), averages = c.task.scaling == Scaling::kAverage;
  c.element = ElementBytes(type);
  c.scales = (averages && floats) || c.task.scaling == Scaling::kPreMultiply;
  c.one = One(type);
  c.own_factor = averages && floats ? Mean(type, channel().size) : OwnFactor(c.task, c.element);
  c.divisor = averages && !floats ? channel().size : 0;
  c.scales_result = c.task.views != nullptr && c.task.views->scales_result != 0;
  if (c.scales_result) c.post = c.task.views->post;
}

AXCCL_DEVICE void Interpreter::EndStage(uint32_t index) {
  now_ = Strand{0, 0, 0, 0, now_.stage};
  if (now_.stage == Stage::kMain) {
    Advance();
    now_.stage = Stage::kEnded;
    return;
  }
  if (context().lane == 0) {
    Barrier();
    if (IsFirst()) StoreRelease(&channel().state.barriers_done, context().barriers);
  }
  LoadContext(index, Stage::kMain);
}

// The last strand of the task that ends makes the channel ready for the next operation.
AXCCL_DEVICE void Interpreter::Advance() {
  Barrier();
  const Context& c = context();
  State& state = channel().state;
  bool last = IsFirst() && FetchAdd(&state.strands_done, 1) + 1 == c.program->lanes;
  if (task().views != nullptr) {
    last = BarrierCount(last) != 0;
    if (last) FillZeros();
  }
  if (!last || !IsFirst()) return;
  const Program& program = *c.program;
  state.strands_done = 0;
  state.sequence = c.sequence + 1;
  state.turn = c.turn + c.turns;
  state.last_plan[0] = program.plan_id[0];
  state.last_plan[1] = program.plan_id[1];
  state.last_slot_bytes = task().cut.slot_bytes;
  state.last_complete = program.complete;
  state.last_was_barrier = program.is_barrier;
}

// ---- steps ----

AXCCL_DEVICE Interpreter::Outcome Interpreter::RunStage() {
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
  if (step.kind == StepKind::kSignal) {
    Signal(step, turn);
  } else if (const Outcome outcome = MoveParts(step, turn); outcome != Outcome::kDone) {
    return outcome;
  }
  ++now_.step;
  return Outcome::kDone;
}

// Steps are taken to shared memory some at a time.
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

AXCCL_DEVICE Interpreter::Outcome Interpreter::AwaitBarrier() {
  bool done = true;
  if (IsFirst()) {
    const uint64_t* const barriers = &channel().state.barriers_done;
    done = LoadAcquire(barriers) >= context().barriers;
    for (uint32_t polls = 1; !done && polls < polls_; ++polls) done = LoadAcquire(barriers) >= context().barriers;
  }
  return BarrierCount(!done) == 0 ? Outcome::kDone : Outcome::kBlocked;
}

// Waits that follow each other are passed together, each polled by a thread of its own: flags of other devices are far
// away.
AXCCL_DEVICE Interpreter::Outcome Interpreter::PassWaits(uint64_t turn) {
  const Context& c = context();
  const uint32_t first = now_.step - c.window_begin;
  // Only those of a prologue bring announcements.
  const bool binds = c.lane == 0 && now_.step < c.program->prologue;
  uint32_t most = c.window_size - first;
  if (binds && most > c.program->prologue - now_.step) most = c.program->prologue - now_.step;
  if (most > NumThreads()) most = NumThreads();
  uint32_t num = 1;
  while (num < most && c.window[first + num].kind == StepKind::kWait) ++num;
  bool passed = true;
  if (ThreadIndex() < num) {
    const Step& step = c.window[first + ThreadIndex()];
    const Line* const line = channel().LineOf(static_cast<uint32_t>(step.peer), step.from_lane, step.endpoint, turn);
    passed = Poll(step, line, turn);
    for (uint32_t polls = 1; !passed && polls < polls_; ++polls) passed = Poll(step, line, turn);
  }
  if (BarrierCount(!passed) != 0) return Outcome::kBlocked;
  if (binds) {
    if (ThreadIndex() < num) Bind(static_cast<uint32_t>(c.window[first + ThreadIndex()].peer));
    Barrier();
  }
  now_.step += num;
  return Outcome::kDone;
}

// Whether the flag is there, and is that of the same call.
AXCCL_DEVICE bool Interpreter::Poll(const Step& step, const Line* line, uint64_t turn) {
  const auto peer = static_cast<uint32_t>(step.peer);
  if (LoadAcquire(&line->value) < (turn << 16 | step.value)) return false;
  return peer == channel().self || Matches(peer, line);
}

// A member that has left this turn behind may be writing its line for a later one, half of which is seen then: so
// neither a later operation nor, in a barrier, what follows it is a mismatch. That other member sees one in our line if
// there is one.
AXCCL_DEVICE bool Interpreter::Matches(uint32_t peer, const Line* line) {
  const Context& c = context();
  const uint64_t words = LoadRelaxed(reinterpret_cast<const uint64_t*>(&line->signature));
  const auto signature = static_cast<uint32_t>(words), sequence = static_cast<uint32_t>(words >> 32);
  const auto ahead = static_cast<int32_t>(sequence - static_cast<uint32_t>(c.sequence));
  if (ahead > 0) return true;
  if (ahead == 0 && (signature == c.signature || signature == c.next_signature)) return true;
  Break(Report::kMismatch, peer);
  return false;
}

// After a visit that did not end the stage: whether to give up.
AXCCL_DEVICE bool Interpreter::Broken() {
  ++looks_;
  bool broken = false;
  if (IsFirst()) {
    const bool aborted = looks_ % kLooksPerAbort == 0 && LoadRelaxed(&channel().control->abort) != 0;
    if (aborted) Break(Report::kAborted, channel().self);
    broken = LoadRelaxed(&channel().state.broken) != 0;
  }
  return BarrierCount(broken) != 0;
}

// By one thread. The first to break off says why.
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
  const bool announces = c.lane == 0 && now_.step < c.program->prologue;
  if (announces && task().views != nullptr) AnnounceViews();
  Barrier();  // all have moved what the signal is about
  if (!IsFirst()) return;
  if (announces) Announce();
  Line* const line = channel().LineOf(channel().self, c.lane, step.endpoint, turn);
  // In one store, as readers take them for the two of one call.
  StoreRelaxed(reinterpret_cast<uint64_t*>(&line->signature), uint64_t{c.signature} | c.sequence << 32);
  StoreRelease(&line->value, turn << 16 | step.value);
}

AXCCL_DEVICE void Interpreter::Announce() {
  const Context& c = context();
  Announcement* const announcement = channel().AnnouncementOf(channel().self, c.sequence);
  StoreRelaxed(&announcement->input_offset, task().input_offset);
  StoreRelaxed(&announcement->output_offset, task().output_offset);
  StoreRelaxed(&announcement->input_map, task().input_map);
  StoreRelaxed(&announcement->output_map, task().output_map);
  StoreRelaxed(&announcement->factor, c.own_factor.u64);
}

// Once the member's announcement is there. Other lanes see the binding by the tokens of lane 0.
AXCCL_DEVICE void Interpreter::Bind(uint32_t position) {
  const Announcement* const announcement = channel().AnnouncementOf(position, context().sequence);
  const uint64_t* const maps = channel().members()[position].maps;
  Binding& binding = channel().bindings()[position];
  binding.input = reinterpret_cast<uint8_t*>(maps[LoadRelaxed(&announcement->input_map)] +
                                             LoadRelaxed(&announcement->input_offset));
  binding.output = reinterpret_cast<uint8_t*>(maps[LoadRelaxed(&announcement->output_map)] +
                                              LoadRelaxed(&announcement->output_offset));
  binding.factor.u64 = LoadRelaxed(&announcement->factor);
}

// ---- moves ----

AXCCL_DEVICE Interpreter::Outcome Interpreter::MoveParts(const Step& step, uint64_t turn) {
  const Cut& cut = task().cut;
  const uint16_t* const data_parts = context().program->data_parts() + step.data_parts;
  const uint32_t element = context().element;
  for (; now_.part < step.parts; ++now_.part, now_.offset = 0) {
    plan::Range range{0, cut.partition.count};
    if (cut.whole == 0) range = plan::Resolve(cut.partition, context().lane, now_.turn, data_parts[now_.part]);
    while (now_.offset < range.count) {
      if (visit_bytes_ >= kVisitBytes) return Outcome::kAgain;
      uint64_t count = range.count - now_.offset;
      if (count > kVisitBytes / element) count = kVisitBytes / element;
      MovePortion(step, turn, range.begin + now_.offset, count);
      now_.offset += count;
      visit_bytes_ += count * element;
    }
  }
  now_.part = 0;
  return Outcome::kDone;
}

// `begin`: elements from the start of a block. The operands are located by a thread each.
AXCCL_DEVICE void Interpreter::MovePortion(const Step& step, uint64_t turn, uint64_t begin, uint64_t count) {
  const Context& c = context();
  if (task().views != nullptr) return MoveViews(step, turn, begin, count);
  Move& move = block_.moves[moves_++ % 2];
  const Operand* const operands = c.program->operands() + step.operands;
  bool scaled = false;  // some source is a raw input that is multiplied
  for (uint32_t i = ThreadIndex(); i < uint32_t{step.num_dst} + step.num_src; i += NumThreads()) {
    const Operand operand = operands[i];
    move.place[i] = Place(operand, turn, begin);
    scaled |= i >= step.num_dst && SetFactor(operand, i, &move);
  }
  if (IsFirst()) DescribeMove(step, count, c.element, &move);
  if (c.scales) scaled = BarrierCount(scaled) != 0;
  if (IsFirst()) move.scaled = scaled;
  Barrier();
  MoveElements(move);
}

// All but the operands.
AXCCL_DEVICE void Interpreter::DescribeMove(const Step& step, uint64_t count, uint32_t element, Move* move) const {
  const Context& c = context();
  move->count = count;
  move->divisor = step.finish != 0 ? c.divisor : 0;
  move->post = c.post;
  move->element = element;
  move->num_dst = step.num_dst;
  move->num_src = step.num_src;
  move->type = task().type;
  move->combine = task().combine;
  move->round_factored = task().group_order != 0;
  move->scales_result = step.finish != 0 && c.scales_result;
}

// Of source `index`; whether it is multiplied by that.
AXCCL_DEVICE bool Interpreter::SetFactor(const Operand& operand, uint32_t index, Move* move) const {
  const Context& c = context();
  if (!c.scales) return false;
  const bool raw = operand.space == Space::kInput;
  move->factor[index] = raw ? InputFactor(operand) : c.one;
  return raw;
}

// Buffers of other ranks are known by their announcements.
AXCCL_DEVICE uint8_t* Interpreter::Place(const Operand& operand, uint64_t turn, uint64_t begin) const {
  if (operand.space == Space::kSlot) return PlaceOfSlot(operand, turn);
  const bool own = operand.rank == channel().self;
  const Binding& binding = channel().bindings()[operand.rank];
  uint8_t* base;
  if (operand.space == Space::kInput) {
    base = own ? static_cast<uint8_t*>(const_cast<void*>(task().input)) : binding.input;
  } else {
    base = own ? static_cast<uint8_t*>(task().output) : binding.output;
  }
  return base + (operand.block * task().cut.partition.count + begin) * context().element;
}

// A slot holds one part, from its start. Small ones live in the line of the signal that publishes them.
AXCCL_DEVICE uint8_t* Interpreter::PlaceOfSlot(const Operand& operand, uint64_t turn) const {
  const Context& c = context();
  const Cut& cut = c.task.cut;
  if (cut.inline_slots != 0 && operand.endpoint >= 0)
    return channel().LineOf(operand.rank, c.lane, static_cast<uint32_t>(operand.endpoint), turn)->data;
  const uint64_t slot = uint64_t{c.lane} * c.program->slots + operand.slot + now_.part;
  const uint64_t set = turn % kRotation * channel().half_bytes + cut.SetOffset(turn);
  return channel().members()[operand.rank].scratch + set + slot * cut.slot_bytes + now_.offset * c.element;
}

AXCCL_DEVICE Factor Interpreter::InputFactor(const Operand& operand) const {
  const bool own = operand.rank == channel().self || task().scaling != Scaling::kPreMultiply;
  return own ? context().own_factor : channel().bindings()[operand.rank].factor;
}

}  // namespace axccl::kernels::cuda

#include "kernels/cuda/interpreter_views.h"
