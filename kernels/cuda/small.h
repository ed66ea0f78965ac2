// The short way of small calls: what the host has lowered from a plan to a few numbers (Small), without steps and
// operands.
//
// It is for plans in which every rank publishes at most one packed slot and signals all ranks once, or one for each of
// them and signals each, and waits for all of them. What it needs of the channel and the program is loaded
// together. Then each thread waits for two words or a line of one rank, and what has come stays in shared memory, where
// it is reduced in the order of the ranks. Of blocks in rows, each thread waits for a row; they are reduced or copied
// from where they are.
//
// Words, lines and counters are those of the interpreter, so ranks that go different ways meet. Whatever is unusual is
// left to the interpreter: the members have not met, a barrier must come first, the channel is broken, a rank does not
// come soon or has made another call. It then repeats the call from its beginning: all that this rank has published by
// then are the same words, and its output is written only when nothing can go wrong any more.
//
// Nothing here acquires. Words bring their data themselves. A line shows only, as words do, that its rank has ended its
// call before this one, whose loads have returned by then. The line of a rank that publishes no slot is released,
// because an interpreter that sees its value takes its signature for that of the same call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/factors.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/movers.h"
#include "kernels/cuda/packed.h"
#include "kernels/cuda/pieces.h"
#include "kernels/cuda/primitives.h"

namespace axccl::kernels::cuda {

// ---- blocks that travel in rows ----

// Of a rank, whose first slot is at `first`.
AXCCL_DEVICE uint8_t* RowsAt(uint64_t first, uint32_t endpoint, uint64_t turn) {
  return SlotAmong(reinterpret_cast<uint8_t*>(first), endpoint, turn, kRowedSlotBytes);
}

// Where the block of a rank is.
AXCCL_DEVICE uint8_t* SourceOfRank(const Task& task, const Small& small, uint32_t rank, uint64_t turn) {
  if (rank == small.self && !small.OwnIsPublished())
    return static_cast<uint8_t*>(const_cast<void*>(task.input)) + small.OwnAt();
  const auto* const rows = reinterpret_cast<const uint64_t*>(&task.channel->members()[rank].rows);
  return Tagged(RowsAt(LoadRelaxed(rows), small.EndpointFrom(rank), turn), true);
}

// The block that is published in a slot for one rank.
AXCCL_DEVICE uint32_t BlockOfSlot(const Small& small, uint32_t slot) { return (small.self + 1 + slot) % small.ranks; }

// As an operand that is copied to or from rows, piece by piece.
AXCCL_DEVICE Pieces PiecesForRows(uint8_t* const* places, uint32_t num, uint32_t bytes) {
  Pieces pieces = Pieces::Of(places, num, bytes, 1);
  if (pieces.head != 0) pieces.aligned = 0;  // pieces begin where those of rows do
  return pieces;
}

// Copies all blocks to the output. `source`: where they are.
AXCCL_DEVICE_CALL inline void CopyFromRows(void* output, const Small small, uint8_t* const* source) {
  const uint32_t places = PackedRows(small.bytes) * kRowPlaces;
#pragma unroll 1
  for (uint32_t i = ThreadIndex(); i < small.kept() * places; i += NumThreads()) {
    const uint32_t block = i / places;
    uint8_t* const from = source[block];
    uint8_t* const to = static_cast<uint8_t*>(output) + block * small.bytes;
    if (to == from) continue;
    uint8_t* const both[] = {to, IsRowed(from) ? to : from};
    const Pieces pieces = PiecesForRows(both, 2, small.bytes);
    StorePiece(to, i % places, LoadPiece(from, i % places, pieces), pieces);
  }
}

// ---- blocks that are scaled ----

// What a task says of the elements, for functions: they would reach a parameter of the kernel by a generic address.
struct Elements {
  DataType type;
  Scaling scaling;
  bool round;      // Move::round_factored
  uint32_t bytes;  // of a block
  uint32_t ranks;
  const void* scalar_pointer;
  uint64_t scalar;

