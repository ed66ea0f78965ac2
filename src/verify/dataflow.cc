#include "src/verify/dataflow.h"

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "src/verify/describe.h"
#include "src/verify/folds.h"
#include "src/verify/places.h"
#include "src/verify/size.h"

namespace axccl::verify {

using plan::Buffer;
using plan::Contract;
using plan::Kind;
using plan::Op;
using plan::Operand;
using plan::OpKind;
using plan::Schedule;

namespace {

constexpr uint32_t kNothing = std::numeric_limits<uint32_t>::max();

struct Value {
  uint32_t source = kNothing;  // the rank that it comes from; in kinds that reduce, a fold of Folds
  uint16_t block = 0;          // of the input
  uint16_t part = 0;
  bool finished = false;

  bool defined() const { return source != kNothing; }
  friend bool operator==(const Value&, const Value&) = default;
};

class Walk {
 public:
  Walk(const Schedule& s, int lane)
      : s_(s),
        lane_(lane),
        reduces_(plan::Reduces(s.contract.kind)),
        places_(s),
        slots_apart_(s.slices != 0 ? places_.slots() : 0),
        folds_(s.contract.ranks),
        values_(places_.size() + size_t{slots_apart_} * (s.lanes - 1u)),
        writer_(values_.size(), 0),
        written_part_(values_.size(), 0) {}

  Status Do(const OpRef& ref);
  Status CheckOutputs() const;
  bool InGroupOrder() const;

 private:
  Status CheckSameBits(int rank, int part) const;
  Status Bad(const std::string& what) const {
    return MakeStatus(Code::kInvalidArgument, "dataflow: %s %s", Where(s_, at_.rank, at_.lane, at_.index).c_str(),
                      what.c_str());
  }
  std::string Describe(const Value& v) const;

  // What the operand stands for, until the next call.
  std::span<const Operand> EachOf(const Operand& o) {
    each_.clear();
    plan::ForEachRank(o, s_.contract.ranks, [this](const Operand& one) { each_.push_back(one); });
    return each_;
  }
  Status MarkDestinations(const Op& op);
  Status MarkDestination(const Operand& o);
  Status CheckOverlap(const Operand& o) const;
  Status Read(const Operand& o, int part, Value* value) const;
  Status ReadInput(const Operand& o, int part, Value* value) const;
  Status Fold(const Op& op, int part, Value* value);
  Status AddTerm(const Operand& o, int part, Value* value);
  // `stored`: another operation has made the fold.
  Status Finish(Value* value, bool stored);
  Status Write(const Operand& o, int part, const Value& value);
  Value Expected(int rank, int block, int part) const;
  // Each lane has slots of its own.
  uint32_t PlaceOf(const Operand& o) const {
    return places_.Of(o) + (o.buffer == Buffer::kScratch ? slots_apart_ * at_.lane : 0);
  }

