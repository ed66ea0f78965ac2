#include "src/exec/channel.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "src/base/format.h"
#include "src/device/host/waiting.h"

namespace axccl::exec {
namespace {

constexpr uint64_t kCacheLine = 64;

// Sets of slots smaller than this stay at one place: of a few lines it costs less to get them back from a peer than to
// go on to memory that no cache near has.
constexpr uint64_t kLeastSet = 2048;

// Of larger calls the bytes take the time.
constexpr uint64_t kLargestPlain = 4u << 10;

bool OneSlotEach(const std::vector<Step>& steps) {
  return std::all_of(steps.begin(), steps.end(), [](const Step& step) { return step.parts <= 1; });
}

uint64_t Mix(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t h = (a ^ 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
  h = (h ^ h >> 32 ^ b) * 0xc4ceb9fe1a85ec53ull;
  return (h ^ h >> 32 ^ c) * 0xff51afd7ed558ccdull;
}

// What a rank runs for a call, in a word for its op record: 48 bits of hash of the plan and of how the data is cut for
// it, and so many of lanes and algorithm as people want to be told.
uint64_t PlanWord(const Prepared& prepared) {
  const plan::Plan& plan = *prepared.program->plan;
  const uint64_t hash = Mix(plan.hash.low, prepared.partition.tile, prepared.slot_bytes + prepared.inline_slots);
  return (hash & ~uint64_t{0xffff}) | uint64_t{plan.schedule.lanes & 0xffu} << 8 |
         (tune::NumberOf(plan.schedule.algorithm) + 1u);
}

// In words; a peer may have written it.
std::string PlanText(uint64_t word) {
  const auto lanes = static_cast<unsigned>(word >> 8 & 0xff);
  const std::string_view algorithm = tune::AlgorithmOf(static_cast<unsigned>(word & 0xff) - 1);
  char text[96];
  std::snprintf(text, sizeof(text), "%.*s in %u %s (plan %012llx)", static_cast<int>(algorithm.size()),
                algorithm.data(), lanes, lanes == 1 ? "lane" : "lanes", static_cast<unsigned long long>(word >> 16));
  return text;
}

// What a record says was called. A peer wrote it: any bits are legal.
struct RecordedCall {
  explicit RecordedCall(const OpRecord& record) {
    auto word = [&](int w) { return record.word[w].load(std::memory_order_relaxed); };
    packed = word(OpRecord::kCall);
    count = word(OpRecord::kCount);
    plan = word(OpRecord::kPlan);
    on_views = (packed & Call::kOnViews) != 0;
    if (!on_views) return;
    operands = word(OpRecord::kOperands);
    hash = word(OpRecord::kHash);
    scale = std::bit_cast<double>(word(OpRecord::kScale));
    const uint64_t type_word = word(OpRecord::kType);
    readable = form.Unpack(word(OpRecord::kForm)) && type_word < kNumDataTypes;
    if (readable) type = static_cast<DataType>(type_word);
    for (int d = 0; readable && d < form.shape.dims; ++d)
      form.shape.sizes[d] = static_cast<int64_t>(word(OpRecord::kSizes + d));
  }

  std::string Text() const {
    if (!readable) return "unreadable call";
    return on_views ? DescribeCall(packed, operands, form, type, scale) : DescribeCall(packed, count);
  }
  // What differs where the texts do not.
  const char* Hidden() const {
    const bool permutes = static_cast<Call::Form>(packed >> Call::kFormShift & 3) == Call::Form::kPermute;
    return permutes ? ", with other pairs or later operands" : ", and later operands differ";
  }
  bool operator==(const RecordedCall& other) const {
    return ((packed ^ other.packed) & ~Call::kSecondName) == 0 && count == other.count && readable && other.readable &&
           operands == other.operands && hash == other.hash;
  }

  // Whether both say what they run, and it is not the same.
  bool RunsOtherPlan(const RecordedCall& other) const { return plan != 0 && other.plan != 0 && plan != other.plan; }

  uint64_t packed, count, plan;
  bool on_views, readable = true;
  uint64_t operands = 0, hash = 0;
  double scale = 0;
  BlockForm form;  // of the first
  DataType type = DataType::kInt8;
};

plan::Placement PlacementOf(const std::vector<Member>& members) {
  std::vector<int> machine_of;
  for (const Member& member : members) machine_of.push_back(member.machine);
  return plan::Placement::Of(machine_of);
}

}  // namespace

void WriteForm(const ViewList& views, uint32_t hash, OpRecord* record) {
  const auto set = [record](int word, uint64_t value) { record->word[word].store(value, std::memory_order_relaxed); };
  const ViewOperand& first = views.operands[0];
  set(OpRecord::kOperands, views.operands.size());
  set(OpRecord::kHash, hash);
  set(OpRecord::kScale, std::bit_cast<uint64_t>(views.scale));
  set(OpRecord::kForm, first.form.Packed());
  set(OpRecord::kType, static_cast<uint64_t>(first.type));
  for (int d = 0; d < first.form.shape.dims; ++d)
    set(OpRecord::kSizes + d, static_cast<uint64_t>(first.form.shape.sizes[d]));
}

void WakeMember(const Member& member) {
  std::atomic<uint32_t>& waiter = member.header->waiter;
  if (waiter.load(std::memory_order_seq_cst) == 0) return;
  const uint32_t doorbell = waiter.exchange(0, std::memory_order_seq_cst);
  if (doorbell != 0) device::host::RingDoorbell(member.process->page(), static_cast<int>(doorbell - 1));
}

Channel::Channel(Host* host, std::vector<Member> members, int self, device::host::TimelinePtr order,
                 Connector* connector)
    : host_(host),
      members_(std::move(members)),
      workspace_(members_.size()),
      self_(self),
      placement_(PlacementOf(members_)),
      order_(std::move(order)),
      connector_(connector),
      home_(connector) {
  for (const Member& member : members_) {
    all_same_process_ &= member.same_process;
    all_call_copy_ &= member.same_process || member.call_copy;
    if (member.remote != nullptr) remote_ = member.remote;
  }
  has_scratch_ = members_[0].layout.apart == 0 || members_[0].scratch != nullptr;
  if (remote_ != nullptr) workspace_.MakeRoomForMessages();
}

Result<int> Channel::Connect() {
  if (connector_ == nullptr) return -1;
  AXCCL_ASSIGN_OR_RETURN(const int missing, connector_->Connect(&members_));
  if (missing < 0) connector_ = nullptr;
  return missing;
}

namespace {

// Memory that a peer has taken, by the word that says so.
Result<std::byte*> FindApart(const Member& peer, const std::atomic<uint64_t>& word, uint64_t bytes) {
  const uint64_t offset = word.load(std::memory_order_acquire);
  if (offset == 0 || offset % kCacheLine != 0)
    return MakeStatus(Code::kRemoteError, "rank %d announced something that is not its part of a message", peer.rank);
  return peer.process->At(offset, bytes);
}

}  // namespace

// Of a pair: the first member sends, and has the scratch.
Status Channel::FindScratch(int position) {
  Member& sender = members_[0];
  if (position != 0 || has_scratch_) return Status();
  AXCCL_ASSIGN_OR_RETURN(sender.scratch,
                         FindApart(sender, sender.layout.ApartOf(sender.block)->scratch, sender.layout.scratch_bytes));
  has_scratch_ = true;
  return Status();
}

Result<std::atomic<uint64_t>*> Channel::AnnouncementOf(int position, uint64_t seq) {
  Member& of = members_[static_cast<size_t>(position)];
  if (of.layout.apart == 0) return of.layout.AnnouncementOf(of.block, seq);
  const uint64_t bytes = 2 * of.layout.announcement_words * sizeof(uint64_t);
  std::atomic<uint64_t>& word = of.layout.ApartOf(of.block)->announcements;
  if (of.announcements == nullptr && position == self_) {
    uint64_t offset = 0;
    AXCCL_ASSIGN_OR_RETURN(of.announcements, host_->TakeShared(bytes, &offset));
    word.store(offset, std::memory_order_release);
  } else if (of.announcements == nullptr) {
    AXCCL_ASSIGN_OR_RETURN(of.announcements, FindApart(of, word, bytes));
  }
  return of.layout.AnnouncementOf(of.announcements, seq);
}

void Channel::AddPair(int rank, bool sending, Channel* pair) {
  pair->main_ = this;
  std::lock_guard lock(messages_mutex_);
  messages_[{rank, sending}] = pair;
}

const Channel* Channel::FindPair(int rank, bool sending) const {
  std::lock_guard lock(messages_mutex_);
  const auto it = messages_.find({rank, sending});
  return it == messages_.end() ? nullptr : it->second;
}

bool Channel::NeedsBarrier(const Prepared& next) const {
  if (last_plan == plan::Hash() || last_was_barrier) return false;
  const plan::Plan* plan = next.program->plan.get();
  if (plan->hash == last_plan && next.slot_bytes == last_slot_bytes) return false;
  return !last_complete || !plan->complete;
}

Result<int> Channel::TakeArea() {
  AXCCL_ASSIGN_OR_RETURN(const int area, connector_->TakeArea());
  members_[static_cast<size_t>(self_)].area = area;
  return area;
}

Result<const Prepared*> Channel::Prepare(const Call& call, tune::Access access, bool may_forget) {
  const bool short_runs = minds_runs && call.views != nullptr && call.views->ShortRuns();
  const bool split_rows = minds_runs && call.views != nullptr && call.views->SplitRows();
  const Key key{call.Packed(), call.count, static_cast<uint32_t>(access), short_runs, split_rows};
  if (key == last_key_) return last_prepared_;
  auto it = prepared_.find(key);
  if (it == prepared_.end()) {
    AXCCL_ASSIGN_OR_RETURN(Prepared built, Build(call, access, short_runs, split_rows));
    if (may_forget && (prepared_.size() >= kMaxPrepared || num_places_ >= kMaxPlaces)) {
      prepared_.clear();
      num_places_ = 0;
    }
    // All ranks forget at the same time, for what they run depends on what they remember (Prepared::instead).
    num_places_ += built.program->plan_operands / members_.size();
    it = prepared_.emplace(key, std::move(built)).first;
    plans.store(prepared_.size(), std::memory_order_relaxed);
  }
  last_key_ = key;
  last_prepared_ = &it->second;
  return last_prepared_;
}

Result<const Prepared*> Channel::PrepareBarrier() {
  if (barrier_.program == nullptr) {
    Prepared barrier;  // kept once it is whole
    AXCCL_ASSIGN_OR_RETURN(barrier.program,
                           host_->GetProgram(plan::Contract{plan::Kind::kBarrier, size(), 0},
                                             tune::BarrierAlgorithm(placement_), 1, self_, placement_));
    barrier.signature = static_cast<uint32_t>(Mix(Call().Packed(), 0, barrier.program->plan->hash.low) >> 32);
    AXCCL_RETURN_IF_ERROR(PlanMessages(&barrier));
    barrier_ = std::move(barrier);
  }
  return &barrier_;
}

Result<Prepared> Channel::Build(const Call& call, tune::Access access, bool short_runs, bool split_rows) const {
  const plan::Contract contract{call.kind, size(), call.root};
  const size_t element = ElementSize(call.type);
  tune::Choice choice;
  if (call.uneven()) {
    // The algorithms whose every move is of one block of some rank, so that it is known how long.
    choice.algorithm = access == tune::Access::kMapped ? "direct" : "oneshot";
  } else {
    choice = host_->chooser().Choose(tune::Query{contract, call.count * element, call.type, access, call.group_order,
                                                 short_runs, split_rows, placement_});
  }
  // The pair channels have one lane.
  const int lanes = std::min<int>(choice.lanes, static_cast<int>(own().layout.lanes));
  Prepared prepared;
  prepared.together = short_runs || split_rows;
  AXCCL_ASSIGN_OR_RETURN(prepared.program, host_->GetProgram(contract, choice.algorithm, lanes, self_, placement_));
  if (call.group_order && !prepared.program->plan->group_order)
    return MakeStatus(Code::kInternalError, "%s of %d ranks does not reduce in group order",
                      prepared.program->plan->schedule.algorithm.c_str(), size());
  if (access != tune::Access::kMapped && prepared.program->plan->pushes)
    return MakeStatus(Code::kInternalError, "%s of %d ranks writes into buffers that its ranks have not mapped",
                      prepared.program->plan->schedule.algorithm.c_str(), size());
  AXCCL_RETURN_IF_ERROR(Fit(call, choice.tile_bytes, lanes, &prepared));
  Locate(call, &prepared);
  AXCCL_RETURN_IF_ERROR(PlanMessages(&prepared));
  prepared.plan_word = PlanWord(prepared);
  prepared.signature = static_cast<uint32_t>(Mix(call.Packed(), call.count, prepared.plan_word) >> 32);
  return prepared;
}

Status Channel::PlanMessages(Prepared* prepared) const {
  if (remote_ == nullptr) return Status();
  prepared->outbound = prepared->program->outbound;
  if (prepared->outbound != nullptr) return Status();
  AXCCL_ASSIGN_OR_RETURN(Outbound outbound, Outbound::Make(prepared->program->plan->schedule, self_));
  prepared->outbound = std::make_shared<const Outbound>(std::move(outbound));
  return Status();
}

// Cuts the data so that the plan's slots fit the scratch there is.
Status Channel::Fit(const Call& call, uint64_t tile_bytes, int lanes, Prepared* prepared) const {
  const plan::Schedule& schedule = prepared->program->plan->schedule;
  const ChannelLayout& layout = own().layout;
  if (schedule.endpoints > layout.endpoints || schedule.lanes > layout.lanes)
    return MakeStatus(Code::kInternalError, "%s of %d ranks needs %u endpoints and %u lanes, a channel has %u and %u",
                      schedule.algorithm.c_str(), size(), schedule.endpoints, schedule.lanes, layout.endpoints,
                      layout.lanes);
  const uint64_t element = ElementSize(call.type);
  plan::Partition& cut = prepared->partition;
  cut.count = call.count;
  cut.granule = static_cast<uint32_t>(kCacheLine / element);
  cut.lanes = static_cast<uint32_t>(lanes);
  cut.parts = schedule.parts;
  if (schedule.slots != 0) {
    const uint64_t room = layout.scratch_bytes / (uint64_t{schedule.slots} * plan::kRotation * schedule.lanes);
    const uint64_t slot = room / kCacheLine * kCacheLine;
    if (slot == 0)
      return MakeStatus(Code::kInvalidUsage,
                        "%s of %d ranks needs %u scratch slots and has %llu bytes for them: raise AXCCL_SCRATCH_BYTES",
                        schedule.algorithm.c_str(), size(), schedule.slots,
                        static_cast<unsigned long long>(layout.scratch_bytes));
    const uint64_t granules = slot / (cut.granule * element);  // those of elements of 3 bytes do not fill their lines
    uint64_t tile = granules * cut.granule * schedule.parts;   // elements
    if (tile_bytes != 0) tile = std::min(tile, RoundUp(std::max<uint64_t>(tile_bytes / element, 1), cut.granule));
    cut.tile = tile >= plan::LaneSpan(cut, lanes - 1).count ? 0 : tile;  // 0: one turn; the last span is the longest
    const uint64_t used = plan::SlotElements(cut) * element;
    prepared->slot_bytes = std::max<uint64_t>(RoundUp(used, kCacheLine), kCacheLine);
    prepared->set_bytes = prepared->slot_bytes * schedule.slots * schedule.lanes;
    // `used` is whole granules, the data of a single part may be less.
    prepared->inline_slots = cut.tile == 0 && lanes == 1 && cut.parts == 1 && cut.count * element <= inline_bytes;
  }
  if (!prepared->inline_slots && prepared->set_bytes >= kLeastSet && placement_.is_flat())
    prepared->sets = std::max<uint64_t>(layout.scratch_bytes / plan::kRotation / prepared->set_bytes, 1);
  prepared->turns = plan::Turns(cut);
  prepared->whole = cut.tile == 0 && cut.lanes == 1 && cut.parts == 1;
  prepared->plain = prepared->whole && !schedule.direct && call.views == nullptr &&
                    call.count * element <= kLargestPlain && OneSlotEach(prepared->program->lanes[0]);
  const plan::Contract& contract = schedule.contract;
  const auto blocks = static_cast<uint64_t>(plan::InputBlocks(contract, self_) + plan::OutputBlocks(contract, self_));
  prepared->around_cache = call.count * element * blocks > host_->cache_bytes();
  return Status();
}

// A slot holds one part, from its start. Small ones live in the line of the signal that publishes them.
OperandPlace Channel::PlaceOfSlot(const Prepared& prepared, uint32_t lane, const plan::Operand& operand) const {
  const Program& program = *prepared.program;
  const Member& owner = member(operand.rank);
  const int16_t endpoint = program.inline_endpoint[operand.part];
  const bool in_line = prepared.inline_slots && endpoint >= 0;
  OperandPlace place{in_line || owner.layout.apart == 0 ? &owner.block : &owner.scratch, {}, prepared.slot_bytes};
  for (uint64_t copy = 0; copy < plan::kRotation; ++copy) {
    // Each turn has its half of the scratch, whatever the plan and the size of its slots: what the next operation
    // writes does not lie across what members may still read of this one.
    const uint64_t half = copy * (owner.layout.scratch_bytes / plan::kRotation);
    const uint64_t index = uint64_t{lane} * program.plan->schedule.slots + operand.part;
    place.offset[copy] =
        in_line ? owner.layout.OffsetOfLine(lane, static_cast<uint32_t>(endpoint), copy) + offsetof(Line, data)
                : owner.layout.scratch + half + index * prepared.slot_bytes;
  }
  return place;
}

void Channel::Locate(const Call& call, Prepared* prepared) const {
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
        const MemberBuffers& buffers = workspace_.BuffersOf(operand.rank);
        OperandPlace& place = prepared->places[i];
        place.base = operand.buffer == plan::Buffer::kInput ? &buffers.input : &buffers.output;
        std::fill_n(place.offset, plan::kRotation, operand.block * block_bytes);
      }
    }
  }
}

