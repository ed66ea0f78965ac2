#include "src/verify/structure.h"

#include <algorithm>
#include <limits>
#include <string>

#include "src/plan/text.h"
#include "src/verify/describe.h"
#include "src/verify/size.h"

namespace axccl::verify {

using plan::Buffer;
using plan::Contract;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

namespace {

constexpr uint32_t kMaxSignals = std::numeric_limits<uint16_t>::max();

Status Broken(const std::string& what) { return MakeStatus(Code::kInvalidArgument, "structure: %s", what.c_str()); }

Status CheckContract(const Contract& c) {
  if (static_cast<int>(c.kind) >= plan::kNumKinds) return Broken("the kind is none of the known collectives");
  if (c.ranks < 1 || c.ranks > kMaxRanks) {
    return Broken(std::to_string(c.ranks) + " ranks; must be 1 to " + std::to_string(kMaxRanks));
  }
  if (c.root < 0 || c.root >= c.ranks || (!plan::HasRoot(c.kind) && c.root != 0)) {
    return Broken("root " + std::to_string(c.root) + "; must be a rank of the group, and 0 where the kind has no root");
  }
  if (c.kind == plan::Kind::kSendRecv && c.ranks != 2)
    return Broken("send_recv needs 2 ranks, the sender and the receiver");
  return Status();
}

Status CheckSlices(const Schedule& s) {
  if (s.slices == 0) return s.produced ? Broken("inputs are produced, but there are no slices to produce") : Status();
  if (s.parts % s.slices != 0)
    return Broken(std::to_string(s.parts) + " parts cannot be divided into " + std::to_string(s.slices) + " slices");
  for (int r = 0; r < s.contract.ranks; ++r) {
    const int blocks = std::max(plan::InputBlocks(s.contract, r), plan::OutputBlocks(s.contract, r));
    if (int64_t{blocks} * s.slices <= plan::kMaxChunks) continue;
    return Broken("rank " + std::to_string(r) + " has more than " + std::to_string(plan::kMaxChunks) + " chunks");
  }
  return Status();
}

Status CheckShape(const Schedule& s) {
  const Contract& c = s.contract;
  if (!plan::IsAlgorithmName(s.algorithm)) return Broken("the algorithm's name must be 1 to 32 of [a-z0-9_-]");
  if (!s.placement.is_flat() && s.placement.ranks() != c.ranks)
    return Broken("the placement is of " + std::to_string(s.placement.ranks()) + " ranks, the contract of " +
                  std::to_string(c.ranks));
  if (s.parts < 1 || s.lanes < 1) return Broken("parts and lanes must be at least 1");
  if (s.program.size() != static_cast<size_t>(c.ranks)) {
    return Broken("programs for " + std::to_string(s.program.size()) + " ranks; the contract has " +
                  std::to_string(c.ranks));
  }
  for (size_t r = 0; r < s.program.size(); ++r) {
    if (s.program[r].size() != s.lanes)
      return Broken("rank " + std::to_string(r) + " does not have one program a lane");
  }
  AXCCL_RETURN_IF_ERROR(CheckSlices(s));
  return Fits(s, s.lanes, plan::MovesAllInOneTurn(s) ? s.lanes : 1) ? Status() : TooLarge();
}

Status CheckInline(const Schedule& s) {
  if (s.inline_endpoint.size() != s.slots) return Broken("inline_endpoint must have one entry a slot");
  std::vector<bool> taken(s.endpoints, false);
  for (size_t i = 0; i < s.inline_endpoint.size(); ++i) {
    const int e = s.inline_endpoint[i];
    if (e == -1) continue;
    if (e < 0 || e >= s.endpoints)
      return Broken("slot " + std::to_string(i) + " is inline in an endpoint that does not exist");
    if (taken[e]) return Broken("two slots are inline in endpoint " + std::to_string(e) + "; there is room for one");
    taken[e] = true;
  }
  return Status();
}

Status CheckIds(const Schedule& s) {
  std::vector<uint32_t> ids;
  for (const auto& lanes : s.program) {
    for (const auto& lane : lanes) {
      for (const Op& op : lane.ops) ids.push_back(op.id);
    }
  }
  if (!std::is_sorted(ids.begin(), ids.end())) std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  return twice == ids.end() ? Status() : Broken("operation id " + std::to_string(*twice) + " is used twice");
}

// Checks one operation at a time, without regard to the others.
class OpChecker {
 public:
  OpChecker(const Schedule& schedule, int rank, int lane) : s_(schedule), rank_(rank), lane_(lane) {}