  const Schedule& s_;
  const int lane_;
  const bool reduces_;
  const Places places_;
  const uint32_t slots_apart_;  // if the walk has all lanes
  Folds folds_;
  OpRef at_;
  uint32_t step_ = 0;  // operations so far
  std::vector<Value> values_;
  // The last operation that has the place as destination, by step, and the number of the part that the place is there.
  std::vector<uint32_t> writer_;
  std::vector<uint16_t> written_part_;
  std::vector<uint32_t> terms_;  // terms of the current fold
  std::vector<Operand> each_;
};

std::string Walk::Describe(const Value& v) const {
  if (!v.defined()) return "nothing";
  const std::string what = "block " + std::to_string(v.block) + ".part " + std::to_string(v.part);
  if (!reduces_) return "input " + what + " of rank " + std::to_string(v.source);
  return (v.finished ? "the finished fold of " : "the fold of ") + what + " of ranks " + folds_.ToString(v.source);
}

Status Walk::Do(const OpRef& ref) {
  at_ = ref;
  ++step_;
  const Op& op = s_.program[ref.rank][ref.lane].ops[ref.index];
  AXCCL_RETURN_IF_ERROR(MarkDestinations(op));
  for (const Operand& o : op.src) {
    for (const Operand& each : EachOf(o)) AXCCL_RETURN_IF_ERROR(CheckOverlap(each));
  }
  // Moving part by part equals reading all sources before writing all destinations: CheckOverlap has checked that no
  // part of a source is a destination of another part.
  for (int i = 0; i < op.src[0].parts; ++i) {
    Value value;
    AXCCL_RETURN_IF_ERROR(op.kind == OpKind::kReduce ? Fold(op, i, &value) : Read(op.src[0], i, &value));
    const bool stored = op.kind == OpKind::kCopy || terms_.size() == 1;  // before, if it is more than a contribution
    if (op.kind == OpKind::kCopy && reduces_) value.source = folds_.Rounded(value.source);
    if (op.finish) AXCCL_RETURN_IF_ERROR(Finish(&value, stored && s_.contract.ranks > 1));
    for (const Operand& o : op.dst) {
      for (const Operand& each : EachOf(o)) AXCCL_RETURN_IF_ERROR(Write(each, i, value));
    }
  }
  return folds_.bytes() > kMaxHeldBytes ? TooLarge() : Status();
}

Status Walk::MarkDestinations(const Op& op) {
  for (const Operand& o : op.dst) {
    for (const Operand& each : EachOf(o)) AXCCL_RETURN_IF_ERROR(MarkDestination(each));
  }
  return Status();
}

Status Walk::MarkDestination(const Operand& o) {
  const uint32_t place = PlaceOf(o);
  for (int i = 0; i < o.parts; ++i) {
    if (writer_[place + i] == step_) return Bad("writes " + Place(o, i) + " twice");
    writer_[place + i] = step_;
    written_part_[place + i] = static_cast<uint16_t>(i);
  }
  return Status();
}

Status Walk::CheckOverlap(const Operand& o) const {
  const uint32_t place = PlaceOf(o);
  for (int i = 0; i < o.parts; ++i) {
    if (writer_[place + i] == step_ && written_part_[place + i] != i) {
      return Bad("reads " + Place(o, i) + ", which it also writes, but as another of its parts");
    }
  }
  return Status();
}

Status Walk::Read(const Operand& o, int part, Value* value) const {
  if (o.buffer == Buffer::kInput) return ReadInput(o, part, value);
  *value = values_[PlaceOf(o) + part];
  if (!value->defined()) return Bad("reads " + Place(o, part) + ", which nothing has written in this turn");
  return Status();
}

Status Walk::ReadInput(const Operand& o, int part, Value* value) const {
  *value = Value{o.rank, o.block, static_cast<uint16_t>(o.part + part), false};
  if (!places_.IsAliasedInput(o)) return Status();
  // The place is the same memory as an output when the rank runs in place. In kinds that reduce, not even the rank's
  // own contribution may have been written there: it would be scaled a second time.
  const Value& output = values_[PlaceOf(o) + part];
  if (!output.defined() || (!reduces_ && output == *value)) return Status();
  return Bad("reads " + Place(o, part) + " after it was overwritten with " + Describe(output) + " if rank " +
             std::to_string(o.rank) + " runs in place");
}

Status Walk::Fold(const Op& op, int part, Value* value) {
  terms_.clear();
  for (const Operand& o : op.src) {
    for (const Operand& each : EachOf(o)) AXCCL_RETURN_IF_ERROR(AddTerm(each, part, value));
  }
  const bool in_any_order = op.src[0].buffer == Buffer::kMulticast;
  if (terms_.size() == 1) {
    value->source = folds_.Rounded(terms_[0]);
  } else if (!(in_any_order ? folds_.CombineInAnyOrder(terms_, &value->source)
                            : folds_.Combine(terms_, &value->source))) {
    std::string list;
    for (uint32_t t : terms_) list += " " + folds_.ToString(t);
    return Bad("adds a rank twice: its sources hold the folds of ranks" + list);
  }
  return Status();
}

Status Walk::AddTerm(const Operand& o, int part, Value* value) {
  Value v;
  AXCCL_RETURN_IF_ERROR(Read(o, part, &v));
  if (v.finished) return Bad("reduces " + Describe(v) + " in " + Place(o, part));
  if (terms_.empty()) *value = v;
  if (v.block != value->block || v.part != value->part)
    return Bad("reduces " + Describe(v) + " in " + Place(o, part) + " with " + Describe(*value));
  terms_.push_back(v.source);
  return Status();
}

Status Walk::Finish(Value* value, bool stored) {
  if (value->finished) return Bad("finishes " + Describe(*value) + " once more");
  if (!folds_.IsFull(value->source)) return Bad("finishes " + Describe(*value) + "; ranks are missing");
  if (stored) value->source = folds_.Scaled(value->source);
  value->finished = true;
  return Status();
}

Status Walk::Write(const Operand& o, int part, const Value& value) {
  // Parts may differ in size, so this also applies where an output holds data that is only passing through.
  if (o.buffer == Buffer::kOutput && value.part != o.part + part) {
    return Bad("writes " + Describe(value) + " to " + Place(o, part) + ", another part");
  }
  values_[PlaceOf(o) + part] = value;
  return Status();
}

// `source` is kNothing for a fold, which must contain all ranks.
Value Walk::Expected(int rank, int block, int part) const {
  const auto p = static_cast<uint16_t>(part);
  const auto own = static_cast<uint16_t>(rank);
  switch (s_.contract.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      return {kNothing, 0, p, true};
    case Kind::kReduceScatter:
      return {kNothing, own, p, true};
    case Kind::kBroadcast:
    case Kind::kSendRecv:
      return {static_cast<uint32_t>(s_.contract.root), 0, p, false};
    case Kind::kAllGather:
    case Kind::kGather:
      return {static_cast<uint32_t>(block), 0, p, false};
    case Kind::kAllToAll:
      return {static_cast<uint32_t>(block), own, p, false};
    case Kind::kScatter:
      return {static_cast<uint32_t>(s_.contract.root), own, p, false};
    case Kind::kBarrier:
      break;
  }
  return {};
}

// All ranks must get the same bits, so they must have computed the same expression (or copied it).
Status Walk::CheckSameBits(int rank, int part) const {
  if (values_[places_.Output(rank, 0) + part].source == values_[places_.Output(0, 0) + part].source) return Status();
  return MakeStatus(
      Code::kInvalidArgument,
      "dataflow: lane %d folds output block 0.part %d of rank 0 and of rank %d in different orders or with "
      "different roundings; all ranks must see the same bits",
      lane_, part, rank);
}

Status Walk::CheckOutputs() const {
  for (int r = 0; r < s_.contract.ranks; ++r) {
    for (int b = 0; b < plan::OutputBlocks(s_.contract, r); ++b) {
      for (int p = 0; p < s_.parts; ++p) {
        const Value& v = values_[places_.Output(r, b) + p];
        Value expected = Expected(r, b, p);
        if (reduces_ && v.defined() && folds_.IsFull(v.source)) expected.source = v.source;
        if (v.defined() && v == expected) {
          if (s_.contract.kind == Kind::kAllReduce && r > 0) AXCCL_RETURN_IF_ERROR(CheckSameBits(r, p));
          continue;
        }
        const Operand o = {Buffer::kOutput, static_cast<uint16_t>(r), static_cast<uint16_t>(b), 0, 1};
        return MakeStatus(Code::kInvalidArgument, "dataflow: lane %d leaves %s in %s, which must end as %s", lane_,
                          Describe(v).c_str(), Place(o, p).c_str(),
                          reduces_ ? "the finished fold of its block over all ranks" : Describe(expected).c_str());
      }
    }
  }
  return Status();
}

bool Walk::InGroupOrder() const {
  for (int r = 0; reduces_ && r < s_.contract.ranks; ++r) {
    for (int p = 0; p < s_.parts && plan::OutputBlocks(s_.contract, r) != 0; ++p) {
      if (!folds_.IsInOrder(values_[places_.Output(r, 0) + p].source)) return false;
    }
  }
  return true;
}

}  // namespace

Status CheckDataflow(const Schedule& schedule, const Order& order, int lane, bool* group_order) {
  Walk walk(schedule, lane);
  for (const OpRef& ref : order.data) {
    if (ref.lane == lane || schedule.slices != 0) AXCCL_RETURN_IF_ERROR(walk.Do(ref));
  }
  AXCCL_RETURN_IF_ERROR(walk.CheckOutputs());
  *group_order = walk.InGroupOrder();
  return Status();
}

}  // namespace axccl::verify
