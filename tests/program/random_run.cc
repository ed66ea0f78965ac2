#include "tests/program/random_run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "src/program/reference/scalar.h"
#include "tests/program/random_body.h"

namespace axccl::program {
namespace {

// A message that is sent and not yet received.
struct Message {
  int64_t channel;
  size_t target;  // part
  Groups pairs;
  TensorType type;
};

// What is written together: the ends of some parts, or one region of them.
struct Scope {
  std::vector<size_t> parts;
  std::vector<Ints> classes;  // ranks of different ones do not communicate
  Ints channels;              // of messages
  int depth = 0;
  std::deque<Message> pending;
};

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
    scope.classes = {RanksOf(scope.parts)};
    scope.channels = {0, 1, 7};
    Steps(&scope, 4 + random_->Below(18));
    Drain(&scope);
    for (PartMaker& maker : makers_) program_.parts.push_back(maker.End());
    return std::move(program_);
  }

 private:
  bool Chance(uint64_t percent) { return random_->Below(100) < percent; }
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

  Ints RanksOf(const std::vector<size_t>& parts) const {
    Ints ranks;
    for (const size_t p : parts) ranks.insert(ranks.end(), makers_[p].ranks().begin(), makers_[p].ranks().end());
    return ranks;
  }
  static bool Has(const Ints& ranks, int64_t rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

  void Steps(Scope* scope, uint64_t count) {
    for (; count != 0; --count) Step(scope);
  }

  void Step(Scope* scope) {
    PartMaker& maker = makers_[random_->Pick(scope->parts)];
    const uint64_t choice = random_->Below(100);
    if (choice < 40) return maker.Compute();
    if (choice < 65) return Collective(*scope, SomeParts(*scope));
    if (choice < 75) return Send(scope);
    if (choice < 85) return Receive(scope);
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

  // The classes of a scope, of these parts only, each in random order.
  std::vector<Ints> ClassesOf(const Scope& scope, const std::vector<size_t>& parts) {
    std::vector<Ints> classes = scope.classes;
    const Ints ranks = RanksOf(parts);
    for (Ints& members : classes) {
      std::erase_if(members, [&](int64_t rank) { return !Has(ranks, rank); });
      Shuffle(&members, random_);
    }
    std::erase_if(classes, [](const Ints& members) { return members.empty(); });
    return classes;
  }

  // ---- collectives ----

  // Groups of classes: of `size` ranks, 0: of any.
  Groups Divide(const std::vector<Ints>& classes, size_t size) {
    Groups groups;
    for (const Ints& members : classes) {
      for (size_t at = 0; at < members.size();) {
        const size_t n = size != 0 ? size : 1 + random_->Below(members.size() - at);
        groups.emplace_back(members.begin() + static_cast<ptrdiff_t>(at),
                            members.begin() + static_cast<ptrdiff_t>(at + n));
        at += n;
      }
    }
    Shuffle(&groups, random_);
    return groups;
  }

  // A size of groups that divides those of all classes.
  size_t CommonSize(const std::vector<Ints>& classes) {
    std::vector<size_t> sizes;
    for (size_t size = 1; size <= 8; ++size) {
      if (std::all_of(classes.begin(), classes.end(), [&](const Ints& c) { return c.size() % size == 0; }))
        sizes.push_back(size);
    }
    return random_->OneIn(2) ? sizes.back() : random_->Pick(sizes);
  }

  // How a part may write the groups: without those that have none of its ranks, in another order, or with others that
  // have none, either.
  Groups WrittenBy(size_t part, Groups groups) {
    const auto is_foreign = [&](const Ints& group) {
      return std::none_of(group.begin(), group.end(), [&](int64_t rank) { return Has(makers_[part].ranks(), rank); });
    };
    if (random_->OneIn(3)) {
      Groups own = groups;
      std::erase_if(own, is_foreign);
      if (!own.empty()) groups = own;
    }
    if (random_->OneIn(3)) Shuffle(&groups, random_);
    if (!random_->OneIn(4)) return groups;
    Ints used, rest;
    for (const Ints& group : groups) used.insert(used.end(), group.begin(), group.end());
    for (int64_t rank = 0; rank < program_.ranks; ++rank) {
      if (!Has(used, rank)) rest.push_back(rank);
    }
    Shuffle(&rest, random_);
    rest.resize(std::min(rest.size(), groups[0].size()));
    if (rest.size() == groups[0].size() && is_foreign(rest)) groups.push_back(rest);
    return groups;
  }

  // A type that can be divided into that many parts along the dimension, if there is one.
  TensorType TypeFor(const std::vector<size_t>& parts, std::optional<size_t>* dim, size_t divisor) {
    TensorType type = random_->OneIn(4) ? RandomType(random_) : makers_[parts[0]].Pick().type;
    if (dim == nullptr) return type;
    if (type.dims.empty()) type.dims = {Small(5)};
    if (!*dim) *dim = random_->Below(type.dims.size());
    while (type.dims.size() <= **dim) type.dims.push_back(1 + Small(2));
    int64_t& size = type.dims[**dim];
    if (size % static_cast<int64_t>(divisor) != 0) size = static_cast<int64_t>(divisor) * Small(3);
    if (Elements(type) > 600) {
      for (int64_t& other : type.dims) other = 1;
      size = static_cast<int64_t>(divisor);
    }
    return type;
  }

  void Collective(const Scope& scope, const std::vector<size_t>& parts) {
    constexpr OpKind kKinds[] = {OpKind::kAllGather,           OpKind::kAllReduce,     OpKind::kAllReduce,
                                 OpKind::kReduceScatter,       OpKind::kAllToAll,      OpKind::kCollectivePermute,
                                 OpKind::kCollectiveBroadcast, OpKind::kReduceScatter, OpKind::kAllGather};
    const OpKind kind = kKinds[random_->Below(std::size(kKinds))];
    if (kind == OpKind::kCollectivePermute) return Permute(scope, parts);
    if (kind == OpKind::kAllReduce) return AllReduce(parts, Divide(ClassesOf(scope, parts), 0));
    std::vector<Ints> classes = ClassesOf(scope, parts);
    const bool broadcasts = kind == OpKind::kCollectiveBroadcast;
    if (broadcasts && random_->OneIn(2)) classes.back().pop_back();
    std::erase_if(classes, [](const Ints& members) { return members.empty(); });
    if (classes.empty()) return;
    const size_t size = CommonSize(classes);
    const Groups groups = Divide(classes, broadcasts ? 0 : size);
    const bool gathers = kind == OpKind::kAllGather;
    std::optional<size_t> dim, other;
    const bool one = broadcasts || kind == OpKind::kReduceScatter;
    std::vector<TensorType> from, to;
    for (uint64_t n = one ? 1 : 1 + random_->Below(3); n != 0; --n) {
      from.push_back(TypeFor(parts, broadcasts ? nullptr : &dim, gathers ? 1 : size));
      to.push_back(from.back());
      if (broadcasts) continue;
      int64_t& divided = to.back().dims[*dim];
      divided = gathers ? divided * static_cast<int64_t>(size) : divided / static_cast<int64_t>(size);
      if (kind != OpKind::kAllToAll) continue;
      if (!other) other = random_->Below(from.back().dims.size());
      if (*other >= from.back().dims.size()) {
        from.pop_back(), to.pop_back();
        continue;
      }
      to.back().dims[*other] *= static_cast<int64_t>(size);
    }
    std::vector<Attribute> attributes;
    if (kind == OpKind::kReduceScatter) attributes.push_back({Attr::kFold, RandomFold(from[0].data_type, random_)});
    if (kind == OpKind::kAllToAll) attributes.push_back({Attr::kSplitDim, static_cast<int64_t>(*dim)});
    if (kind == OpKind::kAllToAll) attributes.push_back({Attr::kConcatDim, static_cast<int64_t>(*other)});
    if (gathers || kind == OpKind::kReduceScatter) attributes.push_back({Attr::kDim, static_cast<int64_t>(*dim)});
    Meet(kind, parts, from, to, attributes, groups);
  }

  void AllReduce(const std::vector<size_t>& parts, const Groups& groups) {
    std::vector<TensorType> types = {TypeFor(parts, nullptr, 1)};
    for (uint64_t more = random_->Below(3); more != 0; --more) {
      types.push_back(TypeFor(parts, nullptr, 1));
      types.back().data_type = types[0].data_type;
    }
    Meet(OpKind::kAllReduce, parts, types, types, {{Attr::kFold, RandomFold(types[0].data_type, random_)}}, groups);
  }

  void Meet(OpKind kind, const std::vector<size_t>& parts, const std::vector<TensorType>& from,
            const std::vector<TensorType>& to, const std::vector<Attribute>& attributes, const Groups& groups) {
    const Attribute channel{Attr::kChannel, Small(3)};
    for (const size_t p : parts) {
      std::vector<Id> operands;
      for (const TensorType& type : from) operands.push_back(makers_[p].Find(type));
      std::vector<Attribute> all = attributes;
      all.push_back({Attr::kGroups, WrittenBy(p, groups)});
      all.push_back(channel);
      makers_[p].Emit(kind, operands, to, all);
    }
  }

  // Pairs of ranks of one class, or of none.
  void Permute(const Scope& scope, const std::vector<size_t>& parts) {
    Ints sources = random_->Pick(ClassesOf(scope, parts)), targets = sources;
    Shuffle(&targets, random_);
    Groups pairs;
    const size_t count = random_->OneIn(2) ? sources.size() : random_->Below(sources.size() + 1);
    for (size_t i = 0; i < count; ++i) pairs.push_back({sources[i], targets[i]});
    const TensorType type = TypeFor(parts, nullptr, 1);
    const Attribute channel{Attr::kChannel, Small(3)};
    for (const size_t p : parts)
      makers_[p].Emit(OpKind::kCollectivePermute, {makers_[p].Find(type)}, {type}, {{Attr::kPairs, pairs}, channel});
  }

  // ---- messages ----

  Message NewMessage(const Scope& scope, int64_t channel) {
    Message message{channel, random_->Pick(scope.parts), {}, {}};
    const Ints& targets = makers_[message.target].ranks();
    for (const Ints& members : ClassesOf(scope, scope.parts)) {
      size_t next = 0;  // as many sources as targets, from anywhere in the class
      for (const int64_t target : targets) {
        if (Has(members, target)) message.pairs.push_back({members[next++], target});
      }
    }
    message.type = TypeFor({message.target}, nullptr, 1);
    return message;
  }

  void Send(const Scope& scope, const Message& message) {
    for (const size_t p : scope.parts) {
      Groups own = message.pairs;
      std::erase_if(own, [&](const Ints& pair) { return !Has(makers_[p].ranks(), pair[0]); });
      if (own.empty()) continue;
      makers_[p].Emit(OpKind::kSend, {makers_[p].Find(message.type)}, {},
                      {{Attr::kPairs, random_->OneIn(2) ? own : message.pairs}, {Attr::kChannel, message.channel}});
    }
  }

  void Receive(const Message& message) {
    Groups pairs = message.pairs;
    Shuffle(&pairs, random_);
    makers_[message.target].Emit(OpKind::kRecv, {}, {message.type},
                                 {{Attr::kPairs, pairs}, {Attr::kChannel, message.channel}});
  }

  void Send(Scope* scope) {
    const Message message = NewMessage(*scope, random_->Pick(scope->channels));
    Send(*scope, message);
    scope->pending.push_back(message);
  }

  // The first message of some channel.
  void Receive(Scope* scope) {
    if (scope->pending.empty()) return Send(scope);
    const int64_t channel = random_->Pick(scope->pending).channel;
    const auto first = std::find_if(scope->pending.begin(), scope->pending.end(),
                                    [&](const Message& message) { return message.channel == channel; });
    Receive(*first);
    scope->pending.erase(first);
  }

  void Drain(Scope* scope) {
    while (!scope->pending.empty()) Receive(scope);
  }

  // ---- regions ----

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
    if (random_->OneIn(8)) Collective(scope, {part});
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
    Scope scope = Inside(*outer, parts, {RanksOf(parts)});
    std::optional<Message> carried;
    if (random_->OneIn(3)) Send(scope, carried.emplace(NewMessage(scope, next_channel_++)));
    if (random_->OneIn(2)) {
      Drain(outer);
      scope.channels = outer->channels;
    }
    const int64_t rounds = Small(4);
    std::map<size_t, Counting> loops;
    for (const size_t p : parts) {
      const Scope own = Inside(scope, {p}, {makers_[p].ranks()});
      loops[p] = BeginLoop(p, own, rounds, std::nullopt);
    }
    AllReduce(parts, {RanksOf(parts)});
    if (carried) Receive(*carried);
    Steps(&scope, 1 + random_->Below(6));
    if (carried) Send(scope, *carried);
    Drain(&scope);
    for (auto& [part, loop] : loops) EndLoop(part, &loop);
    if (carried) Receive(*carried);
  }

  // A condition, or the rounds of a loop, and which ranks have the same.
  struct Choice {
    Id id;
    std::vector<Ints> classes;
  };

  Choice Choose(const Scope& outer, size_t part, bool whole) {
    PartMaker& maker = makers_[part];
    const std::vector<Ints> classes = ClassesOf(outer, {part});
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
      choice.classes = Divide(classes, 0);
      choice.id = maker.Emit(OpKind::kAllReduce, {maker.Find(number)}, {number},
                             {{Attr::kFold, RandomFold(number.data_type, random_)},
                              {Attr::kGroups, choice.classes},
                              {Attr::kChannel, Small(3)}})[0].id;
    }
    if (whole) {
      const Id least = maker.Constant(DataType::kInt32, 0), most = maker.Constant(DataType::kInt32, 3);
      choice.id = maker.Emit(OpKind::kClamp, {least, choice.id, most}, {number})[0].id;
    } else {
      const Id limit = maker.Constant(DataType::kInt32, Small(4));
      choice.id = maker.Emit(OpKind::kCompare, {choice.id, limit}, {{DataType::kBool, {}}},
                             {{Attr::kDirection, static_cast<Direction>(random_->Below(6))}})[0].id;
    }
    return choice;
  }

  void Loop(const Scope& outer, size_t part) {
    const bool constant = random_->OneIn(3);
    const Choice choice = constant ? Choice{0, ClassesOf(outer, {part})} : Choose(outer, part, true);
    const Scope cond = Inside(outer, {part}, choice.classes);
    Scope scope = Inside(outer, {part}, choice.classes);
    Counting loop = BeginLoop(part, cond, Small(4), constant ? std::nullopt : std::optional(choice.id));
    Steps(&scope, 1 + random_->Below(5));
    Drain(&scope);
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
      Drain(&scope);
      regions.push_back(maker.Close(FindAll(part, types)));
    }
    maker.Emit(OpKind::kIf, {choice.id}, types, {}, std::move(regions));
  }

  harness::Random* const random_;
  Program program_;
  std::deque<PartMaker> makers_;
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