  Status Check(size_t index) {
    index_ = index;
    const Op& op = s_.program[rank_][lane_].ops[index];
    switch (op.kind) {
      case OpKind::kCopy:
      case OpKind::kReduce:
        return CheckData(op);
      case OpKind::kSignal:
      case OpKind::kWait:
        return CheckSync(op);
      case OpKind::kNop:
        return op == Unused(op) ? Status() : Bad("is a nop with fields set");
      case OpKind::kAwait:
        return CheckAwait(op);
      case OpKind::kNotify:
        return CheckNotify(op);
    }
    return Bad("has an unknown kind");
  }

 private:
  Status Bad(const std::string& what) const { return Broken(Where(s_, rank_, lane_, index_) + " " + what); }

  // The operation, with every field cleared that its kind does not use.
  static Op Unused(const Op& op) {
    Op clean;
    clean.kind = op.kind;
    clean.id = op.id;
    return clean;
  }

  Status CheckAwait(const Op& op) const {
    Op clean = Unused(op);
    clean.chunk = op.chunk;
    if (op != clean) return Bad("awaits a chunk but has fields of other operations");
    if (!s_.produced) return Bad("awaits a chunk, but the inputs are ready from the beginning");
    return CheckChunk(op, plan::InputBlocks(s_.contract, rank_), "input");
  }

  Status CheckNotify(const Op& op) const {
    Op clean = Unused(op);
    clean.chunk = op.chunk, clean.peer = op.peer;
    if (op != clean) return Bad("notifies but has fields of other operations");
    if (op.peer < 0 || op.peer >= s_.contract.ranks)
      return Bad("names rank " + std::to_string(op.peer) + ", which does not exist");
    if (op.peer != rank_ && !s_.direct) return Bad("notifies another rank, but the schedule is not direct");
    return CheckChunk(op, plan::OutputBlocks(s_.contract, op.peer), "output");
  }

  Status CheckChunk(const Op& op, int blocks, const char* side) const {
    if (op.chunk < blocks * s_.slices) return Status();
    return Bad("names " + std::string(side) + " chunk " + std::to_string(op.chunk) + ", which does not exist");
  }

  Status CheckSync(const Op& op) const {
    const bool wait = op.kind == OpKind::kWait;
    if (op.finish || !op.dst.empty() || !op.src.empty()) return Bad("synchronises but has operands");
    if (op.endpoint >= s_.endpoints)
      return Bad("names endpoint " + std::to_string(op.endpoint) + ", which does not exist");
    const bool peer_ok = (op.peer >= 0 && op.peer < s_.contract.ranks) || (!wait && op.peer == plan::kAllPeers);
    if (!peer_ok) return Bad("names rank " + std::to_string(op.peer) + ", which does not exist");
    if (!wait) return op.from_lane == 0 && op.value == 0 ? Status() : Bad("is a signal with fields of a wait");
    if (op.value == 0) return Bad("waits for value 0, which is there before the turn");
    if (op.from_lane >= s_.lanes)
      return Bad("waits for lane " + std::to_string(op.from_lane) + ", which does not exist");
    const bool own = op.from_lane == lane_;
    if (op.peer == rank_ ? own : !own && s_.slices == 0) {
      return Bad("waits for rank " + std::to_string(op.peer) + " lane " + std::to_string(op.from_lane) +
                 "; must be the own lane of another rank, or another lane of the own rank");
    }
    return Status();
  }