void Channel::RecordCall(const Call& call) {
  OpRecord* record = own().layout.RecordOf(own().block, sequence);
  record->sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record->word[OpRecord::kCall].store(call.Named(), std::memory_order_relaxed);
  record->word[OpRecord::kCount].store(call.count, std::memory_order_relaxed);
  record->word[OpRecord::kPlan].store(0, std::memory_order_relaxed);
  if (call.views != nullptr) WriteForm(*call.views, call.views->Hash(), record);
  record->sequence.store(++sequence, std::memory_order_release);
}

Status Channel::CompareCalls(int position, uint64_t seq) const {
  if (member(position).block == nullptr) return Status();
  const OpRecord* mine = own().layout.RecordOf(own().block, seq);
  const OpRecord* theirs = member(position).layout.RecordOf(member(position).block, seq);
  if (mine->sequence.load(std::memory_order_relaxed) != seq + 1) return Status();
  if (theirs->sequence.load(std::memory_order_acquire) != seq + 1) return Status();
  const RecordedCall my_call(*mine);
  const RecordedCall call(*theirs);
  std::atomic_thread_fence(std::memory_order_acquire);
  // Rewritten meanwhile: the peer is far ahead, so it had no quarrel with this one.
  if (theirs->sequence.load(std::memory_order_relaxed) != seq + 1) return Status();
  const bool same_call = call == my_call;
  if (same_call && !call.RunsOtherPlan(my_call)) return Status();
  const std::string mine_text = my_call.Text(), their_text = call.Text();
  if (same_call)
    return MakeStatus(
        Code::kInternalError,
        "mismatch at operation %llu: ranks %d and %d both called %s, but rank %d does it by %s and rank %d by "
        "%s; ranks choose from what rank 0 tells them (NCCL_ALGO and the figures of its machine), so only "
        "different builds of the library choose differently: let all ranks load the same libaxccl",
        static_cast<unsigned long long>(seq), own().rank, member(position).rank, mine_text.c_str(), own().rank,
        PlanText(my_call.plan).c_str(), member(position).rank, PlanText(call.plan).c_str());
  return MakeStatus(
      Code::kInvalidUsage,
      "mismatch at operation %llu: rank %d called %s, rank %d called %s%s%s; all ranks of a communicator must "
      "make the same calls in the same order",
      static_cast<unsigned long long>(seq), own().rank, mine_text.c_str(), member(position).rank, their_text.c_str(),
      mine_text == their_text ? my_call.Hidden() : "", CountSides(position, seq).c_str());
}

