#include "src/verify/concurrency.h"

#include <algorithm>
#include <string>

#include "src/verify/accesses.h"
#include "src/verify/clocks.h"
#include "src/verify/describe.h"
#include "src/verify/places.h"
#include "src/verify/size.h"

namespace axccl::verify {

using plan::Buffer;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

namespace {

constexpr uint32_t kTurns = plan::kRotation + 1;

// A lane of a rank, and how far it has run.
struct Strand {
  const std::vector<Op>* ops = nullptr;
  int rank = 0;
  int lane = 0;
  uint32_t turn = 0;
  uint32_t next = 0;              // operation of this turn
  uint32_t blocked = kNone;       // key of the signal it waits for
  uint32_t next_blocked = kNone;  // list of the strands that wait for the same signal
  uint32_t done = 0;              // operations that have run, over all turns
  uint32_t signalled = 0;         // the same when it made its last signal
};

class Run {
 public:
  Run(const Schedule& s, const SignalTable& signals, const std::vector<int>& lanes, Order* order);
  Status Go();

 private:
  struct Touch {
    const Operand* operand;
    int part;
    uint32_t place;
    bool onto_itself = false;  // the write of a copy whose source is its destination in place
    bool multicast = false;    // one of all ranks'
  };

  uint32_t StrandOf(int rank, int lane) const { return static_cast<uint32_t>(rank) * width_ + lane_at_[lane]; }
  const uint32_t* Clock(uint32_t x) const { return clocks_.Of(x); }
  bool Before(const Event& e, uint32_t x) const { return e.strand == x || Clock(x)[e.strand] > e.position; }
  std::string WhereOf(const Event& e) const;
  static Status Bad(const std::string& what) { return MakeStatus(Code::kInvalidArgument, "%s", what.c_str()); }

  Status Advance(uint32_t x);
  void Signal(uint32_t x, const Op& op);
  bool Wait(uint32_t x, const Op& op);
  // Sets *goes_on to false when the strand has ended or waits for the other lanes of its rank.
  Status EndTurn(uint32_t x, bool* goes_on);
  Status EndRank(int rank);
  Status TooLate(const Event& e, int owner) const;
  void NoteComplete(uint32_t x);

  void NoteAnnouncement(uint32_t x, const Op& op);
  Status Await(uint32_t x, const Op& op);
  Status Notify(uint32_t x, const Op& op);
  Status CheckPrompt(uint32_t x, const Operand& o, int parts);
  Status CheckInputsOf(uint32_t x, const Op& op);
  Status CheckAwaited(uint32_t x, const Operand& o);
  Status CheckNotNotified(uint32_t x, const Operand& o) const;

  Status Data(uint32_t x, const Op& op);
  Status Access(uint32_t x, const Op& op, Touch t, bool writes);
  Status Remote(uint32_t x, const Touch& t);
  Status Read(uint32_t x, const Touch& t);
  Status Write(uint32_t x, const Touch& t);
  bool Mixes(uint32_t x, const Touch& t, const Event& other, bool multicast) const;
  Status Mixed(uint32_t x, const Touch& t, const char* does, const char* done) const;
  Status Race(uint32_t x, const Touch& t, const char* does, const Event& other, const char* other_does,
              bool in_place) const;
  uint32_t Publication(uint32_t x, const Operand& o, int part) const;
  uint32_t Culprit(uint32_t x) const;
  Status Deadlock() const;
  // The number of an operand's first part. Lanes have slots of their own, and their own spans of the user's blocks
  // unless there are slices.
  uint32_t PlaceOf(uint32_t x, const Operand& o) const {
    const uint32_t apart = s_.slices == 0 ? places_.size() : o.buffer == Buffer::kScratch ? places_.slots() : 0;
    return places_.Of(o) + apart * (x % width_);
  }

  const Schedule& s_;
  const SignalTable& signals_;
  Order* order_;
  const Places places_;
  const uint32_t width_;           // lanes examined
  std::vector<uint32_t> lane_at_;  // [lane]: its position among them
  std::vector<Strand> strands_;
  Clocks clocks_;                // for the strand itself, see Strand::done
  std::vector<uint32_t> queue_;  // strands that can continue

