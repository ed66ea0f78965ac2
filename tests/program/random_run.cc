#include "tests/program/random_run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "src/program/reference/scalar.h"
#include "tests/program/random_body.h"
#include "tests/program/random_meetings.h"

namespace axccl::program {
namespace {

// All parts are written at once, each step at the end of those that take part in it. Every rank could execute the steps
// in this order, so none waits for ever.
class RunMaker {
 public:
  explicit RunMaker(harness::Random* random) : random_(random) {}

  Program Make() {
    program_.ranks = static_cast<int>(1 + random_->Below(8));
    MakeParts();
    Scope scope;
    for (size_t p = 0; p < makers_.size(); ++p) scope.parts.push_back(p);
    scope.classes = {meetings_.RanksOf(scope.parts)};
    scope.channels = {0, 1, 7};
    Steps(&scope, 4 + random_->Below(18));
    meetings_.Drain(&scope);
    for (PartMaker& maker : makers_) program_.parts.push_back(maker.End());
    return std::move(program_);
  }

 private:
  int64_t Small(uint64_t bound) { return static_cast<int64_t>(random_->Below(bound)); }

  void MakeParts() {
    Ints ranks;
    for (int64_t rank = 0; rank < program_.ranks; ++rank) ranks.push_back(rank);
    Shuffle(&ranks, random_);
    if (ranks.size() > 1 && random_->OneIn(8)) ranks.pop_back();  // into no part
    const size_t parts = random_->OneIn(3) ? 1 : 1 + random_->Below(std::min<size_t>(ranks.size(), 4));
    std::vector<Ints> sets(parts);
    for (size_t i = 0; i < ranks.size(); ++i) sets[i < parts ? i : random_->Below(parts)].push_back(ranks[i]);
    for (size_t p = 0; p < parts; ++p) {
      std::sort(sets[p].begin(), sets[p].end());
      makers_.emplace_back("part-" + std::to_string(p), sets[p], random_);
    }
  }

  void Steps(Scope* scope, uint64_t count) {
    for (; count != 0; --count) Step(scope);
  }

  void Step(Scope* scope) {
    PartMaker& maker = makers_[random_->Pick(scope->parts)];
    const uint64_t choice = random_->Below(100);
    if (choice < 40) return maker.Compute();
    if (choice < 65) return meetings_.Collective(*scope, SomeParts(*scope));
    if (choice < 75) return meetings_.SendSome(scope);
    if (choice < 85) return meetings_.ReceiveSome(scope);
    if (scope->depth >= 3) return maker.Compute();
    const bool together = scope->parts.size() > 1;
    if (together && random_->OneIn(2)) return OpenLoop(scope);
    const size_t part = random_->Pick(scope->parts);
    return random_->OneIn(2) ? Branch(*scope, part) : Loop(*scope, part);
  }

  std::vector<size_t> SomeParts(const Scope& scope) {
    std::vector<size_t> parts = scope.parts;
    Shuffle(&parts, random_);
    if (random_->OneIn(2)) parts.resize(1 + random_->Below(parts.size()));
    return parts;
  }

  std::vector<Value> SomeValues(size_t part) {
    std::vector<Value> values;
    for (uint64_t n = random_->Below(4); n != 0; --n) values.push_back(makers_[part].Pick());
    return values;
  }
  static std::vector<TensorType> TypesOf(const std::vector<Value>& values) {
    std::vector<TensorType> types;
    for (const Value& value : values) types.push_back(value.type);
    return types;
  }
  std::vector<Id> FindAll(size_t part, const std::vector<TensorType>& types) {
    std::vector<Id> ids;
    for (const TensorType& type : types) ids.push_back(makers_[part].Find(type));
    return ids;
  }

  // A scope for regions of these parts, with channels that nothing else has.
  Scope Inside(const Scope& outer, const std::vector<size_t>& parts, const std::vector<Ints>& classes) {
    return {parts, classes, {next_channel_++, next_channel_++}, outer.depth + 1, {}};
  }

  // A loop that is being written: a counter and what it carries.
  struct Counting {
    std::vector<TensorType> types;
    std::vector<Id> operands;
    int64_t step;
    Function cond;
    Id counter = 0;  // in the body
  };