// Where there are more than two ranks: how many have called what this one did, and how many what the other one did.
std::string Channel::CountSides(int position, uint64_t seq) const {
  if (size() == 2) return "";
  const auto call_of = [&](int p) { return RecordedCall(*member(p).layout.RecordOf(member(p).block, seq)); };
  const RecordedCall mine = call_of(self_), theirs = call_of(position);
  int with_me = 0, with_them = 0;
  for (int p = 0; p < size(); ++p) {
    if (member(p).block == nullptr) continue;
    if (member(p).layout.RecordOf(member(p).block, seq)->sequence.load(std::memory_order_acquire) != seq + 1) continue;
    const RecordedCall call = call_of(p);
    with_me += call == mine;
    with_them += call == theirs;
  }
  return "; so far, of " + std::to_string(size()) + " ranks " + std::to_string(with_me) + " called the former and " +
         std::to_string(with_them) + " the latter";
}

std::string Channel::RecordedText(uint64_t seq) const { return RecordedText(self_, seq); }

std::string Channel::RecordedText(int position, uint64_t seq) const {
  const OpRecord* record = member(position).layout.RecordOf(member(position).block, seq);
  if (record->sequence.load(std::memory_order_acquire) != seq + 1) return "";
  const std::string text = RecordedCall(*record).Text();
  std::atomic_thread_fence(std::memory_order_acquire);
  return record->sequence.load(std::memory_order_relaxed) == seq + 1 ? text : "";
}