  static AXCCL_DEVICE Elements Of(const Task& task, const Small& small) {
    return {task.type, task.scaling, task.group_order != 0, small.bytes, small.ranks, task.scalar_pointer, task.scalar};
  }
};

// Sets all that depends on the elements and the sources, with the factors of all if one is scaled. Called by one
// thread. `scaled`: its index, or kUnscaled.
inline constexpr uint32_t kUnscaled = ~0u;
AXCCL_DEVICE_CALL inline void DescribeSources(Move* in_shared, const Elements elements, uint32_t num_src,
                                              uint32_t scaled) {
  Move& move = InShared(*in_shared);
  const DataType type = elements.type;
  move.type = type;
  move.element = ElementBytes(type);
  move.count = elements.bytes / move.element;
  move.num_src = num_src;
  move.scaled = scaled != kUnscaled;
  if (!move.scaled) return;
  move.round_factored = elements.round;
#pragma unroll 1
  for (uint32_t k = 0; k < num_src; ++k) move.factor[1 + k] = One(type);
  move.factor[1 + scaled] = elements.scaling == Scaling::kAverage
                                ? Mean(type, elements.ranks)
                                : GivenFactor(type, elements.scalar_pointer, elements.scalar, move.element);
}

// The input, or a block of it, is the only source and scaled.
AXCCL_DEVICE void DescribeScaled(Move* in_shared, const Elements& elements) {
  DescribeSources(in_shared, elements, 1, 0);
  Move& move = InShared(*in_shared);
  move.divisor = 0;
  move.num_dst = 1;
  move.combine = Combine::kSum;
  move.scales_result = false;
}

// Stores the input in the slot of rows, or each other rank's block in its slot. If it is scaled, the second move
// describes how, and threads keep their pieces meanwhile. Called by all threads, which pass a barrier. `rows`: the
// first of this rank's slots.
AXCCL_DEVICE_CALL inline void PublishRows(BlockState* in_shared, const void* input, const Small small, uint8_t* rows,
                                          uint64_t turn) {
  BlockState& state = InShared(*in_shared);
  const bool for_each = (small.does & Small::kForEach) != 0, scales = (small.does & Small::kScales) != 0;
  const uint32_t slots = for_each ? small.ranks - 1 : 1, places = StoredRows(small.bytes) * kRowPlaces;
  constexpr uint32_t kMostKept = kMostKeptBytes / sizeof(Raw);
  const uint32_t step = scales && NumThreads() > kMostKept ? kMostKept : NumThreads();
  Raw& kept = reinterpret_cast<Raw*>(state.strands)[ThreadIndex()];
  if (scales) Barrier();
#pragma unroll 1
  for (uint32_t first = 0; first < slots * places; first += step) {
    const uint32_t i = first + ThreadIndex(), slot = i / places;
    // All threads store together, some nothing.
    const uint32_t place = slot < slots && ThreadIndex() < step ? i - slot * places : places;
    const uint32_t block = for_each ? BlockOfSlot(small, slot) : 0;
    uint8_t* const from = static_cast<uint8_t*>(const_cast<void*>(input)) + block * small.bytes;
    Raw piece{};
    if (place < places) piece = LoadPiece(from, place, PiecesForRows(&from, 1, small.bytes));
    if (scales) {
      if (place < places) kept = piece;
      ScaleKeptElements(state.moves[1], state.strands, step);
      if (place < places) piece = kept;
    }
    StorePlace(rows + slot * kRotation * kRowedSlotBytes, place, places, piece, RowFlag(turn));
  }
}

// ---- the call ----

// Of the channel and the program, as they are before the call.
struct SmallFound {
  Pair now;             // sequence, turn
  Pair plan, run;       // of the last operation: State::last
  Pair marks, meeting;  // with State::broken; State::unmet, State::packed[0]
  Pair own_plan;        // hash
  uint32_t own_run;     // Program::complete, is_barrier, packing
  uint64_t wait;        // the address of the channel's Wait
  Pair self;            // lines, and slots of words or of rows
};

// `kInRows`: as Small::InRows.
template <bool kInRows>
class SmallCall {
  using Found = SmallFound;

 public:
  AXCCL_DEVICE SmallCall(const Task& task, BlockState& block) : task_(task), small_(task.small), block_(block) {}

