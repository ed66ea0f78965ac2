#include "src/verify/dataflow.h"

#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "src/verify/describe.h"
#include "src/verify/places.h"

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
  uint32_t source = kNothing;  // the rank it comes from; in kinds that reduce, a set of RankSets
  uint16_t block = 0;          // of the input
  uint16_t part = 0;
  bool finished = false;

  bool defined() const { return source != kNothing; }
  friend bool operator==(const Value&, const Value&) = default;
};

// Sets of ranks by number: set r is {r}, unions get the numbers behind.
class RankSets {
 public:
  explicit RankSets(int ranks) : ranks_(ranks), words_((static_cast<size_t>(ranks) + 63) / 64) {
    bits_.assign(words_ * ranks, 0);
    for (int r = 0; r < ranks; ++r) bits_[words_ * r + r / 64] = uint64_t{1} << (r % 64);
  }

  uint32_t AddEmpty() {
    bits_.resize(bits_.size() + words_, 0);
    return static_cast<uint32_t>(bits_.size() / words_ - 1);
  }
  // False when the two sets meet; `into` is then undefined.
  bool AddDisjoint(uint32_t into, uint32_t set) {
    for (size_t i = 0; i < words_; ++i) {
      if (bits_[into * words_ + i] & bits_[set * words_ + i]) return false;
      bits_[into * words_ + i] |= bits_[set * words_ + i];
    }
    return true;
  }
  int Size(uint32_t set) const {
    int size = 0;
    for (size_t i = 0; i < words_; ++i) size += std::popcount(bits_[set * words_ + i]);
    return size;
  }
  bool IsFull(uint32_t set) const { return Size(set) == ranks_; }
  std::string ToString(uint32_t set) const {
    std::string text = "{";
    for (int r = 0; r < ranks_; ++r) {
      if ((bits_[set * words_ + r / 64] >> (r % 64)) & 1) text += (text.size() > 1 ? " " : "") + std::to_string(r);
    }
    return text + "}";
  }

 private:
  const int ranks_;
  const size_t words_;
  std::vector<uint64_t> bits_;
};

class Walk {
 public:
  Walk(const Schedule& s, int lane)
      : s_(s), lane_(lane), reduces_(plan::Reduces(s.contract.kind)), places_(s), sets_(s.contract.ranks),
        values_(places_.size()), writer_(places_.size(), 0), written_part_(places_.size(), 0) {}

  Status Do(const OpRef& ref);
  Status CheckOutputs() const;

 private:
  Status Bad(const std::string& what) const {
    return MakeStatus(Code::kInvalidArgument, "dataflow: %s %s", Where(s_, at_.rank, at_.lane, at_.index).c_str(),
                      what.c_str());
  }
  std::string Describe(const Value& v) const;

  Status MarkDestinations(const Op& op);
  Status CheckOverlap(const Operand& o) const;
  Status Read(const Operand& o, int part, Value* value) const;
  Status ReadInput(const Operand& o, int part, Value* value) const;
  Status Fold(const Op& op, int part, Value* value);
  Status Finish(Value* value) const;
  Status Write(const Operand& o, int part, const Value& value);
  Value Expected(int rank, int block, int part) const;

  const Schedule& s_;
  const int lane_;
  const bool reduces_;
  const Places places_;
  RankSets sets_;
  OpRef at_;
  uint32_t step_ = 0;  // operations so far
  std::vector<Value> values_;
  // The last operation that has the place as destination, by step, and as which of its parts.
  std::vector<uint32_t> writer_;
  std::vector<uint16_t> written_part_;
};

std::string Walk::Describe(const Value& v) const {
  if (!v.defined()) return "nothing";
  const std::string what = "block " + std::to_string(v.block) + ".part " + std::to_string(v.part);
  if (!reduces_) return "input " + what + " of rank " + std::to_string(v.source);
  return (v.finished ? "the finished fold of " : "the fold of ") + what + " of ranks " + sets_.ToString(v.source);
}

Status Walk::Do(const OpRef& ref) {
  at_ = ref;
  ++step_;
  const Op& op = s_.program[ref.rank][ref.lane].ops[ref.index];
  AXCCL_RETURN_IF_ERROR(MarkDestinations(op));
  for (const Operand& o : op.src) AXCCL_RETURN_IF_ERROR(CheckOverlap(o));
  // Part by part is the same as all sources before all destinations: CheckOverlap has seen that no part of a source is a
  // destination of another part.
  for (int i = 0; i < op.src[0].parts; ++i) {
    Value value;
    AXCCL_RETURN_IF_ERROR(op.kind == OpKind::kReduce ? Fold(op, i, &value) : Read(op.src[0], i, &value));
    if (op.finish) AXCCL_RETURN_IF_ERROR(Finish(&value));
    for (const Operand& o : op.dst) AXCCL_RETURN_IF_ERROR(Write(o, i, value));
  }
  return Status();
}