  std::vector<uint32_t> made_;   // [endpoint]: signals so far
  std::vector<uint32_t> waits_;  // [signal]: waits for it in a turn
  std::vector<uint32_t>
      snapshot_;  // [signal * kTurns + turn]: the copy of a clock that it carries, kNone before it is made
  std::vector<uint32_t> pending_;  // [likewise]: waits still to come
  std::vector<uint32_t> blocked_;  // [likewise]: list of strands

  std::vector<History> history_;
  Reads reads_;
  // For direct schedules: how many lanes of a rank have ended the turn, and the last access of a strand to a rank's
  // buffers.
  std::vector<uint32_t> arrived_;
  std::vector<bool> ended_;
  std::vector<uint32_t> last_remote_;  // [rank][strand] position + 1
  // For schedules with slices.
  std::vector<Event> announced_;                    // [rank * ranks + owner]: the wait for the owner's announcement
  std::vector<std::vector<Event>> awaited_;         // [rank][input chunk]
  std::vector<std::vector<bool>> notified_;         // [rank][output chunk]
  std::vector<std::vector<Event>> awaits_;          // [strand]: position and, as strand, chunk of its awaits; ascending
  std::vector<uint32_t> awaiters_;                  // the strands that await
  std::vector<std::vector<uint32_t>> before_wait_;  // [strand]: its clock before its last wait, if a notify follows
};

Run::Run(const Schedule& s, const SignalTable& signals, const std::vector<int>& lanes, Order* order)
    : s_(s),
      signals_(signals),
      order_(order),
      places_(s),
      width_(static_cast<uint32_t>(lanes.size())),
      lane_at_(s.lanes, 0),
      made_(signals.size(), 0),
      waits_(signals.op_index.size(), 0),
      history_(places_.size() + size_t{s.slices == 0 ? places_.size() : places_.slots()} * (width_ - 1)) {
  for (uint32_t i = 0; i < width_; ++i) lane_at_[lanes[i]] = i;
  for (int r = 0; r < s.contract.ranks; ++r) {
    for (int l : lanes) {
      Strand& strand = strands_.emplace_back();
      strand.ops = &s.program[r][l].ops;
      strand.rank = r;
      strand.lane = l;
      for (const Op& op : *strand.ops) {
        if (op.kind != OpKind::kWait) continue;
        ++waits_[signals.At(signals.IndexOf(op.peer, op.from_lane, op.endpoint)).first + op.value - 1];
      }
    }
  }
  clocks_.Resize(strands_.size());
  snapshot_.assign(waits_.size() * kTurns, kNone);
  pending_.assign(waits_.size() * kTurns, 0);
  blocked_.assign(waits_.size() * kTurns, kNone);
  if (!plan::MovesAllInOneTurn(s)) return;
  arrived_.assign(s.contract.ranks, 0);
  ended_.assign(s.contract.ranks, false);
  last_remote_.assign(strands_.size() * s.contract.ranks, 0);
  if (s.slices == 0) return;
  announced_.resize(size_t(s.contract.ranks) * s.contract.ranks);
  before_wait_.resize(strands_.size());
  for (const Strand& strand : strands_) {
    std::vector<Event>& awaits = awaits_.emplace_back();
    for (uint32_t i = 0; i < strand.ops->size(); ++i) {
      if ((*strand.ops)[i].kind == OpKind::kAwait) awaits.push_back({(*strand.ops)[i].chunk, i});
    }
    if (!awaits.empty()) awaiters_.push_back(static_cast<uint32_t>(awaits_.size() - 1));
  }
  for (int r = 0; r < s.contract.ranks; ++r) {
    awaited_.emplace_back(size_t(plan::InputBlocks(s.contract, r)) * s.slices);
    notified_.emplace_back(size_t(plan::OutputBlocks(s.contract, r)) * s.slices);
  }
}

std::string Run::WhereOf(const Event& e) const {
  const Strand& strand = strands_[e.strand];
  return Where(s_, strand.rank, strand.lane, e.position % strand.ops->size());
}

Status Run::Go() {
  for (uint32_t x = 0; x < strands_.size(); ++x) queue_.push_back(x);
  // In rounds, so that strands advance in step and few signals are pending at a time.
  std::vector<uint32_t> round;
  while (!queue_.empty()) {
    round.swap(queue_);
    queue_.clear();
    for (uint32_t x : round) AXCCL_RETURN_IF_ERROR(Advance(x));
  }
  for (const Strand& strand : strands_) {
    if (strand.blocked != kNone) return Deadlock();
  }
  return Status();
}

Status Run::Advance(uint32_t x) {
  Strand& strand = strands_[x];
  strand.blocked = kNone;
  while (true) {
    if (strand.next == strand.ops->size()) {
      bool goes_on = false;
      AXCCL_RETURN_IF_ERROR(EndTurn(x, &goes_on));
      if (!goes_on) return Status();
      continue;
    }
    const Op& op = (*strand.ops)[strand.next];
    if (op.kind == OpKind::kWait) {
      if (!Wait(x, op)) return Status();
      if (strand.turn == 0 && s_.slices != 0) NoteAnnouncement(x, op);
    } else if (op.kind == OpKind::kSignal) {
      Signal(x, op);
    } else if (op.kind == OpKind::kAwait || op.kind == OpKind::kNotify) {
      if (strand.turn == 0 && op.kind == OpKind::kAwait) AXCCL_RETURN_IF_ERROR(Await(x, op));
      if (strand.turn == 0 && op.kind == OpKind::kNotify) AXCCL_RETURN_IF_ERROR(Notify(x, op));
    } else if (op.kind != OpKind::kNop && strand.turn % plan::kRotation == 0) {
      AXCCL_RETURN_IF_ERROR(Data(x, op));
    }
    if (reads_.bytes() + clocks_.bytes_of_copies() > kMaxHeldBytes) return TooLarge();
    ++strand.next;
    ++strand.done;
  }
}

void Run::Signal(uint32_t x, const Op& op) {
  Strand& strand = strands_[x];
  strand.signalled = strand.done;
  const size_t index = signals_.IndexOf(strand.rank, strand.lane, op.endpoint);
  const auto& endpoint = signals_.At(index);
  const uint32_t signal = endpoint.first + made_[index]++ - strand.turn * endpoint.count;
  if (waits_[signal] == 0) return;
  const uint32_t key = signal * kTurns + strand.turn;
  snapshot_[key] = clocks_.Copy(x);
  pending_[key] = waits_[signal];
  for (uint32_t y = blocked_[key]; y != kNone; y = strands_[y].next_blocked) queue_.push_back(y);
}

bool Run::Wait(uint32_t x, const Op& op) {
  Strand& strand = strands_[x];
  const uint32_t signal = signals_.At(signals_.IndexOf(op.peer, op.from_lane, op.endpoint)).first + op.value - 1;
  const uint32_t key = signal * kTurns + strand.turn;
  if (snapshot_[key] == kNone) {
    strand.blocked = key;
    strand.next_blocked = blocked_[key];
    blocked_[key] = x;
    return false;
  }
  const bool notifies = strand.next + 1 < strand.ops->size() && (*strand.ops)[strand.next + 1].kind == OpKind::kNotify;
  if (notifies && strand.turn == 0) before_wait_[x].assign(Clock(x), Clock(x) + strands_.size());
  const uint32_t y = StrandOf(op.peer, op.from_lane);
  const auto ops = static_cast<uint32_t>(strands_[y].ops->size());
  clocks_.JoinCopy(x, snapshot_[key], y, strand.turn * ops + signals_.op_index[signal] + 1);
  if (--pending_[key] == 0) clocks_.Release(snapshot_[key]);
  return true;
}

Status Run::EndTurn(uint32_t x, bool* goes_on) {
  Strand& strand = strands_[x];
  if (plan::MovesAllInOneTurn(s_)) {
    *goes_on = false;
    return ++arrived_[strand.rank] == width_ ? EndRank(strand.rank) : Status();
  }
  if (strand.turn == 0) NoteComplete(x);
  *goes_on = ++strand.turn < kTurns;
  strand.next = 0;
  return Status();
}

// Checks whether lane `lane` of the rank knows that the same lane of every other rank has begun.
void Run::NoteComplete(uint32_t x) {
  const uint32_t lane = x % width_;
  for (int q = 0; q < s_.contract.ranks; ++q) {
    const uint32_t y = static_cast<uint32_t>(q) * width_ + lane;
    if (y != x && Clock(x)[y] == 0) order_->complete = false;
  }
}

Status Run::TooLate(const Event& e, int owner) const {
  return Bad("race: " + WhereOf(e) + " touches a buffer of rank " + std::to_string(owner) +
             " and may do so after that rank's operation has ended");
}

// All lanes of the rank have ended the turn: the operation ends, and the user may touch the buffers.
Status Run::EndRank(int rank) {
  const uint32_t first = static_cast<uint32_t>(rank) * width_;
  const size_t n = strands_.size();
  for (uint32_t x = first; x < first + width_; ++x) clocks_.Set(x, x, strands_[x].done);
  for (uint32_t x = first + 1; x < first + width_; ++x) clocks_.Join(first, x);
  if (strands_[first].turn == 0) {
    ended_[rank] = true;
    for (uint32_t y = 0; y < n; ++y) {
      const uint32_t last = last_remote_[rank * n + y];
      if (last <= Clock(first)[y]) continue;
      return TooLate({y, last - 1}, rank);
    }
    for (int q = 0; q < s_.contract.ranks; ++q) {
      const uint32_t* begin = Clock(first) + static_cast<size_t>(q) * width_;
      if (q != rank && std::all_of(begin, begin + width_, [](uint32_t c) { return c == 0; })) order_->complete = false;
    }
  }
  arrived_[rank] = 0;
  for (uint32_t x = first; x < first + width_; ++x) {
    if (x != first) clocks_.Assign(x, first);
    strands_[x].next = 0;
    if (++strands_[x].turn < kTurns) queue_.push_back(x);
  }
  return Status();
}

// The first wait for an owner's endpoint 0 of lane 0, with which that rank announces its buffers.
void Run::NoteAnnouncement(uint32_t x, const Op& op) {
  if (op.peer == strands_[x].rank || op.from_lane != 0 || op.endpoint != 0) return;
  Event& wait = announced_[size_t(strands_[x].rank) * s_.contract.ranks + op.peer];
  if (wait.strand == kNone) wait = {x, strands_[x].done};
}

// What is awaited is used or announced before the lane waits for something else.
Status Run::Await(uint32_t x, const Op& op) {
  const Strand& strand = strands_[x];
  awaited_[strand.rank][op.chunk] = {x, strand.done};
  if (strand.next + 1 == strand.ops->size() || (*strand.ops)[strand.next + 1].kind != OpKind::kWait) return Status();
  return Bad("late: " + WhereOf({x, strand.done}) + " awaits chunk " + std::to_string(op.chunk) +
             ", but the lane then waits for something else");
}

// The user reads the chunk from now on.
Status Run::Notify(uint32_t x, const Op& op) {
  const Event now = {x, strands_[x].done};
  const int parts = s_.parts / s_.slices;
  Operand o;
  o.buffer = Buffer::kOutput;
  o.rank = static_cast<uint16_t>(op.peer);
  o.block = static_cast<uint16_t>(op.chunk / s_.slices);
  o.part = static_cast<uint16_t>(op.chunk % s_.slices * parts);
  if (op.peer != strands_[x].rank) AXCCL_RETURN_IF_ERROR(Remote(x, {&o, 0, 0}));
  for (int i = 0; i < parts; ++i) {
    const Event& write = history_[PlaceOf(x, o) + static_cast<uint32_t>(i)].write;
    if (write.strand == kNone)
      return Bad("race: " + WhereOf(now) + " notifies " + Place(o, i) + " before it is written");
    if (Before(write, x)) continue;
    return Bad("race: " + WhereOf(now) + " notifies " + Place(o, i) + " while " + WhereOf(write) +
               " may still write it");
  }
  AXCCL_RETURN_IF_ERROR(CheckPrompt(x, o, parts));
  AXCCL_RETURN_IF_ERROR(CheckInputsOf(x, op));
  notified_[op.peer][op.chunk] = true;
  return Status();
}

// The operation before, other notifies aside, must write a part of the chunk, or be the wait that shows that one is
// written.
Status Run::CheckPrompt(uint32_t x, const Operand& o, int parts) {
  const Strand& strand = strands_[x];
  uint32_t before = strand.next;
  while (before > 0 && (*strand.ops)[before - 1].kind == OpKind::kNotify) --before;
  const bool waited = before > 0 && (*strand.ops)[before - 1].kind == OpKind::kWait;
  for (int i = 0; i < parts && before > 0; ++i) {
    const Event& write = history_[PlaceOf(x, o) + static_cast<uint32_t>(i)].write;
    const bool news = waited && write.strand != x && before_wait_[x][write.strand] <= write.position;
    if (news || (write.strand == x && write.position == before - 1)) return Status();
  }
  return Bad("late: " + WhereOf({x, strand.done}) + " notifies " + Place(o, 0) +
             " later than directly after the operation that makes the chunk final");
}

// Of each lane that awaits, the last await that comes before must be of an input that the chunk is made from.
Status Run::CheckInputsOf(uint32_t x, const Op& op) {
  const int block = op.chunk / s_.slices, slice = op.chunk % s_.slices;
  for (const uint32_t y : awaiters_) {
    const uint32_t known = y == x ? strands_[x].done : Clock(x)[y];
    const auto after = std::partition_point(awaits_[y].begin(), awaits_[y].end(),
                                            [known](const Event& await) { return await.position < known; });
    if (after == awaits_[y].begin()) continue;
    const uint32_t last = (after - 1)->strand;
    int input = 0;
    const bool from = plan::SourceBlock(s_.contract, op.peer, block, strands_[y].rank, &input);
    if (from && last == static_cast<uint32_t>(input * s_.slices + slice)) continue;
    return Bad("late: " + WhereOf({x, strands_[x].done}) + " notifies chunk " + std::to_string(op.chunk) + " of rank " +
               std::to_string(op.peer) + " after " + WhereOf({y, (after - 1)->position}) +
               " has awaited another input than it is made from");
  }
  return Status();
}

Status Run::CheckAwaited(uint32_t x, const Operand& o) {
  for (int i = 0; s_.produced && i < o.parts; ++i) {
    const Event& await = awaited_[o.rank][plan::ChunkOf(s_, o.block, o.part + i)];
    if (await.strand != kNone && Before(await, x)) continue;
    return Bad("race: " + WhereOf({x, strands_[x].done}) + " reads " + Place(o, i) + " before rank " +
               std::to_string(o.rank) + " has awaited its chunk");
  }
  return Status();
}

Status Run::CheckNotNotified(uint32_t x, const Operand& o) const {
  for (int i = 0; i < o.parts; ++i) {
    if (!notified_[o.rank][plan::ChunkOf(s_, o.block, o.part + i)]) continue;
    return Bad("race: " + WhereOf({x, strands_[x].done}) + " writes " + Place(o, i) +
               ", whose chunk may be notified already");
  }
  return Status();
}

Status Run::Data(uint32_t x, const Op& op) {
  const Strand& strand = strands_[x];
  if (strand.turn == 0)
    order_->data.push_back({static_cast<uint16_t>(strand.rank), static_cast<uint16_t>(strand.lane), strand.next});
  Status status;
  for (const auto* operands : {&op.src, &op.dst}) {
    for (const Operand& o : *operands) {
      const bool multicast = o.buffer == Buffer::kMulticast;
      plan::ForEachRank(o, s_.contract.ranks, [&](const Operand& each) {
        if (status.ok()) status = Access(x, op, {&each, 0, PlaceOf(x, each), false, multicast}, operands == &op.dst);
      });
    }
  }
  return status;
}

// Reads or writes all parts of an operand; `t` is the first.
Status Run::Access(uint32_t x, const Op& op, Touch t, bool writes) {
  const Strand& strand = strands_[x];
  const Operand& o = *t.operand;
  const bool user = o.buffer != Buffer::kScratch;
  // Buffers of the user: other turns work on other parts, and other operations are behind the user's own order.
  if (user && strand.turn != 0) return Status();
  if (user && o.rank != strand.rank) AXCCL_RETURN_IF_ERROR(Remote(x, t));
  if (s_.slices != 0 && o.buffer == Buffer::kInput) AXCCL_RETURN_IF_ERROR(CheckAwaited(x, o));
  // No operation writes an input that is not also an output.
  if (o.buffer == Buffer::kInput && !places_.IsAliasedInput(o)) return Status();
  // Without direct access a rank's buffers are its own, and each lane has its own span of them.
  if (user && !plan::MovesAllInOneTurn(s_)) return Status();
  if (user && s_.slices != 0 && writes) AXCCL_RETURN_IF_ERROR(CheckNotNotified(x, o));
  t.onto_itself = writes && !plan::Reduces(s_.contract.kind) && places_.IsAliasedInput(op.src[0]) &&
                  places_.Of(o) == places_.Of(op.src[0]);
  for (; t.part < o.parts; ++t.part, ++t.place) AXCCL_RETURN_IF_ERROR(writes ? Write(x, t) : Read(x, t));
  return Status();
}

// An access to another rank's user buffer. It must come after this rank's wait in the first exchange, which announces
// the buffer (and follows the other rank's begin), and before the other rank's end.
Status Run::Remote(uint32_t x, const Touch& t) {
  const Strand& strand = strands_[x];
  const int owner = t.operand->rank;
  // The wait of the first exchange; with slices, there is one wherever it is needed.
  Event announced = {StrandOf(strand.rank, 0), static_cast<uint32_t>(owner < strand.rank ? owner + 1 : owner)};
  if (s_.slices != 0) announced = announced_[size_t(strand.rank) * s_.contract.ranks + owner];
  if (announced.strand == kNone || !Before(announced, x)) {
    const std::string where = WhereOf({x, strand.done}) + " touches " + Place(*t.operand, 0) + " before ";
    const std::string rank = "waited for rank " + std::to_string(owner);
    // With slices, it may know from elsewhere that the owner has begun.
    return Bad(s_.slices == 0 ? "race: " + where + "lane 0 has " + rank + " to begin"
                              : "unannounced: " + where + "it has " + rank + " to announce its buffers");
  }
  if (ended_[owner]) {
    return TooLate({x, strand.done}, owner);
  }
  last_remote_[owner * strands_.size() + x] = strand.done + 1;
  return Status();
}

Status Run::Read(uint32_t x, const Touch& t) {
  History& h = history_[t.place];
  const uint32_t position = strands_[x].done;
  const bool of_input = t.operand->buffer == Buffer::kInput;
  // Out of place, an input and an output are different memory; in place, a copy onto itself has no effect.
  const Event& write = of_input ? h.replacement : h.write;
  if (write.strand != kNone) {
    if (!Before(write, x)) {
      return Race(x, t, "reads", write, "may write it at the same time", of_input);
    }
    if (Mixes(x, t, h.write, h.multicast)) return Mixed(x, t, "reads", "written");
    const bool is_inline = t.operand->buffer == Buffer::kScratch && s_.inline_endpoint[t.operand->part + t.part] >= 0;
    if (is_inline && h.write.strand != x && (h.published == kNone || Clock(x)[h.write.strand] <= h.published)) {
      return Bad("race: " + WhereOf({x, position}) + " reads the inline slot " + Place(*t.operand, t.part) +
                 " before the signal of endpoint " + std::to_string(s_.inline_endpoint[t.operand->part + t.part]) +
                 " that publishes it");
    }
  }
  if (h.reads != kNone) {
    Reads::Node& last = reads_[h.reads];
    if (last.event.strand == x && last.of_input == of_input && last.multicast == t.multicast) {
      last.event.position = position;
      return Status();
    }
  }
  reads_.Add(&h.reads, {x, position}, of_input, t.multicast);
  return Status();
}

Status Run::Write(uint32_t x, const Touch& t) {
  History& h = history_[t.place];
  if (h.write.strand != kNone && !Before(h.write, x)) return Race(x, t, "writes", h.write, "may still write it", false);
  if (h.write.strand != kNone && Mixes(x, t, h.write, h.multicast)) return Mixed(x, t, "writes", "written");
  uint32_t last = kNone;
  for (uint32_t i = h.reads; i != kNone; i = reads_[i].next) {
    last = i;
    const Reads::Node& read = reads_[i];
    if (read.of_input && t.onto_itself) continue;
    if (!Before(read.event, x)) return Race(x, t, "writes", read.event, "may still read it", read.of_input);
    if (Mixes(x, t, read.event, read.multicast)) return Mixed(x, t, "writes", "read");
  }
  h.write = {x, strands_[x].done};
  if (!t.onto_itself) {
    reads_.Clear(&h.reads, last);
    h.replacement = h.write;
  }
  h.multicast = t.multicast;
  h.published = Publication(x, *t.operand, t.part);
  return Status();
}

// Whether the strand has made another access to the slot by the other way without a signal since. The two ways are not
// ordered by themselves.
bool Run::Mixes(uint32_t x, const Touch& t, const Event& other, bool multicast) const {
  return t.multicast != multicast && other.strand == x && strands_[x].signalled <= other.position;
}

Status Run::Mixed(uint32_t x, const Touch& t, const char* does, const char* done) const {
  return Bad("race: " + WhereOf({x, strands_[x].done}) + " " + does + " " + Place(*t.operand, t.part) +
             (t.multicast ? " as one of all ranks'" : " by itself") + ", which the lane has " + done +
             (t.multicast ? " by itself" : " as one of all ranks'") + " without a signal since");
}

Status Run::Race(uint32_t x, const Touch& t, const char* does, const Event& other, const char* other_does,
                 bool in_place) const {
  const uint32_t other_turn = other.position / static_cast<uint32_t>(strands_[other.strand].ops->size());
  const uint32_t turn = strands_[x].turn;
  return Bad("race: " + WhereOf({x, strands_[x].done}) + " " + does + " " + Place(*t.operand, t.part) + " while " +
             WhereOf(other) + " " + other_does +
             (in_place ? " when rank " + std::to_string(t.operand->rank) + " runs in place" : std::string()) +
             (other_turn < turn   ? " in an earlier turn"
              : other_turn > turn ? " in a later turn"
                                  : ""));
}

// The position of the first signal of the slot's endpoint after the current operation.
uint32_t Run::Publication(uint32_t x, const Operand& o, int part) const {
  if (o.buffer != Buffer::kScratch || s_.inline_endpoint[o.part + part] < 0) return 0;
  const Strand& strand = strands_[x];
  for (uint32_t i = strand.next + 1; i < strand.ops->size(); ++i) {
    const Op& op = (*strand.ops)[i];
    if (op.kind == OpKind::kSignal && op.endpoint == s_.inline_endpoint[o.part + part]) {
      return strand.done - strand.next + i;
    }
  }
  return kNone;
}

// The strand that must go on before strand x makes its next signal: itself, or, where it has ended a turn and the turns
// of its rank are joined, another lane of the rank.
uint32_t Run::Culprit(uint32_t x) const {
  if (strands_[x].blocked != kNone) return x;
  x -= x % width_;
  while (strands_[x].blocked == kNone) ++x;
  return x;
}

// Every blocked strand waits for a signal of a strand that is held back, too; follows them until one occurs again.
Status Run::Deadlock() const {
  std::vector<uint32_t> owner(waits_.size(), 0);
  for (uint32_t x = 0; x < strands_.size(); ++x) {
    for (int e = 0; e < s_.endpoints; ++e) {
      const auto& endpoint = signals_.At(signals_.IndexOf(strands_[x].rank, strands_[x].lane, e));
      for (uint32_t v = 0; v < endpoint.count; ++v) owner[endpoint.first + v] = x;
    }
  }
  uint32_t x = 0;
  while (strands_[x].blocked == kNone) ++x;
  std::vector<bool> seen(strands_.size(), false);
  for (; !seen[x]; x = Culprit(owner[strands_[x].blocked / kTurns])) seen[x] = true;
  std::string text = "deadlock: ";
  const uint32_t start = x;
  for (int steps = 0;; ++steps) {
    const Strand& strand = strands_[x];
    const uint32_t signal = strand.blocked / kTurns;
    const uint32_t y = owner[signal];
    text += WhereOf({x, strand.done}) + " waits for " + WhereOf({y, signals_.op_index[signal]});
    x = Culprit(y);
    if (x == start) return Bad(text + ", and so round");
    if (steps == 7) return Bad(text + ", and so on in a circle");
    text += ", but before that ";
  }
}

}  // namespace

Status CheckConcurrency(const Schedule& schedule, const SignalTable& signals, const std::vector<int>& lanes,
                        Order* order) {
  return Run(schedule, signals, lanes, order).Go();
}

}  // namespace axccl::verify