  Status CheckData(const Op& op) const {
    if (op.peer != 0 || op.from_lane != 0 || op.endpoint != 0 || op.value != 0) {
      return Bad("moves data but has fields of a signal or wait");
    }
    if (op.dst.empty() || op.src.empty()) return Bad("needs a destination and a source");
    const bool reduces = plan::Reduces(s_.contract.kind);
    if (op.kind == OpKind::kCopy && op.src.size() != 1) return Bad("is a copy of more than one source");
    if (op.kind == OpKind::kReduce && !reduces) return Bad("reduces, which this kind of collective never does");
    if (op.finish && !reduces) return Bad("finishes, but this kind of collective has no folds");
    for (const Operand& o : op.dst) {
      AXCCL_RETURN_IF_ERROR(CheckOperand(o, op.src[0].parts));
      AXCCL_RETURN_IF_ERROR(CheckDestination(o));
    }
    for (const Operand& o : op.src) {
      AXCCL_RETURN_IF_ERROR(CheckOperand(o, op.src[0].parts));
      if (o.buffer == Buffer::kMulticast && (op.kind != OpKind::kReduce || op.src.size() != 1))
        return Bad("reads " + Place(o, 0) + "; only a reduction may, of which that is the only source");
    }
    return Status();
  }

  Status CheckDestination(const Operand& o) const {
    if (o.buffer == Buffer::kInput) return Bad("writes " + Place(o, 0) + "; inputs are read only");
    if (o.buffer != Buffer::kScratch || o.rank == rank_) return Status();
    for (int i = 0; i < o.parts; ++i) {
      if (s_.inline_endpoint[o.part + i] >= 0) {
        return Bad("writes " + Place(o, i) + ", an inline slot of another rank; only the owner may");
      }
    }
    return Status();
  }

  Status CheckOperand(const Operand& o, int parts) const {
    const Contract& c = s_.contract;
    if (o.rank >= c.ranks) return Bad("has an operand on rank " + std::to_string(o.rank) + ", which does not exist");
    if (o.parts != parts || parts == 0) return Bad("has operands of different or no parts");
    if (plan::IsSlot(o)) {
      if (o.block != 0) return Bad("names a block of scratch; must be 0");
      if (o.part + o.parts > s_.slots) return Bad("names " + Place(o, o.parts - 1) + ", which does not exist");
      return o.buffer == Buffer::kMulticast ? CheckMulticast(o) : Status();
    }
    if (o.buffer != Buffer::kInput && o.buffer != Buffer::kOutput) return Bad("has an operand of an unknown buffer");
    const int blocks = o.buffer == Buffer::kInput ? plan::InputBlocks(c, o.rank) : plan::OutputBlocks(c, o.rank);
    if (o.block >= blocks || o.part + o.parts > s_.parts) {
      return Bad("names " + Place(o, o.parts - 1) + ", which does not exist");
    }
    if (!s_.direct && o.rank != rank_)
      return Bad("touches " + Place(o, 0) + " of another rank, but the schedule is not direct");
    return Status();
  }

  Status CheckMulticast(const Operand& o) const {
    if (o.rank != 0) return Bad("names a rank of slots of all ranks; must be 0");
    if (MovesAllInOneTurn(s_)) return Bad("uses " + Place(o, 0) + "; a schedule that is direct or has slices may not");
    for (int i = 0; i < o.parts; ++i) {
      if (s_.inline_endpoint[o.part + i] >= 0)
        return Bad("uses " + Place(o, i) + ", which is inline; only one rank may");
    }
    return Status();
  }