Status Walk::MarkDestinations(const Op& op) {
  for (const Operand& o : op.dst) {
    const uint32_t place = places_.Of(o);
    for (int i = 0; i < o.parts; ++i) {
      if (writer_[place + i] == step_) return Bad("writes " + Place(o, i) + " twice");
      writer_[place + i] = step_;
      written_part_[place + i] = static_cast<uint16_t>(i);
    }
  }
  return Status();
}

Status Walk::CheckOverlap(const Operand& o) const {
  const uint32_t place = places_.Of(o);
  for (int i = 0; i < o.parts; ++i) {
    if (writer_[place + i] == step_ && written_part_[place + i] != i) {
      return Bad("reads " + Place(o, i) + ", which it also writes, but as another of its parts");
    }
  }
  return Status();
}

Status Walk::Read(const Operand& o, int part, Value* value) const {
  if (o.buffer == Buffer::kInput) return ReadInput(o, part, value);
  *value = values_[places_.Of(o) + part];
  if (!value->defined()) return Bad("reads " + Place(o, part) + ", which nothing has written in this turn");
  return Status();
}

Status Walk::ReadInput(const Operand& o, int part, Value* value) const {
  *value = Value{o.rank, o.block, static_cast<uint16_t>(o.part + part), false};
  if (!places_.IsAliasedInput(o)) return Status();
  // The same memory as an output when the rank runs in place. In kinds that reduce, even its own contribution must not be
  // found there: it would be scaled a second time.
  const Value& output = values_[places_.Of(o) + part];
  if (!output.defined() || (!reduces_ && output == *value)) return Status();
  return Bad("reads " + Place(o, part) + " after it was overwritten with " + Describe(output) + " if rank " +
             std::to_string(o.rank) + " runs in place");
}

Status Walk::Fold(const Op& op, int part, Value* value) {
  if (op.src.size() == 1) {
    AXCCL_RETURN_IF_ERROR(Read(op.src[0], part, value));
    return value->finished ? Bad("reduces " + Describe(*value) + " in " + Place(op.src[0], part)) : Status();
  }
  const uint32_t all = sets_.AddEmpty();
  for (size_t i = 0; i < op.src.size(); ++i) {
    Value v;
    AXCCL_RETURN_IF_ERROR(Read(op.src[i], part, &v));
    if (v.finished) return Bad("reduces " + Describe(v) + " in " + Place(op.src[i], part));
    if (i == 0) *value = v;
    if (v.block != value->block || v.part != value->part) {
      return Bad("reduces " + Describe(v) + " in " + Place(op.src[i], part) + " with " + Describe(*value));
    }
    if (!sets_.AddDisjoint(all, v.source)) {
      return Bad("adds a rank twice: " + Place(op.src[i], part) + " holds " + Describe(v));
    }
  }
  value->source = all;
  return Status();
}

Status Walk::Finish(Value* value) const {
  if (value->finished) return Bad("finishes " + Describe(*value) + " once more");
  if (!sets_.IsFull(value->source)) return Bad("finishes " + Describe(*value) + "; ranks are missing");
  value->finished = true;
  return Status();
}

Status Walk::Write(const Operand& o, int part, const Value& value) {
  // Parts may differ in size, also where an output only holds data on its way elsewhere.
  if (o.buffer == Buffer::kOutput && value.part != o.part + part) {
    return Bad("writes " + Describe(value) + " to " + Place(o, part) + ", another part");
  }
  values_[places_.Of(o) + part] = value;
  return Status();
}

// `source` is kNothing for a fold, which must be full.
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

Status Walk::CheckOutputs() const {
  for (int r = 0; r < s_.contract.ranks; ++r) {
    for (int b = 0; b < plan::OutputBlocks(s_.contract, r); ++b) {
      for (int p = 0; p < s_.parts; ++p) {
        const Value& v = values_[places_.Output(r, b) + p];
        Value expected = Expected(r, b, p);
        if (reduces_ && v.defined() && sets_.IsFull(v.source)) expected.source = v.source;
        if (v.defined() && v == expected) continue;
        const Operand o = {Buffer::kOutput, static_cast<uint16_t>(r), static_cast<uint16_t>(b), 0, 1};
        return MakeStatus(Code::kInvalidArgument, "dataflow: lane %d leaves %s in %s, which must end as %s", lane_,
                          Describe(v).c_str(), Place(o, p).c_str(),
                          reduces_ ? "the finished fold of its block over all ranks" : Describe(expected).c_str());
      }
    }
  }
  return Status();
}

}  // namespace

Status CheckDataflow(const Schedule& schedule, const Order& order, int lane) {
  Walk walk(schedule, lane);
  for (const OpRef& ref : order.data) {
    if (ref.lane == lane) AXCCL_RETURN_IF_ERROR(walk.Do(ref));
  }
  return walk.CheckOutputs();
}

}  // namespace axccl::verify