  // Called by all threads of a block before anything else. Returns whether it has made the call; if not, the
  // interpreter must.
  AXCCL_DEVICE bool Run();

 private:
  AXCCL_DEVICE Found Look() const;
  AXCCL_DEVICE void FindSources(const Found& found) const;
  AXCCL_DEVICE plan::Run Next(const Found& found) const;
  AXCCL_DEVICE bool IsUsual(const Found& found) const;

  AXCCL_DEVICE uint32_t LoadInput(uint32_t at, uint32_t word) const;
  AXCCL_DEVICE void StoreOutput(uint64_t at, uint32_t word, uint32_t data) const;
  AXCCL_DEVICE void Publish(const Found& found, uint32_t first_word);
  AXCCL_DEVICE void PublishForEach(const Found& found, uint32_t first_word);
  AXCCL_DEVICE void PublishScaled(const Found& found, uint32_t first_word) const;
  AXCCL_DEVICE void ScaleWords(uint32_t first_word) const;
  AXCCL_DEVICE void PublishInRows(const Found& found);
  AXCCL_DEVICE void Signal(const Found& found, uint32_t endpoint) const;
  AXCCL_DEVICE void SignalAll(const Found& found) const;
  AXCCL_DEVICE void DescribeMove() const;
  AXCCL_DEVICE uint32_t RankOf(uint32_t item) const;
  AXCCL_DEVICE bool IsOfCall(const Found& found, const Pair& line) const;
  AXCCL_DEVICE bool AreWordsOf(const Found& found, const Pair& pair, uint32_t word) const;
  static AXCCL_DEVICE bool IsRowOf(const Found& found, const Pair& place) {
    return place.first == RowFlag(found.now.second);
  }
  AXCCL_DEVICE bool Await(const Found& found, uint32_t item, const Pair& member);
  AXCCL_DEVICE bool AwaitAll(const Found& found, Pair member);
  AXCCL_DEVICE void WriteOutput();
  AXCCL_DEVICE void CopyKept() const;
  AXCCL_DEVICE void Advance(const Found& found) const;

  AXCCL_DEVICE bool Does(uint32_t what) const { return (small_.does & what) != 0; }
  AXCCL_DEVICE uint32_t words() const { return PackedWords(small_.bytes); }
  AXCCL_DEVICE uint32_t stride() const { return (small_.bytes + 15u) / 16 * 4; }  // words of a source
  static_assert(sizeof(BlockState::strands) >= kMostKeptBytes);
  AXCCL_DEVICE uint8_t** sources() const { return block_.moves[0].place + 1; }  // of a move to one destination
  AXCCL_DEVICE uint32_t* kept() const { return reinterpret_cast<uint32_t*>(block_.strands); }
  AXCCL_DEVICE uint32_t& Kept(uint32_t rank, uint32_t word) const {
    return kept()[(rank - small_.first()) * stride() + word];
  }
  static AXCCL_DEVICE uint32_t Copy(const Found& found) { return static_cast<uint32_t>(found.now.second % kRotation); }
  static AXCCL_DEVICE uint64_t* SlotOf(const Pair& member, const Found& found, uint32_t endpoint) {
    return reinterpret_cast<uint64_t*>(member.second + (endpoint * kRotation + Copy(found)) * kPackedSlotBytes);
  }
  static AXCCL_DEVICE uint64_t* LineOf(const Pair& member, const Found& found, uint32_t endpoint) {
    return reinterpret_cast<uint64_t*>(member.first + (endpoint * kRotation + Copy(found)) * sizeof(Line));
  }
  // The words that this rank publishes or keeps.
  AXCCL_DEVICE uint32_t own_words() const { return Does(Small::kForEach) ? small_.ranks * words() : words(); }
  static AXCCL_DEVICE uint64_t ValueOf(const Found& found) { return found.now.second << 16 | 1; }
  AXCCL_DEVICE uint64_t CallOf(const Found& found) const {
    return uint64_t{task_.signature} | (found.now.first + 1) << 32;
  }
  AXCCL_DEVICE static bool IsLast() { return ThreadIndex() + 1 == NumThreads(); }