std::string Channel::LastCallOf(int position) const {
  const Member& peer = member(position);
  const std::string rank = "rank " + std::to_string(peer.rank);
  uint64_t newest = 0;  // + 1
  for (uint64_t i = 0; i < kRecords && peer.block != nullptr; ++i)
    newest = std::max(newest, peer.layout.RecordOf(peer.block, i)->sequence.load(std::memory_order_acquire));
  if (newest == 0) return rank + " has called nothing like it yet";
  const std::string text = RecordedText(position, newest - 1);
  return rank + " last called " + (text.empty() ? "one" : text) + " (operation " + std::to_string(newest - 1) + ")";
}

bool Channel::HasRecorded(int position, uint64_t seq) const {
  const Member& peer = member(position);
  if (peer.block == nullptr) return false;
  return peer.layout.RecordOf(peer.block, seq)->sequence.load(std::memory_order_acquire) > seq;
}

Status Channel::FindMismatch() const {
  for (uint64_t seq = OldestRecord(); seq < sequence; ++seq) {
    for (int p = 0; p < size(); ++p) {
      if (p != self_) AXCCL_RETURN_IF_ERROR(CompareCalls(p, seq));
    }
  }
  return Status();
}

Status Channel::CompareCalls(int position) const {
  for (uint64_t seq = OldestRecord(); seq < sequence; ++seq) AXCCL_RETURN_IF_ERROR(CompareCalls(position, seq));
  return Status();
}