  const Schedule& s_;
  const int rank_;
  const int lane_;
  size_t index_ = 0;
};

Status CheckOps(const Schedule& s) {
  for (int r = 0; r < s.contract.ranks; ++r) {
    for (int l = 0; l < s.lanes; ++l) {
      OpChecker checker(s, r, l);
      for (size_t i = 0; i < s.program[r][l].ops.size(); ++i) AXCCL_RETURN_IF_ERROR(checker.Check(i));
    }
  }
  return Status();
}

// Calls f(rank, lane, index, op) for every operation of `kind`.
template <class F>
Status ForEach(const Schedule& s, OpKind kind, F f) {
  for (int r = 0; r < s.contract.ranks; ++r) {
    for (int l = 0; l < s.lanes; ++l) {
      const auto& ops = s.program[r][l].ops;
      for (size_t i = 0; i < ops.size(); ++i) {
        if (ops[i].kind == kind) AXCCL_RETURN_IF_ERROR(f(r, l, i, ops[i]));
      }
    }
  }
  return Status();
}

// Checks that each chunk is awaited by its owner, or notified to its owner, exactly once. `number` [rank][chunk].
Status CheckOnce(const std::vector<std::vector<int>>& number, const char* side, const char* what) {
  for (size_t r = 0; r < number.size(); ++r) {
    const auto wrong = std::find_if(number[r].begin(), number[r].end(), [](int n) { return n != 1; });
    if (wrong == number[r].end()) continue;
    return Broken(std::string(side) + " chunk " + std::to_string(wrong - number[r].begin()) + " of rank " +
                  std::to_string(r) + " is " + what + " " + std::to_string(*wrong) + " times; must be once");
  }
  return Status();
}

Status CheckChunks(const Schedule& s) {
  if (s.slices == 0) return Status();
  std::vector<std::vector<int>> awaits, notifies;
  for (int r = 0; r < s.contract.ranks; ++r) {
    const int inputs = s.produced ? plan::InputBlocks(s.contract, r) : 0;
    awaits.emplace_back(static_cast<size_t>(inputs) * s.slices);
    notifies.emplace_back(static_cast<size_t>(plan::OutputBlocks(s.contract, r)) * s.slices);
  }
  (void)ForEach(s, OpKind::kAwait, [&](int r, int, size_t, const Op& op) { return ++awaits[r][op.chunk], Status(); });
  (void)ForEach(s, OpKind::kNotify,
                [&](int, int, size_t, const Op& op) { return ++notifies[op.peer][op.chunk], Status(); });
  AXCCL_RETURN_IF_ERROR(CheckOnce(awaits, "input", "awaited"));
  return CheckOnce(notifies, "output", "notified");
}

Status CollectSignals(const Schedule& s, SignalTable* t) {
  AXCCL_RETURN_IF_ERROR(ForEach(s, OpKind::kSignal, [&](int r, int l, size_t i, const Op& op) {
    auto& e = t->At(t->IndexOf(r, l, op.endpoint));
    if (e.count != 0 && e.peer != op.peer) {
      return Broken(Where(s, r, l, i) + " signals endpoint " + std::to_string(op.endpoint) + " to rank " +
                    std::to_string(op.peer) + " (-1 = all), earlier signals went to " + std::to_string(e.peer));
    }
    if (e.count == kMaxSignals)
      return Broken(Where(s, r, l, i) + " is signal 65536 of its endpoint; 65535 fit in a turn");
    e.peer = op.peer;
    ++e.count;
    return Status();
  }));
  uint32_t total = 0;
  for (size_t i = 0; i < t->size(); ++i) {
    t->At(i).first = total;
    total += t->At(i).count;
    t->At(i).count = 0;
  }
  t->op_index.resize(total);
  return ForEach(s, OpKind::kSignal, [&](int r, int l, size_t i, const Op& op) {
    auto& e = t->At(t->IndexOf(r, l, op.endpoint));
    t->op_index[e.first + e.count++] = static_cast<uint32_t>(i);
    return Status();
  });
}

// Checks that every wait has a cause, and that every destination waits for the last signal of an endpoint.
Status MatchWaits(const Schedule& s, const SignalTable& t) {
  // Ranks come in ascending order, so remembering the last destination counted is enough to count each once.
  std::vector<int32_t> heard(t.size(), 0), last(t.size(), -1);
  AXCCL_RETURN_IF_ERROR(ForEach(s, OpKind::kWait, [&](int r, int l, size_t i, const Op& op) {
    const size_t index = t.IndexOf(op.peer, op.from_lane, op.endpoint);
    const auto& e = t.At(index);
    if (op.value > e.count) {
      return MakeStatus(
          Code::kInvalidArgument,
          "deadlock: %s waits for value %d of rank %d lane %d endpoint %d, which is signalled %u times a turn",
          Where(s, r, l, i).c_str(), op.value, op.peer, op.from_lane, op.endpoint, e.count);
    }
    const bool reached = e.peer == plan::kAllPeers ? op.peer != r : e.peer == r;
    if (!reached) {
      return Broken(Where(s, r, l, i) + " waits for rank " + std::to_string(op.peer) + " endpoint " +
                    std::to_string(op.endpoint) + ", which is not signalled to this rank");
    }
    if (op.value == e.count && last[index] != r) {
      last[index] = r;
      ++heard[index];
    }
    return Status();
  }));
  return ForEach(s, OpKind::kSignal, [&](int r, int l, size_t i, const Op& op) {
    const size_t index = t.IndexOf(r, l, op.endpoint);
    const auto& e = t.At(index);
    const int destinations = e.peer == plan::kAllPeers ? s.contract.ranks - 1 : 1;
    if (t.op_index[e.first + e.count - 1] != i || heard[index] == destinations) return Status();
    return MakeStatus(Code::kInvalidArgument,
                      "leak: %s signals endpoint %d to %d ranks, but only %d wait for its value %u",
                      Where(s, r, l, i).c_str(), op.endpoint, destinations, heard[index], e.count);
  });
}

// Lanes above 0 must do nothing before lane 0 has passed the first exchange. If that exchange shows that buffers cannot
// be reached, the executor runs another plan instead, on all lanes, whose lines and turns then start afresh.
Status CheckTokens(const Schedule& s, int rank) {
  for (int l = 1; l < s.lanes; ++l) {
    const auto& ops = s.program[rank][l].ops;
    const auto first = std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.kind != OpKind::kNop; });
    if (first != ops.end() && first->kind == OpKind::kWait && first->peer == rank && first->from_lane == 0) continue;
    return Broken(
        "rank " + std::to_string(rank) + " lane " + std::to_string(l) +
        " of a direct schedule must begin with a wait for a token of lane 0, which gives it after the exchange "
        "of addresses");
  }
  return Status();
}

