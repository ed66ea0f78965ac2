// Instructions of several lanes of a warp: shuffles, votes, matches, reductions.
//
// They wait until all lanes of the member mask have arrived. Lanes may arrive at twins of the instruction in different
// places (the compiler duplicates code): values are gathered and results scattered for each place.
#include <algorithm>

#include "tools/softgpu/engine/float_apply.h"
#include "tools/softgpu/engine/memory_access.h"

namespace softgpu::engine {
namespace {

uint32_t LanesOf(std::span<const SyncGroup> groups) {
  uint32_t lanes = 0;
  for (const SyncGroup& group : groups) lanes |= group.lanes;
  return lanes;
}

struct Values {
  uint64_t of[kWarpLanes] = {};
};

Values Gather(Warp& w, std::span<const SyncGroup> groups) {
  Values values;
  for (const SyncGroup& group : groups) {
    const uint64_t* const a = w.In(group.instr->a);
    ForLanes(group.lanes, [&](uint32_t i) { values.of[i] = a[i]; });
  }
  return values;
}

uint32_t GatherPredicates(Warp& w, std::span<const SyncGroup> groups) {
  uint32_t bits = 0;
  for (const SyncGroup& group : groups) bits |= w.Predicate(group.instr->pa) & group.lanes;
  return bits;
}

void Scatter(Warp& w, std::span<const SyncGroup> groups, const Values& values, uint32_t predicates) {
  for (const SyncGroup& group : groups) {
    uint64_t* const d = w.Out(group.instr->d);
    ForLanes(group.lanes, [&](uint32_t i) { d[i] = values.of[i]; });
    w.SetPredicate(group.instr->pd, group.lanes, predicates);
  }
}

void Arrive(Warp& w, const Instr& in, uint32_t lanes) {
  const uint64_t* const masks = w.In(in.e);
  const uint32_t mask = static_cast<uint32_t>(masks[std::countr_zero(lanes)]);
  bool uniform = true;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1)
    uniform &= static_cast<uint32_t>(masks[std::countr_zero(rest)]) == mask;
  if (uniform && (mask & w.live()) == lanes) {
    const SyncGroup group = {&in, lanes};
    in.collective(w, {&group, 1});
    return;
  }
  ForLanes(lanes, [&](uint32_t i) { w.member_mask[i] = static_cast<uint32_t>(masks[i]); });
  w.BlockLanes(lanes, w.pc - 1);
  w.waiting |= lanes;
  w.RecheckWaiting();
}

// Runs the instruction of lanes that have all arrived, place by place.
void Complete(Warp& w, uint32_t lanes) {
  SyncGroup groups[kWarpLanes] = {};
  size_t count = 0;
  for (uint32_t rest = lanes; rest != 0;) {
    const uint32_t at = w.lane_pc[std::countr_zero(rest)];
    uint32_t here = 0;
    ForLanes(rest, [&](uint32_t i) { here |= static_cast<uint32_t>(w.lane_pc[i] == at) << i; });
    groups[count++] = {&w.program->At(at), here};
    rest &= ~here;
  }
  for (size_t i = 1; i < count; ++i) {
    if (groups[i].instr->collective == groups[0].instr->collective) continue;
    w.Fail(*groups[i].instr, static_cast<uint32_t>(std::countr_zero(groups[i].lanes)),
           "other lanes of the mask are at line " + std::to_string(groups[0].instr->statement->line) +
               ", which is another operation");
    return;
  }
  groups[0].instr->collective(w, {groups, count});
  ForLanes(lanes, [&](uint32_t i) { ++w.lane_pc[i]; });
  w.waiting &= ~lanes;
  w.Unblock(lanes);
}

enum class Shuffle : uint8_t { kUp, kDown, kButterfly, kIndex };
constexpr std::string_view kShuffleNames[] = {"up", "down", "bfly", "idx"};

void RunShuffle(Warp& w, std::span<const SyncGroup> groups) {
  const Values values = Gather(w, groups);
  Values results;
  uint32_t in_range = 0;
  for (const SyncGroup& group : groups) {
    const Instr& in = *group.instr;
    const uint64_t *const b = w.In(in.b), *const c = w.In(in.c);
    ForLanes(group.lanes, [&](uint32_t lane) {
      const uint32_t by = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31;
      const uint32_t first = lane & segment, last = first | (clamp & ~segment);
      uint32_t from = 0;
      bool good = false;
      switch (static_cast<Shuffle>(in.kind)) {
        case Shuffle::kUp:
          from = lane - by;
          good = static_cast<int32_t>(from) >= static_cast<int32_t>(last);
          break;
        case Shuffle::kDown:
          from = lane + by;
          good = from <= last;
          break;
        case Shuffle::kButterfly:
          from = lane ^ by;
          good = from <= last;
          break;
        case Shuffle::kIndex:
          from = first | (by & ~segment);
          good = from <= last;
          break;
      }
      results.of[lane] = values.of[good ? from : lane];
      in_range |= static_cast<uint32_t>(good) << lane;
    });
  }
  Scatter(w, groups, results, in_range);
}

enum class Vote : uint8_t { kAll, kAny, kUni, kBallot };
constexpr std::string_view kVoteNames[] = {"all", "any", "uni", "ballot"};

void RunVote(Warp& w, std::span<const SyncGroup> groups) {
  const uint32_t lanes = LanesOf(groups), yes = GatherPredicates(w, groups);
  Values ballot;
  std::fill(std::begin(ballot.of), std::end(ballot.of), yes);
  bool result = false;
  switch (static_cast<Vote>(groups[0].instr->kind)) {
    case Vote::kAll:
      result = yes == lanes;
      break;
    case Vote::kAny:
      result = yes != 0;
      break;
    case Vote::kUni:
      result = yes == lanes || yes == 0;
      break;
    case Vote::kBallot:
      break;
  }
  Scatter(w, groups, ballot, result ? kAllLanes : 0);
}

// kind: all instead of any.
void RunMatch(Warp& w, std::span<const SyncGroup> groups) {
  const uint32_t lanes = LanesOf(groups);
  Values values = Gather(w, groups), results;
  const bool narrow = groups[0].instr->bytes == 4;
  uint32_t matched = 0;
  ForLanes(lanes, [&](uint32_t i) {
    if (narrow) values.of[i] = static_cast<uint32_t>(values.of[i]);
  });
  ForLanes(lanes, [&](uint32_t i) {
    uint32_t same = 0;
    ForLanes(lanes, [&](uint32_t k) { same |= static_cast<uint32_t>(values.of[k] == values.of[i]) << k; });
    const bool all = same == lanes;
    matched |= static_cast<uint32_t>(all) << i;
    results.of[i] = groups[0].instr->kind == 0 || all ? same : 0;
  });
  Scatter(w, groups, results, matched);
}

enum class Reduce : uint8_t { kAdd, kMin, kMax, kAnd, kOr, kXor };
constexpr std::string_view kReduceNames[] = {"add", "min", "max", "and", "or", "xor"};

// bytes: 0 unsigned, 1 signed, 2 float; kind2: variant of a float's min or max, 4: with absolute values.
uint32_t ReduceTwo(const Instr& in, uint32_t a, uint32_t b) {
  const auto less = [&] { return in.bytes == 1 ? static_cast<int32_t>(a) < static_cast<int32_t>(b) : a < b; };
  if (in.bytes == 2) {
    float x = As<float>(a), y = As<float>(b);
    if ((in.kind2 & 4) != 0) x = std::fabs(x), y = std::fabs(y);
    return static_cast<uint32_t>(
        Bits(MinMax(x, y, static_cast<Reduce>(in.kind) == Reduce::kMax, in.kind2 & kPropagateNan)));
  }
  switch (static_cast<Reduce>(in.kind)) {
    case Reduce::kAdd:
      return a + b;
    case Reduce::kMin:
      return less() ? a : b;
    case Reduce::kMax:
      return less() ? b : a;
    case Reduce::kAnd:
      return a & b;
    case Reduce::kOr:
      return a | b;
    case Reduce::kXor:
      return a ^ b;
  }
  return a;
}

void RunReduce(Warp& w, std::span<const SyncGroup> groups) {
  const uint32_t lanes = LanesOf(groups);
  const Values values = Gather(w, groups);
  uint32_t result = static_cast<uint32_t>(values.of[std::countr_zero(lanes)]);
  // The absolute value applies to a single value, too.
  if (groups[0].instr->bytes == 2) result = ReduceTwo(*groups[0].instr, result, result);
  ForLanes(lanes & (lanes - 1),
           [&](uint32_t i) { result = ReduceTwo(*groups[0].instr, result, static_cast<uint32_t>(values.of[i])); });
  Values results;
  std::fill(std::begin(results.of), std::end(results.of), result);
  Scatter(w, groups, results, 0);
}

void RunElect(Warp& w, std::span<const SyncGroup> groups) {
  const uint32_t lanes = LanesOf(groups);
  const uint32_t leader = static_cast<uint32_t>(std::countr_zero(lanes));
  Values results;
  std::fill(std::begin(results.of), std::end(results.of), leader);
  Scatter(w, groups, results, 1u << leader);
}

void RunMeet(Warp&, std::span<const SyncGroup>) {}

Instr& Emit(Decoder& decoder, Collective collective, size_t mask_operand) {
  const ColumnId mask = decoder.Source(mask_operand, Type::kB32);
  Instr& in = decoder.Emit(Arrive);
  in.collective = collective;
  in.e = mask;
  return in;
}

bool DecodeShuffle(Decoder& decoder) {
  if (!decoder.Take("sync")) return false;
  const int kind = decoder.TakeOneOf(kShuffleNames, -1);
  const Type type = decoder.TakeType();
  if (kind < 0) return false;
  const ColumnId a = decoder.Source(1, type), b = decoder.Source(2, type), c = decoder.Source(3, type);
  Instr& in = Emit(decoder, RunShuffle, 4);
  in.a = a;
  in.b = b;
  in.c = c;
  in.kind = static_cast<uint8_t>(kind);
  in.d = decoder.Target(0);
  if (decoder.operand(0).second != nullptr) in.pd = decoder.TargetPredicateOf(*decoder.operand(0).second);
  return true;
}

bool DecodeVote(Decoder& decoder) {
  if (!decoder.Take("sync")) return false;
  const int kind = decoder.TakeOneOf(kVoteNames, -1);
  decoder.TakeType();
  if (kind < 0) return false;
  const PredicateId source = decoder.SourcePredicate(1);
  Instr& in = Emit(decoder, RunVote, 2);
  in.pa = source;
  in.kind = static_cast<uint8_t>(kind);
  if (static_cast<Vote>(kind) == Vote::kBallot) {
    in.d = decoder.Target(0);
  } else {
    in.pd = decoder.TargetPredicateOf(decoder.operand(0));
  }
  return true;
}

bool DecodeMatch(Decoder& decoder) {
  const bool all = decoder.Take("all");
  if (!all && !decoder.Take("any")) return false;
  if (!decoder.Take("sync")) return false;
  const Type type = decoder.TakeType();
  const ColumnId a = decoder.Source(1, type);
  Instr& in = Emit(decoder, RunMatch, 2);
  in.a = a;
  in.kind = all;
  in.bytes = static_cast<uint8_t>(SizeOf(type));
  in.d = decoder.Target(0);
  if (decoder.operand(0).second != nullptr) in.pd = decoder.TargetPredicateOf(*decoder.operand(0).second);
  return true;
}

bool DecodeReduce(Decoder& decoder) {
  if (!decoder.Take("sync")) return false;
  const int kind = decoder.TakeOneOf(kReduceNames, -1);
  const bool nan = decoder.Take("NaN"), absolute = decoder.Take("abs");
  const Type type = decoder.TakeType();
  if (kind < 0 || SizeOf(type) != 4) return false;
  const ColumnId a = decoder.Source(1, type);
  Instr& in = Emit(decoder, RunReduce, 2);
  in.a = a;
  in.kind = static_cast<uint8_t>(kind);
  in.kind2 = static_cast<uint8_t>((nan ? kPropagateNan : 0) | (absolute ? 4 : 0));
  in.bytes = type == Type::kF32 ? 2 : IsSigned(type) ? 1 : 0;
  in.d = decoder.Target(0);
  return true;
}

bool DecodeElect(Decoder& decoder) {
  if (!decoder.Take("sync")) return false;
  Instr& in = Emit(decoder, RunElect, 1);
  in.d = decoder.Target(0);
  if (decoder.operand(0).second != nullptr) in.pd = decoder.TargetPredicateOf(*decoder.operand(0).second);
  return true;
}

void RunActiveMask(Warp& w, const Instr& in, uint32_t lanes) {
  uint64_t* const d = w.Out(in.d);
  ForLanes(lanes, [&](uint32_t i) { d[i] = lanes; });
}

bool DecodeActiveMask(Decoder& decoder) {
  decoder.TakeType();
  decoder.Emit(RunActiveMask).d = decoder.Target(0);
  return true;
}

constexpr OpcodeRow kRows[] = {
    {"shfl", DecodeShuffle}, {"vote", DecodeVote},   {"match", DecodeMatch},
    {"redux", DecodeReduce}, {"elect", DecodeElect}, {"activemask", DecodeActiveMask},
};

}  // namespace

std::span<const OpcodeRow> WarpOpcodes() { return kRows; }

// bar.warp.sync; its name puts it into the family of barriers.
bool DecodeWarpBarrier(Decoder& decoder) {
  Emit(decoder, RunMeet, 0);
  return true;
}

void Warp::RecheckWaiting() {
  for (uint32_t rest = waiting; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(std::countr_zero(rest));
    if ((waiting >> lane & 1) == 0) continue;
    const uint32_t named = member_mask[lane] & live();
    bool all_here = (named & ~waiting) == 0;
    for (uint32_t other = named & waiting; all_here && other != 0; other &= other - 1)
      all_here = member_mask[std::countr_zero(other)] == member_mask[lane];
    if (all_here && (named >> lane & 1) != 0) Complete(*this, named);
  }
}

}  // namespace softgpu::engine