// What a member has told of its failure. Sequentially consistent: it is told before the steps under way are looked at,
// and looked for in every step (Operation::Leave).
Status Channel::FailureOf(const Member& peer) {
  const uint32_t error = peer.header->error.load(std::memory_order_seq_cst);
  if (error == 0) return Status();
  char text[kErrorText];
  std::copy_n(peer.header->error_text, kErrorText, text);
  text[kErrorText - 1] = 0;
  const auto code = error <= static_cast<uint32_t>(Code::kTimeout) ? static_cast<Code>(error) : Code::kRemoteError;
  return Status(code, Printable(text));  // the peer wrote it
}

Status Channel::CheckFailures() const {
  for (const Member& peer : members_) {
    Status failure = FailureOf(peer);
    if (failure.code() != Code::kRemoteError && !failure.ok()) return failure;
  }
  return Status();
}

Status Channel::CheckOwners() const {
  for (int p = 0; p < size(); ++p) {
    if (p != self_) AXCCL_RETURN_IF_ERROR(FailureOf(member(p)));
  }
  return Status();
}

Status Channel::CheckMembers(int waiting_for) const {
  for (int p = 0; p < size(); ++p) {
    if (p == self_) continue;
    const Member& peer = member(p);
    AXCCL_RETURN_IF_ERROR(FailureOf(peer));
    const bool closed = peer.header->closed.load(std::memory_order_acquire) != 0;
    if (closed && p == waiting_for)
      return MakeStatus(Code::kRemoteError,
                        "rank %d waits for rank %d, which has destroyed or aborted its communicator", own().rank,
                        peer.rank);
    if (!closed && peer.remote != nullptr && peer.process->Died())
      return MakeStatus(
          Code::kRemoteError,
          "rank %d cannot reach rank %d (pid %u on host %s) any more: %s; abort the communicator and make a "
          "new one without it",
          own().rank, peer.rank, peer.process->pid(), peer.remote->host().c_str(), peer.remote->Trouble().c_str());
    if (!closed && peer.process->Died()) return DeathOf(peer);
  }
  return Status();
}

Status Channel::DeathOf(const Member& peer) {
  return MakeStatus(Code::kRemoteError, "rank %d (pid %u) died; abort the communicator and make a new one without it",
                    peer.rank, peer.process->pid());
}

}  // namespace axccl::exec