  // Up to the beginning of the body. `limit`: a value of i32, else the loop has that many rounds.
  Counting BeginLoop(size_t part, const Scope& scope, int64_t rounds, std::optional<Id> limit) {
    constexpr DataType kCounters[] = {DataType::kInt32, DataType::kInt8, DataType::kUint64};
    PartMaker& maker = makers_[part];
    const DataType type = limit ? DataType::kInt32 : kCounters[random_->Below(3)];
    Counting loop;
    const std::vector<Value> carried = SomeValues(part);
    const bool down = !limit && type != DataType::kUint64 && random_->OneIn(3);
    loop.step = limit ? 1 : (1 + Small(3)) * (down ? -1 : 1);
    const int64_t first = limit ? 0 : Small(5), end = first + rounds * loop.step;
    loop.operands = {maker.Constant(type, first)};
    loop.types = {{type, {}}};
    for (const Value& value : carried) loop.operands.push_back(value.id), loop.types.push_back(value.type);
    const bool exact = !limit && random_->OneIn(3);
    const Direction direction = exact ? Direction::kNe : down ? Direction::kGt : Direction::kLt;
    const Id counter = maker.Open("cond", loop.types, false)[0].id;
    if (random_->OneIn(4)) maker.Compute();
    if (random_->OneIn(8)) meetings_.Collective(scope, {part});
    const Id bound = limit ? *limit : maker.Constant(type, end);
    loop.cond = maker.Close(
        {maker.Emit(OpKind::kCompare, {counter, bound}, {{DataType::kBool, {}}}, {{Attr::kDirection, direction}})[0]
             .id});
    loop.counter = maker.Open("body", loop.types, false)[0].id;
    return loop;
  }

  void EndLoop(size_t part, Counting* loop) {
    PartMaker& maker = makers_[part];
    const TensorType type = loop->types[0];
    const Id step = maker.Constant(type.data_type, std::abs(loop->step));
    std::vector<Id> results = {
        maker.Emit(loop->step < 0 ? OpKind::kSubtract : OpKind::kAdd, {loop->counter, step}, {type})[0].id};
    for (const Id id : FindAll(part, {loop->types.begin() + 1, loop->types.end()})) results.push_back(id);
    std::vector<Function> regions = {std::move(loop->cond), maker.Close(results)};
    maker.Emit(OpKind::kWhile, loop->operands, loop->types, {}, std::move(regions));
  }

  // A loop of several parts at once, which communicate in it. A message may be under way from one round to the next.
  void OpenLoop(Scope* outer) {
    std::vector<size_t> parts = outer->parts;
    Shuffle(&parts, random_);
    parts.resize(2 + random_->Below(parts.size() - 1));
    Scope scope = Inside(*outer, parts, {meetings_.RanksOf(parts)});
    std::optional<Message> carried;
    if (random_->OneIn(3)) meetings_.Send(scope, carried.emplace(meetings_.NewMessage(scope, next_channel_++)));
    if (random_->OneIn(2)) {
      meetings_.Drain(outer);
      scope.channels = outer->channels;
    }
    const int64_t rounds = Small(4);
    std::map<size_t, Counting> loops;
    for (const size_t p : parts) {
      const Scope own = Inside(scope, {p}, {makers_[p].ranks()});
      loops[p] = BeginLoop(p, own, rounds, std::nullopt);
    }
    meetings_.AllReduce(parts, {meetings_.RanksOf(parts)});
    if (carried) meetings_.Receive(*carried);
    Steps(&scope, 1 + random_->Below(6));
    if (carried) meetings_.Send(scope, *carried);
    meetings_.Drain(&scope);
    for (auto& [part, loop] : loops) EndLoop(part, &loop);
    if (carried) meetings_.Receive(*carried);
  }

  // A condition, or the rounds of a loop, and which ranks have the same.
  struct Choice {
    Id id;
    std::vector<Ints> classes;
  };

