#include "src/exec/prepared/plan_cache.h"

#include <utility>

#include "src/base/format.h"
#include "src/base/hash.h"
#include "src/base/sizes.h"

namespace axccl::exec {
namespace {

// Sets of slots smaller than this stay at one place: fetching a few lines back from a peer costs less than moving on to
// memory that is in no near cache.
constexpr uint64_t kLeastSet = 2048;

// For larger calls, the time for the bytes dominates.
constexpr uint64_t kLargestPlain = 32u << 10;

bool OneSlotEach(const std::vector<Step>& steps) {
  return std::all_of(steps.begin(), steps.end(), [](const Step& step) { return step.parts <= 1; });
}

// How many ranks the process has that has most of them: the same number on every rank.
size_t MostOfProcess(const Members& members) {
  std::vector<int> processes;
  for (int p = 0; p < members.size(); ++p) processes.push_back(members[p].process);
  std::sort(processes.begin(), processes.end());
  size_t most = 1;
  for (auto first = processes.begin(); first != processes.end();) {
    const auto last = std::upper_bound(first, processes.end(), *first);
    most = std::max(most, static_cast<size_t>(last - first));
    first = last;
  }
  return most;
}

// What a prepared call takes, as an average over the ranks, which is the same on each of them.
size_t AverageBytes(const Program& program, size_t ranks) {
  constexpr size_t kOfOp = sizeof(Step) + sizeof(PlainStep) + sizeof(const Member*);
  constexpr size_t kOfOperand = sizeof(plan::Operand) + sizeof(uint16_t) + sizeof(OperandPlace) + sizeof(PlainOperand);
  return sizeof(Prepared) + sizeof(Program) + (program.plan_ops * kOfOp + program.plan_operands * kOfOperand) / ranks;
}

uint64_t HashOf(uint64_t a, uint64_t b, uint64_t c) { return Mix(Mix(Mix(kHashSeed, a), b), c); }

// Identifies what a rank runs for a call, in a word for its op record: 48 bits of a hash of the plan and of the
// division of the data, and as much about lanes and algorithm as messages show.
uint64_t PlanWord(const Prepared& prepared) {
  const plan::Plan& plan = *prepared.program->plan;
  const uint64_t hash = HashOf(plan.hash.low, prepared.partition.tile, prepared.slot_bytes + prepared.inline_slots);
  return (hash & ~uint64_t{0xffff}) | uint64_t{plan.schedule.lanes & 0xffu} << 8 |
         (tune::NumberOf(plan.schedule.algorithm) + 1u);
}

// A rank that folds its own contribution copies it to its output first, where it may be scaled and rounded. A plain
// program is for calls that do neither: the fold that overwrites the output reads the input instead.
void ReadInputsInPlace(PlainProgram* plain) {
  const auto same = [](const PlainOperand& a, const PlainOperand& b) {
    return a.base == b.base && std::equal(std::begin(a.offset), std::end(a.offset), b.offset);
  };
  const auto operands = [plain](const PlainStep& step) {
    return &plain->operands[step.operands - &plain->operands[0]];
  };
  for (auto copy = plain->steps.begin(); copy != plain->steps.end(); ++copy) {
    if (copy->kind != plan::OpKind::kCopy || copy->num_dst != 1) continue;
    const PlainOperand& output = operands(*copy)[0];
    const PlainOperand& input = operands(*copy)[1];
    if (output.base != PlainOperand::kOutput || input.base != PlainOperand::kInput) continue;
    const auto fold = std::find_if(copy + 1, plain->steps.end(),
                                   [](const PlainStep& step) { return step.kind != plan::OpKind::kWait; });
    if (fold == plain->steps.end() || fold->kind != plan::OpKind::kReduce || fold->num_dst != 1) continue;
    PlainOperand* const folded = operands(*fold);
    if (!same(folded[0], output)) continue;
    PlainOperand* const end = folded + 1 + fold->num_src;
    if (std::none_of(folded + 1, end, [&](const PlainOperand& source) { return same(source, output); })) continue;
    std::replace_if(
        folded + 1, end, [&](const PlainOperand& source) { return same(source, output); }, PlainOperand(input));
    copy->num_dst = 0;
  }
}

plan::Run RunOf(const Prepared& prepared, bool barrier) {
  const plan::Plan& plan = *prepared.program->plan;
  return {{plan.hash.high, plan.hash.low}, prepared.slot_bytes, plan.complete, barrier};
}

// Blocks that an operation touches, as an average over the ranks, which all use the cache.
struct Touched {
  double apart;
  double in_place;  // if the smaller buffer of each rank is a part of the larger one
};

Touched TouchedBlocks(const plan::Contract& contract) {
  Touched touched{0, 0};
  for (int rank = 0; rank < contract.ranks; ++rank) {
    const int inputs = plan::InputBlocks(contract, rank), outputs = plan::OutputBlocks(contract, rank);
    touched.apart += inputs + outputs;
    touched.in_place += std::max(inputs, outputs);
  }
  touched.apart /= contract.ranks;
  touched.in_place /= contract.ranks;
  return touched;
}

}  // namespace

void PlanOptions::AddTo(tune::Query* query, const Call& call) const {
  query->scratch_bytes = scratch_bytes / plan::kRotation;
  if (call.views != nullptr) return;
  query->flagged_bytes = flagged_bytes[static_cast<size_t>(call.kind)];
  // Slots of all ranks are read and written in units of 16 bytes.
  if (multicast_bytes == 0 || 16 % ElementSize(call.type) != 0) return;
  query->multicast = multicast_folds(call) ? tune::Multicast::kFolds : tune::Multicast::kStores;
  query->multicast_bytes = multicast_bytes / plan::kRotation;
}

PlanCache::PlanCache(const Members* members, const PlanOptions& options, FindBuffer find_buffer)
    : members_(*members),
      options_(options),
      find_buffer_(std::move(find_buffer)),
      max_bytes_(std::min(kMaxBytesOfProcess / MostOfProcess(*members), kMaxBytes)) {}

// All ranks evict at the same time, because what they run depends on what is in the cache (Redirect).
bool PlanCache::Full() const { return prepared_.size() >= kMaxPrepared || bytes_ >= max_bytes_; }

Result<const Prepared*> PlanCache::Find(const Call& call, tune::Access access, bool may_forget) {
  const ViewList* const views = call.views == nullptr || !options_.by_runs ? nullptr : call.views.get();
  const bool short_runs = views != nullptr && views->ShortRuns(), split_rows = views != nullptr && views->SplitRows();
  const Key key{call.Packed(), call.count, How(access, short_runs, split_rows)};
  if (key == last_key_) return last_prepared_;
  if (const Prepared* const found = Lookup(key); found != nullptr) return found;
  AXCCL_ASSIGN_OR_RETURN(Prepared built, Build(call, access, short_runs, split_rows));
  if (may_forget && Full()) {
    prepared_.clear();
    bytes_ = 0;
    last_key_ = kNoKey;
  }
  bytes_ += AverageBytes(*built.program, static_cast<size_t>(members_.size()));
  last_prepared_ = &prepared_.emplace(key, std::move(built)).first->second;
  last_key_ = key;
  size_.store(prepared_.size(), std::memory_order_relaxed);
  return last_prepared_;
}

const Prepared* PlanCache::Lookup(const Key& key) {
  const auto it = prepared_.find(key);
  if (it == prepared_.end()) return nullptr;
  last_key_ = key;
  last_prepared_ = &it->second;
  return last_prepared_;
}

Result<const Prepared*> PlanCache::PrepareBarrier() {
  if (barrier_.program == nullptr) {
    Prepared barrier;  // kept once it is complete
    AXCCL_ASSIGN_OR_RETURN(
        barrier.program, members_.owner()->GetProgram(plan::Contract{plan::Kind::kBarrier, members_.size(), 0},
                                                      tune::BarrierAlgorithm(members_.placement()), 1, members_.self(),
                                                      members_.placement()));
    barrier.signature = static_cast<uint32_t>(HashOf(Call().Packed(), 0, barrier.program->plan->hash.low) >> 32);
    barrier.run = RunOf(barrier, true);
    AXCCL_RETURN_IF_ERROR(PlanMessages(&barrier));
    barrier_ = std::move(barrier);
  }
  return &barrier_;
}

tune::Query PlanCache::QueryOf(const Call& call, tune::Access access, bool short_runs, bool split_rows) const {
  tune::Query query{plan::Contract{call.kind, members_.size(), call.root},
                    call.count * ElementSize(call.type),
                    call.type,
                    access,
                    call.group_order,
                    short_runs,
                    split_rows,
                    members_.placement(),
                    members_.sharers()};
  options_.AddTo(&query, call);
  return query;
}

Result<Prepared> PlanCache::Build(const Call& call, tune::Access access, bool short_runs, bool split_rows) const {
  const plan::Contract contract{call.kind, members_.size(), call.root};
  tune::Choice choice;
  if (call.uneven()) {
    choice.algorithm = tune::UnevenAlgorithm(call.kind, access, members_.placement());
  } else {
    choice = members_.owner()->chooser().Choose(QueryOf(call, access, short_runs, split_rows));
  }
  // The pair channels have one lane.
  const int lanes = std::min<int>(choice.lanes, static_cast<int>(members_.own().layout.lanes));
  Prepared prepared;
  prepared.together = short_runs || split_rows;
  AXCCL_ASSIGN_OR_RETURN(prepared.program, members_.owner()->GetProgram(contract, choice.algorithm, lanes,
                                                                        members_.self(), members_.placement()));
  if (call.group_order && !prepared.program->plan->group_order)
    return MakeStatus(Code::kInternalError, "%s of %d ranks does not reduce in group order",
                      prepared.program->plan->schedule.algorithm.c_str(), members_.size());
  if (access != tune::Access::kMapped && prepared.program->plan->pushes)
    return MakeStatus(Code::kInternalError, "%s of %d ranks writes into buffers that its ranks have not mapped",
                      prepared.program->plan->schedule.algorithm.c_str(), members_.size());
  AXCCL_RETURN_IF_ERROR(Fit(call, choice.tile_bytes, lanes, &prepared));
  Locate(call, &prepared);
  if (prepared.plain && find_buffer_ != nullptr) ResolvePlain(call, &prepared);
  prepared.run = RunOf(prepared, false);
  AXCCL_RETURN_IF_ERROR(PlanMessages(&prepared));
  prepared.plan_word = PlanWord(prepared);
  prepared.signature = static_cast<uint32_t>(HashOf(call.Packed(), call.count, prepared.plan_word) >> 32);
  return prepared;
}

Result<Prepared> PlanCache::PrepareSliced(const Call& call, std::shared_ptr<const Program> program,
                                          const plan::Slicing& slicing) const {
  Prepared prepared;
  prepared.program = std::move(program);
  prepared.slicing = slicing;
  const plan::Schedule& schedule = prepared.program->plan->schedule;
  const ChannelLayout& layout = members_.own().layout;
  const uint64_t element = ElementSize(call.type);
  prepared.slot_bytes = RoundUp(plan::SlotElements(slicing) * element, kCacheLine);
  prepared.sets.bytes = prepared.slot_bytes * schedule.slots * schedule.lanes;
  if (schedule.endpoints > layout.endpoints || schedule.lanes > layout.lanes ||
      prepared.sets.bytes * plan::kRotation > layout.scratch_bytes)
    return MakeStatus(Code::kInternalError, "%s of %d ranks does not fit into its channel", schedule.algorithm.c_str(),
                      members_.size());
  const auto block_bytes = static_cast<double>(call.count * element);
  const Touched touched = TouchedBlocks(schedule.contract);
  const auto kept = static_cast<double>(members_.owner()->cache_bytes());
  prepared.around_cache = touched.apart * block_bytes > kept;
  prepared.around_cache_in_place = touched.in_place * block_bytes > kept;
  if (schedule.slots != 0) Locate(call, &prepared);  // operands that are views find their buffers themselves
  prepared.run = RunOf(prepared, false);
  AXCCL_RETURN_IF_ERROR(PlanMessages(&prepared));
  prepared.plan_word = PlanWord(prepared);
  prepared.signature = static_cast<uint32_t>(HashOf(call.Packed(), call.count, prepared.plan_word) >> 32);
  return prepared;
}

Status PlanCache::PlanMessages(Prepared* prepared) const {
  if (members_.inbox() == nullptr) return Status();
  prepared->outbound = prepared->program->outbound;
  if (prepared->outbound != nullptr) return Status();
  AXCCL_ASSIGN_OR_RETURN(Outbound outbound, Outbound::Make(prepared->program->plan->schedule, members_.self()));
  prepared->outbound = std::make_shared<const Outbound>(std::move(outbound));
  return Status();
}

// Divides the data so that the plan's slots fit the available scratch.
Status PlanCache::Fit(const Call& call, uint64_t tile_bytes, int lanes, Prepared* prepared) const {
  const plan::Schedule& schedule = prepared->program->plan->schedule;
  const ChannelLayout& layout = members_.own().layout;
  if (schedule.endpoints > layout.endpoints || schedule.lanes > layout.lanes)
    return MakeStatus(Code::kInternalError, "%s of %d ranks needs %u endpoints and %u lanes, a channel has %u and %u",
                      schedule.algorithm.c_str(), members_.size(), schedule.endpoints, schedule.lanes, layout.endpoints,
                      layout.lanes);
  const uint64_t element = ElementSize(call.type);
  plan::Partition& cut = prepared->partition;
  cut.count = call.count;
  cut.granule = static_cast<uint32_t>(kCacheLine / element);
  cut.lanes = static_cast<uint32_t>(lanes);
  cut.parts = schedule.parts;
  const uint64_t scratch_bytes = prepared->program->multicast ? options_.multicast_bytes : ScratchBytes();
  if (schedule.slots != 0) {
    const uint64_t room = scratch_bytes / (uint64_t{schedule.slots} * plan::kRotation * schedule.lanes);
    const uint64_t slot = room / kCacheLine * kCacheLine;
    if (slot == 0)
      return MakeStatus(Code::kInvalidUsage,
                        "%s of %d ranks needs %u scratch slots and has %llu bytes for them: raise AXCCL_SCRATCH_BYTES",
                        schedule.algorithm.c_str(), members_.size(), schedule.slots,
                        static_cast<unsigned long long>(scratch_bytes));
    // Granules of elements of 3 bytes do not fill their lines.
    const uint64_t granules = slot / (cut.granule * element);
    uint64_t tile = granules * cut.granule * schedule.parts;  // elements
    if (tile_bytes != 0) tile = std::min(tile, RoundUp(std::max<uint64_t>(tile_bytes / element, 1), cut.granule));
    cut.tile = tile >= plan::LaneSpan(cut, lanes - 1).count ? 0 : tile;  // 0: one turn; the last span is the longest
    const uint64_t used = plan::SlotElements(cut) * element;
    prepared->slot_bytes = std::max<uint64_t>(RoundUp(used, kCacheLine), kCacheLine);
    prepared->sets.bytes = prepared->slot_bytes * schedule.slots * schedule.lanes;
    // `used` is whole granules; the data of a single part may be less.
    prepared->inline_slots =
        cut.tile == 0 && lanes == 1 && cut.parts == 1 && cut.count * element <= options_.inline_bytes;
  }
  // This rank's core reads what it sends to other machines: there is one set then, which stays in its cache.
  if (!prepared->inline_slots && prepared->sets.bytes >= kLeastSet && members_.placement().is_flat()) {
    const uint64_t rotated = std::min(scratch_bytes, options_.rotated_bytes);
    prepared->sets.count = std::max<uint64_t>(rotated / plan::kRotation / prepared->sets.bytes, 1);
  }
  prepared->turns = plan::Turns(cut);
  prepared->whole = cut.tile == 0 && cut.lanes == 1 && cut.parts == 1;
  prepared->plain = prepared->whole && !schedule.direct && call.views == nullptr &&
                    call.count * element <= kLargestPlain && OneSlotEach(prepared->program->lanes[0]);
  const Touched touched = TouchedBlocks(schedule.contract);
  const auto kept = static_cast<double>(members_.owner()->cache_bytes());
  const auto block_bytes = static_cast<double>(call.count * element);
  prepared->around_cache = touched.apart * block_bytes > kept;
  prepared->around_cache_in_place = touched.in_place * block_bytes > kept;
  return Status();
}

// A slot holds one part, from its start. Small slots live in the line of the signal that publishes them.
OperandPlace PlanCache::PlaceOfSlot(const Prepared& prepared, uint32_t lane, const plan::Operand& operand) const {
  const Program& program = *prepared.program;
  const Member& owner = members_[operand.rank];
  const int16_t endpoint = program.inline_endpoint[operand.part];
  const bool in_line = prepared.inline_slots && endpoint >= 0;
  OperandPlace place{in_line || owner.layout.apart == 0 ? &owner.block : &owner.scratch, {}, prepared.slot_bytes};
  for (uint64_t copy = 0; copy < plan::kRotation; ++copy) {
    // Each turn has its half of the scratch, whatever the plan and the size of its slots: what the next operation
    // writes does not overlap what members may still read of this one.
    const uint64_t half = copy * (owner.layout.scratch_bytes / plan::kRotation);
    const uint64_t index = uint64_t{lane} * program.plan->schedule.slots + operand.part;
    place.offset[copy] =
        in_line ? owner.layout.OffsetOfLine(lane, static_cast<uint32_t>(endpoint), copy) + offsetof(Line, data)
                : owner.layout.scratch + half + index * prepared.slot_bytes;
  }
  return place;
}

void PlanCache::Locate(const Call& call, Prepared* prepared) const {
  if (find_buffer_ == nullptr) return;
  const Program& program = *prepared->program;
  const uint64_t block_bytes = call.count * ElementSize(call.type);
  prepared->places.resize(program.operands.size());
  for (uint32_t lane = 0; lane < program.lanes.size(); ++lane) {
    for (const Step& step : program.lanes[lane]) {
      for (uint32_t i = step.operands; i < step.operands + step.num_dst + step.num_src; ++i) {
        const plan::Operand& operand = program.operands[i];
        if (operand.buffer == plan::Buffer::kScratch) {
          prepared->places[i] = PlaceOfSlot(*prepared, lane, operand);
          continue;
        }
        OperandPlace& place = prepared->places[i];
        place.base = find_buffer_(operand);
        std::fill_n(place.offset, plan::kRotation, operand.block * block_bytes);
      }
    }
  }
}

void PlanCache::ResolvePlain(const Call& call, Prepared* prepared) const {
  PlainProgram& plain = prepared->plain_program;
  plain.block_bytes = call.count * ElementSize(call.type);
  for (const plan::Operand& operand : prepared->program->operands) {
    PlainOperand& resolved = plain.operands.emplace_back();
    if (operand.buffer == plan::Buffer::kScratch) {
      const OperandPlace place = PlaceOfSlot(*prepared, 0, operand);
      const Member& owner = members_[operand.rank];
      const bool apart = place.base == &owner.scratch;
      resolved.base = apart ? PlainOperand::kApart : PlainOperand::kSlot;
      for (uint64_t copy = 0; copy < plan::kRotation; ++copy)
        resolved.offset[copy] = place.offset[copy] + (apart ? 0 : reinterpret_cast<uintptr_t>(owner.block));
    } else {
      resolved.base = operand.buffer == plan::Buffer::kInput ? PlainOperand::kInput : PlainOperand::kOutput;
      for (uintptr_t& offset : resolved.offset) offset = operand.block * plain.block_bytes;
    }
  }
  for (const Step& step : prepared->program->lanes[0]) {
    PlainStep& resolved = plain.steps.emplace_back();
    resolved.kind = step.kind;
    resolved.value = step.value;
    const bool signals = step.kind == plan::OpKind::kSignal;
    if (!signals && step.kind != plan::OpKind::kWait) {
      resolved.operands = &plain.operands[step.operands];
      if (plain.block_bytes == 0) {
        resolved.kind = plan::OpKind::kCopy;  // to no destination
      } else {
        resolved.num_dst = step.num_dst;
        resolved.num_src = step.num_src;
      }
      continue;
    }
    for (int p = 0; signals && p < members_.size(); ++p) {
      const bool reads = step.peer == plan::kAllPeers || step.peer == p;
      if (!reads || p == members_.self()) continue;
      plain.readers.push_back(&members_[p]);
      ++resolved.num_readers;
    }
    const Member& writer = signals ? members_.own() : members_[step.peer];
    for (uint64_t copy = 0; copy < plan::kRotation; ++copy)
      resolved.line[copy] = writer.layout.LineOf(writer.block, signals ? 0 : step.from_lane, step.endpoint, copy);
  }
  ReadInputsInPlace(&plain);
  const Member* const* next = plain.readers.data();
  for (PlainStep& step : plain.steps) {
    if (step.kind == plan::OpKind::kSignal) step.readers = std::exchange(next, next + step.num_readers);
  }
}

}  // namespace axccl::exec