// With slices, ranks wait for each other's announcements wherever they need them (concurrency.h), but nobody announces
// its buffers later than it can.
Status CheckAnnouncements(const Schedule& s) {
  for (int r = 0; r < s.contract.ranks; ++r) {
    const auto& ops = s.program[r][0].ops;
    const auto announces = [](const Op& op) { return op.kind == OpKind::kSignal && op.endpoint == 0; };
    const auto first = std::find_if(ops.begin(), ops.end(), announces);
    if (first == ops.begin() || first == ops.end()) continue;
    return Broken(Where(s, r, 0, static_cast<size_t>(first - ops.begin())) +
                  " announces the rank's buffers; lane 0 must begin with that");
  }
  return Status();
}

// Checks the exchange with which executors announce buffers; see Schedule::direct.
Status CheckPrologue(const Schedule& s) {
  if (!s.direct || s.contract.ranks == 1) return Status();
  if (s.slices != 0) return CheckAnnouncements(s);
  for (int r = 0; r < s.contract.ranks; ++r) {
    const auto& ops = s.program[r][0].ops;
    const auto broken = [&] {
      return Broken("rank " + std::to_string(r) +
                    " lane 0 of a direct schedule must begin with a signal of endpoint 0 to "
                    "all and a wait for its value 1 of every other rank, in ascending order");
    };
    if (ops.size() < static_cast<size_t>(s.contract.ranks)) return broken();
    if (ops[0].kind != OpKind::kSignal || ops[0].peer != plan::kAllPeers || ops[0].endpoint != 0) return broken();
    for (int q = 0, i = 1; q < s.contract.ranks; ++q) {
      if (q == r) continue;
      const Op& op = ops[i++];
      if (op.kind != OpKind::kWait || op.peer != q || op.endpoint != 0 || op.value != 1) return broken();
    }
    AXCCL_RETURN_IF_ERROR(CheckTokens(s, r));
  }
  return Status();
}

}  // namespace

SignalTable::SignalTable(const Schedule& schedule)
    : lanes_(schedule.lanes),
      endpoints_(schedule.endpoints),
      endpoint_(schedule.program.size() * schedule.lanes * schedule.endpoints) {}

Status CheckStructure(const Schedule& schedule, SignalTable* signals) {
  AXCCL_RETURN_IF_ERROR(CheckContract(schedule.contract));
  AXCCL_RETURN_IF_ERROR(CheckShape(schedule));
  AXCCL_RETURN_IF_ERROR(CheckInline(schedule));
  AXCCL_RETURN_IF_ERROR(CheckIds(schedule));
  AXCCL_RETURN_IF_ERROR(CheckOps(schedule));
  AXCCL_RETURN_IF_ERROR(CheckPrologue(schedule));
  AXCCL_RETURN_IF_ERROR(CheckChunks(schedule));
  *signals = SignalTable(schedule);
  AXCCL_RETURN_IF_ERROR(CollectSignals(schedule, signals));
  return MatchWaits(schedule, *signals);
}

}  // namespace axccl::verify