  Choice Choose(const Scope& outer, size_t part, bool whole) {
    PartMaker& maker = makers_[part];
    const std::vector<Ints> classes = meetings_.ClassesOf(outer, {part});
    const TensorType number{DataType::kInt32, {}};
    Choice choice{0, classes};
    const std::vector<Id> arguments = maker.SharedArguments(whole ? DataType::kInt32 : DataType::kBool);
    if (!arguments.empty() && random_->OneIn(2)) {
      choice.id = random_->Pick(arguments);
      if (!whole) return choice;
    } else if (random_->OneIn(3)) {  // each rank its own
      choice.classes.clear();
      for (const int64_t rank : maker.ranks()) choice.classes.push_back({rank});
      const Id rank = maker.Emit(OpKind::kPartitionId, {}, {{DataType::kUint32, {}}})[0].id;
      choice.id = maker.Emit(OpKind::kConvert, {rank}, {number})[0].id;
    } else {
      choice.classes = meetings_.Divide(classes, 0);
      choice.id = maker
                      .Emit(OpKind::kAllReduce, {maker.Find(number)}, {number},
                            {{Attr::kFold, RandomFold(number.data_type, random_)},
                             {Attr::kGroups, choice.classes},
                             {Attr::kChannel, Small(3)}})[0]
                      .id;
    }
    if (whole) {
      const Id least = maker.Constant(DataType::kInt32, 0), most = maker.Constant(DataType::kInt32, 3);
      choice.id = maker.Emit(OpKind::kClamp, {least, choice.id, most}, {number})[0].id;
    } else {
      const Id limit = maker.Constant(DataType::kInt32, Small(4));
      choice.id = maker
                      .Emit(OpKind::kCompare, {choice.id, limit}, {{DataType::kBool, {}}},
                            {{Attr::kDirection, static_cast<Direction>(random_->Below(6))}})[0]
                      .id;
    }
    return choice;
  }

  void Loop(const Scope& outer, size_t part) {
    const bool constant = random_->OneIn(3);
    const Choice choice = constant ? Choice{0, meetings_.ClassesOf(outer, {part})} : Choose(outer, part, true);
    const Scope cond = Inside(outer, {part}, choice.classes);
    Scope scope = Inside(outer, {part}, choice.classes);
    Counting loop = BeginLoop(part, cond, Small(4), constant ? std::nullopt : std::optional(choice.id));
    Steps(&scope, 1 + random_->Below(5));
    meetings_.Drain(&scope);
    EndLoop(part, &loop);
  }

  void Branch(const Scope& outer, size_t part) {
    PartMaker& maker = makers_[part];
    const Choice choice = Choose(outer, part, false);
    const std::vector<TensorType> types = TypesOf(SomeValues(part));
    std::vector<Function> regions;
    for (const char* name : {"then", "else"}) {
      Scope scope = Inside(outer, {part}, choice.classes);
      maker.Open(name, {}, false);
      Steps(&scope, random_->Below(5));
      meetings_.Drain(&scope);
      regions.push_back(maker.Close(FindAll(part, types)));
    }
    maker.Emit(OpKind::kIf, {choice.id}, types, {}, std::move(regions));
  }

  harness::Random* const random_;
  Program program_;
  std::deque<PartMaker> makers_;
  Meetings meetings_{&program_.ranks, &makers_, random_};
  int64_t next_channel_ = 100;
};

}  // namespace

Program RandomRun(harness::Random* random) { return RunMaker(random).Make(); }

std::vector<std::vector<Tensor>> RandomRunInputs(const Program& program, harness::Random* random) {
  std::vector<std::vector<Tensor>> inputs(static_cast<size_t>(program.ranks));
  const bool wild = random->OneIn(4);
  const auto make = [&](const TensorType& type) {
    Tensor tensor = Tensor::Zeros(type);
    VisitScalar(type.data_type, [&](auto scalar) {
      using Number = typename decltype(scalar)::Number;
      for (int64_t i = 0; i < Elements(type); ++i) {
        const auto number = static_cast<double>(random->Below(type.data_type == DataType::kBool ? 2 : 9));
        scalar.Store(static_cast<Number>(std::is_floating_point_v<Number> ? number / 4 - 1 : number), tensor.at(i));
      }
    });
    if (!wild || type.data_type == DataType::kBool) return tensor;
    for (uint8_t& byte : tensor.bytes) byte = static_cast<uint8_t>(random->OneIn(4) ? 255 : random->Next());
    return tensor;
  };
  for (const Part& part : program.parts) {
    for (const int64_t rank : part.ranks) {
      auto& own = inputs[static_cast<size_t>(rank)];
      const auto& first = inputs[static_cast<size_t>(part.ranks[0])];
      for (const Value& argument : part.function.arguments)
        own.push_back(rank != part.ranks[0] && argument.type.dims.empty() ? first[own.size()] : make(argument.type));
    }
  }
  return inputs;
}

}  // namespace axccl::program