  const Task& task_;
  const Small small_;
  BlockState& block_;
};

// All of these loads are in flight together.
template <bool kInRows>
AXCCL_DEVICE SmallFound SmallCall<kInRows>::Look() const {
  Channel& channel = *task_.channel;
  const State& state = channel.state;
  static_assert(offsetof(State, turn) == offsetof(State, sequence) + 8);
  static_assert(offsetof(State, last) % 16 == 0 && offsetof(plan::Run, slot_bytes) % 16 == 0);
  static_assert(offsetof(State, strands_done) % 16 == 0 &&
                offsetof(State, broken) == offsetof(State, strands_done) + 4);
  static_assert(offsetof(State, unmet) % 16 == 0 && offsetof(State, packed) == offsetof(State, unmet) + 8);
  static_assert(offsetof(Program, packing) == offsetof(Program, complete) + 2 && offsetof(Program, complete) % 4 == 0);
  static_assert(offsetof(Member, packed) == offsetof(Member, lines) + 8 && sizeof(Member) % 16 == 0);
  Found found;
  found.now = LoadPair(&state.sequence);
  found.plan = LoadPair(state.last.plan);
  found.run = LoadPair(&state.last.slot_bytes);
  found.marks = LoadPair(reinterpret_cast<const uint64_t*>(&state.strands_done));
  found.meeting = LoadPair(&state.unmet);
  found.own_plan = LoadPair(task_.program->plan_id);
  found.own_run = LoadRelaxed(reinterpret_cast<const uint32_t*>(&task_.program->complete));
  found.wait = LoadRelaxed(reinterpret_cast<const uint64_t*>(&channel.wait));
  const auto* const self = reinterpret_cast<const uint64_t*>(channel.members() + small_.self);
  static_assert(offsetof(Member, rows) == offsetof(Member, packed) + 8);
  found.self.first = LoadRelaxed(self);
  found.self.second = LoadRelaxed(self + (kInRows ? 2 : 1));
  return found;
}

// Of blocks in rows: all threads know where they are after a barrier, and the move that reduces them does.
template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::FindSources(const Found& found) const {
#pragma unroll 1
  for (uint32_t i = ThreadIndex(); i < small_.kept(); i += NumThreads())
    sources()[i] = SourceOfRank(task_, small_, small_.first() + i, found.now.second);
}

template <bool kInRows>
AXCCL_DEVICE plan::Run SmallCall<kInRows>::Next(const Found& found) const {
  return {{found.own_plan.first, found.own_plan.second},
          task_.cut.slot_bytes,
          found.own_run & 0xff,
          found.own_run >> 8 & 0xff};
}

template <bool kInRows>
AXCCL_DEVICE bool SmallCall<kInRows>::IsUsual(const Found& found) const {
  const bool broken = found.marks.first >> 32 != 0, unmet = found.meeting.first != 0;
  const plan::Run last{{found.plan.first, found.plan.second},
                       found.run.first,
                       static_cast<uint32_t>(found.run.second),
                       static_cast<uint32_t>(found.run.second >> 32)};
  if (broken || unmet || NeedsBarrier(last, Next(found))) return false;
  return (found.own_run >> 16 & 0xff) >= static_cast<uint32_t>(task_.cut.packing) && PackedFlag(found.now.second) != 0;
}

template <bool kInRows>
AXCCL_DEVICE bool SmallCall<kInRows>::Run() {
  // These depend on the task alone.
  const Found found = Look();
  const uint32_t first_item = ThreadIndex();
  const uint32_t first_rank = first_item < small_.items() ? RankOf(first_item) : small_.self;
  const Pair member = LoadPair(reinterpret_cast<const uint64_t*>(task_.channel->members() + first_rank));
  uint32_t first_word = 0;
  const bool reads_input = Does(Small::kPublishes | Small::kKeepsOwn) && !kInRows;
  if (first_item < own_words() && reads_input) {
    const uint32_t block = Does(Small::kForEach) ? first_item / words() : 0;
    first_word = LoadInput(block * small_.bytes, first_item - block * words());
  }
  if (!IsUsual(found)) return false;
  if constexpr (kInRows) {
    FindSources(found);
    PublishInRows(found);
  } else {
    Publish(found, first_word);
  }
  SignalAll(found);
  if (Does(Small::kReduces)) DescribeMove();
  const bool came = AwaitAll(found, member);
  if (BarrierCount(!came) != 0) return false;
  if (IsLast()) Advance(found);  // before the output, which needs the registers
  WriteOutput();
  return true;
}

// ---- what this rank publishes ----

// Of the block that begins at byte `at`.
template <bool kInRows>
AXCCL_DEVICE uint32_t SmallCall<kInRows>::LoadInput(uint32_t at, uint32_t word) const {
  const auto* const from = static_cast<const uint8_t*>(task_.input) + at + 4 * word;
  const uint32_t size = small_.bytes - 4 * word;
  if (size >= 4 && reinterpret_cast<uint64_t>(from) % 4 == 0) [[likely]]
    return LoadWord<uint32_t>(from);
  uint32_t data = 0;
#pragma unroll
  for (uint32_t b = 0; b < 4; ++b) data |= b < size ? uint32_t{LoadWord<uint8_t>(from + b)} << (8 * b) : 0;
  return data;
}

template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::Publish(const Found& found, uint32_t first_word) {
  if (!Does(Small::kPublishes | Small::kKeepsOwn)) return;
  if (Does(Small::kForEach)) return PublishForEach(found, first_word);
  if (Does(Small::kScales)) return PublishScaled(found, first_word);
  uint64_t* const slot = SlotOf(found.self, found, 0);
  const uint64_t flag = PackedFlag(found.now.second);
#pragma unroll 1
  for (uint32_t w = ThreadIndex(); w < words(); w += NumThreads()) {
    const uint32_t data = w == ThreadIndex() ? first_word : LoadInput(0, w);
    if (Does(Small::kPublishes)) StoreFlagged(slot + w, data | flag << 32);
    if (Does(Small::kKeepsOwn)) Kept(small_.self, w) = data;
  }
}

template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::PublishInRows(const Found& found) {
  if (!Does(Small::kPublishes)) return Barrier();  // as PublishRows, for FindSources
  if (Does(Small::kScales) && IsFirst()) DescribeScaled(&block_.moves[1], Elements::Of(task_, small_));
  const uint64_t turn = found.now.second;
  PublishRows(&block_, task_.input, small_, RowsAt(found.self.second, 0, turn), turn);
}

template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::PublishForEach(const Found& found, uint32_t first_word) {
  const uint64_t flag = PackedFlag(found.now.second);
  const bool scales = Does(Small::kScales);
  if (scales) ScaleWords(first_word);
#pragma unroll 1
  for (uint32_t i = ThreadIndex(); i < own_words(); i += NumThreads()) {
    const uint32_t block = i / words(), w = i - block * words();
    const bool own = block == small_.self;
    const uint32_t data = scales && !own       ? Kept(block, w)
                          : i == ThreadIndex() ? first_word
                                               : LoadInput(block * small_.bytes, w);
    if (own) {
      Kept(block, w) = data;
    } else {
      StoreFlagged(SlotOf(found.self, found, small_.Between(small_.self, block)) + w, data | flag << 32);
    }
  }
  if (scales) Barrier();  // what comes from others is kept in the same places
}

// Its own words stay scaled, or are those of no source.
template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::PublishScaled(const Found& found, uint32_t first_word) const {
  ScaleWords(first_word);
  const uint64_t flag = PackedFlag(found.now.second);
#pragma unroll 1
  for (uint32_t w = ThreadIndex(); w < words(); w += NumThreads())
    StoreFlagged(SlotOf(found.self, found, 0) + w, Kept(small_.self, w) | flag << 32);
}

// Keeps the words of the input and scales them there.
template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::ScaleWords(uint32_t first_word) const {
  if (IsFirst()) DescribeScaled(&block_.moves[1], Elements::Of(task_, small_));
  const uint32_t first = Does(Small::kForEach) ? 0 : small_.self;
#pragma unroll 1
  for (uint32_t i = ThreadIndex(); i < own_words(); i += NumThreads()) {
    const uint32_t block = i / words(), w = i - block * words();
    Kept(first + block, w) = i == ThreadIndex() ? first_word : LoadInput(block * small_.bytes, w);
  }
  Barrier();
  ScaleKeptElements(block_.moves[1], &Kept(first, 0), (Does(Small::kForEach) ? small_.ranks : 1) * stride() / 4);
  Barrier();  // it is scaled
}

// By all threads: the last ones have the least to do besides.
template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::SignalAll(const Found& found) const {
  const uint32_t signals = Does(Small::kForEach) ? small_.ranks - 1 : 1;
#pragma unroll 1
  for (uint32_t e = NumThreads() - 1 - ThreadIndex(); e < signals; e += NumThreads()) Signal(found, e);
}

// By one thread. As Interpreter::Signal.
template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::Signal(const Found& found, uint32_t endpoint) const {
  uint64_t* const line = LineOf(found.self, found, endpoint);
  StoreRelaxed(line + 1, CallOf(found));
  const uint32_t old = WordToForget(found.now.second);
  if (!Does(Small::kPublishes)) return StoreRelease(line, ValueOf(found));
  if (!kInRows && old >= words()) StoreFlagged(SlotOf(found.self, found, endpoint) + old, uint64_t{0});
  StoreFlagged(line, ValueOf(found));
}

// ---- what comes from the others ----

// The items that threads wait for: the words of all sources in pairs, or their rows, one source after the other, and
// then a line of each rank.
template <bool kInRows>
AXCCL_DEVICE uint32_t SmallCall<kInRows>::RankOf(uint32_t item) const {
  const uint32_t pieces = small_.sources() * small_.pieces();
  return item < pieces ? small_.first() + item / small_.pieces() : item - pieces;
}

// See Interpreter::Matches, which also finds the mismatch.
template <bool kInRows>
AXCCL_DEVICE bool SmallCall<kInRows>::IsOfCall(const Found& found, const Pair& line) const {
  const auto sequence = static_cast<uint32_t>(line.second >> 32), own = static_cast<uint32_t>(CallOf(found) >> 32);
  const bool ahead = static_cast<int32_t>(sequence - own) > 0;
  return line.first >= ValueOf(found) && (ahead || line.second == CallOf(found));
}

// If there is no second word, what is in its place does not matter.
template <bool kInRows>
AXCCL_DEVICE bool SmallCall<kInRows>::AreWordsOf(const Found& found, const Pair& pair, uint32_t word) const {
  const uint32_t flag = PackedFlag(found.now.second);
  return HasFlag(pair.first, flag) && (word + 1 == words() || HasFlag(pair.second, flag));
}

template <bool kInRows>
AXCCL_DEVICE bool SmallCall<kInRows>::Await(const Found& found, uint32_t item, const Pair& member) {
  const uint32_t rank = RankOf(item);
  const bool is_line = item >= small_.sources() * small_.pieces();
  if (rank == small_.self) return true;  // a barrier follows
  const uint32_t piece = item - (rank - small_.first()) * small_.pieces(), word = 2 * piece;
  const uint32_t endpoint = small_.EndpointFrom(rank);
  const uint64_t* const from = is_line   ? LineOf(member, found, endpoint)
                               : kInRows ? FlagOfRow(RowPlace(sources()[rank - small_.first()]), piece)
                                         : SlotOf(member, found, endpoint) + word;
#pragma unroll 1
  for (uint32_t polls = 0; polls < SmallPolls(); ++polls) {
    const Pair pair = LoadFlaggedPair(from);
    if (is_line) {
      if (IsOfCall(found, pair)) return true;
    } else if (kInRows) {
      if (IsRowOf(found, pair)) return true;
    } else if (AreWordsOf(found, pair, word)) {
      Kept(rank, word) = static_cast<uint32_t>(pair.first);
      Kept(rank, word + 1) = static_cast<uint32_t>(pair.second);
      return true;
    }
  }
  return false;
}

template <bool kInRows>
AXCCL_DEVICE bool SmallCall<kInRows>::AwaitAll(const Found& found, Pair member) {
  bool came = true;
#pragma unroll 1
  for (uint32_t item = ThreadIndex(); came && item < small_.items(); item += NumThreads()) {
    if (item != ThreadIndex())
      member = LoadPair(reinterpret_cast<const uint64_t*>(task_.channel->members() + RankOf(item)));
    came = Await(found, item, member);
  }
  return came;
}

// ---- the end ----

template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::DescribeMove() const {
  if (!IsLast()) return;
  Move& move = block_.moves[0];
  move.scaled = false;
  if (kInRows || Does(Small::kScalesOwn))
    DescribeSources(&move, Elements::Of(task_, small_), small_.ranks,
                    Does(Small::kScalesOwn) ? small_.self : kUnscaled);
  move.place[0] = static_cast<uint8_t*>(task_.output);
  move.divisor = task_.scaling == Scaling::kAverage && !IsFloat(ScalarType(task_.type)) ? small_.ranks : 0;
  move.num_dst = 1;
  move.num_src = small_.ranks;
  move.type = task_.type;
  move.combine = task_.combine;
  move.scales_result = task_.scaling == Scaling::kResult;
  move.post.u64 = task_.scalar;
}

template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::StoreOutput(uint64_t at, uint32_t word, uint32_t data) const {
  uint8_t* const to = static_cast<uint8_t*>(task_.output) + at + 4 * word;
  const uint32_t left = small_.bytes - 4 * word, size = left < 4 ? left : 4;
  if (size == 4 && reinterpret_cast<uint64_t>(to) % 4 == 0) return StoreWord<uint32_t>(to, data);
#pragma unroll
  for (uint32_t b = 0; b < 4; ++b) {
    if (b < size) StoreWord<uint8_t>(to + b, static_cast<uint8_t>(data >> (8 * b)));
  }
}

template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::WriteOutput() {
  if constexpr (kInRows) {
    return Does(Small::kReduces) ? ReduceElements(block_.moves[0]) : CopyFromRows(task_.output, small_, sources());
  } else {
    if (Does(Small::kReduces)) return ReduceKeptElements(block_.moves[0], block_.strands, small_.bytes);
    CopyKept();
  }
}

template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::CopyKept() const {
#pragma unroll 1
  for (uint32_t i = ThreadIndex(); i < small_.kept() * words(); i += NumThreads()) {
    const uint32_t block = i / words(), word = i - block * words();
    const uint64_t at = uint64_t{block} * small_.bytes;
    // As movers, which do not write a destination that equals the source.
    const bool own = small_.first() + block == small_.self;
    const auto *const to = static_cast<const uint8_t*>(task_.output), *const from =
                                                                          static_cast<const uint8_t*>(task_.input);
    if (!own || to + at != from + small_.OwnAt()) StoreOutput(at, word, kept()[block * stride() + word]);
  }
}

// By one thread. As Interpreter::Advance.
template <bool kInRows>
AXCCL_DEVICE void SmallCall<kInRows>::Advance(const Found& found) const {
  State& state = task_.channel->state;
  state.sequence = found.now.first + 1;
  state.turn = found.now.second + 1;
  state.last = Next(found);
  if (found.wait == 0) return;
  const bool rows = kInRows;
  const uint64_t packed = (rows ? LoadRelaxed(&state.packed[1]) : found.meeting.second) + 1;
  state.packed[rows ? 1 : 0] = packed;
  StoreRelaxed(&reinterpret_cast<Wait*>(found.wait)->packed[rows ? 1 : 0], packed);
}

// Makes the call of the block's only strand in the short way, if it has one and may.
AXCCL_DEVICE bool RunSmall(const Launch& launch, BlockState& block) {
  if (launch.more != nullptr) return false;
  const Task& task = launch.tasks[BlockIndex() / launch.lanes];
  if (task.small.does == 0) return false;
  if (BlockIndex() % launch.lanes != 0) return true;  // it has no steps
  return task.small.InRows() ? SmallCall<true>(task, block).Run() : SmallCall<false>(task, block).Run();
}

}  // namespace axccl::kernels::cuda
