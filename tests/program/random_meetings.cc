#include "tests/program/random_meetings.h"

#include <algorithm>
#include <cstring>

namespace axccl::program {
namespace {

bool Has(const Ints& ranks, int64_t rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); }

}  // namespace

Ints Meetings::RanksOf(const std::vector<size_t>& parts) const {
  Ints ranks;
  for (const size_t p : parts) ranks.insert(ranks.end(), makers_[p].ranks().begin(), makers_[p].ranks().end());
  return ranks;
}

// The classes of a scope, of these parts only, each in random order.
std::vector<Ints> Meetings::ClassesOf(const Scope& scope, const std::vector<size_t>& parts) {
  std::vector<Ints> classes = scope.classes;
  const Ints ranks = RanksOf(parts);
  for (Ints& members : classes) {
    std::erase_if(members, [&](int64_t rank) { return !Has(ranks, rank); });
    Shuffle(&members, random_);
  }
  std::erase_if(classes, [](const Ints& members) { return members.empty(); });
  return classes;
}

// Groups of classes: of `size` ranks, 0: of any.
Groups Meetings::Divide(const std::vector<Ints>& classes, size_t size) {
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
size_t Meetings::CommonSize(const std::vector<Ints>& classes) {
  std::vector<size_t> sizes;
  for (size_t size = 1; size <= 8; ++size) {
    if (std::all_of(classes.begin(), classes.end(), [&](const Ints& c) { return c.size() % size == 0; }))
      sizes.push_back(size);
  }
  return random_->OneIn(2) ? sizes.back() : random_->Pick(sizes);
}

// How a part may write the groups: without those that have none of its ranks, in another order, or with others that
// have none, either.
Groups Meetings::WrittenBy(size_t part, Groups groups) {
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
  for (int64_t rank = 0; rank < ranks_; ++rank) {
    if (!Has(used, rank)) rest.push_back(rank);
  }
  Shuffle(&rest, random_);
  rest.resize(std::min(rest.size(), groups[0].size()));
  if (rest.size() == groups[0].size() && is_foreign(rest)) groups.push_back(rest);
  return groups;
}

// Now and then a large one, which is moved in pieces.
TensorType Meetings::AnyType(const std::vector<size_t>& parts) {
  if (random_->OneIn(40)) return {RandomType(random_).data_type, {20000 + Small(50000)}};
  const TensorType type = makers_[parts[0]].Pick().type;
  return random_->OneIn(4) || Elements(type) > 70000 ? RandomType(random_) : type;
}

// A type that can be divided into that many parts along the dimension, which is chosen if there is none.
TensorType Meetings::DividedType(const std::vector<size_t>& parts, std::optional<size_t>* dim, size_t divisor) {
  TensorType type = AnyType(parts);
  if (type.dims.empty()) type.dims = {Small(5)};
  if (!*dim) *dim = random_->Below(type.dims.size());
  while (type.dims.size() <= **dim) type.dims.push_back(1 + Small(2));
  int64_t& size = type.dims[**dim];
  const auto parts_of_it = static_cast<int64_t>(divisor);
  if (size % parts_of_it != 0) size = size > 1000 ? size / parts_of_it * parts_of_it : parts_of_it * Small(3);
  return type;
}

void Meetings::Collective(const Scope& scope, const std::vector<size_t>& parts) {
  constexpr OpKind kKinds[] = {OpKind::kAllGather,
                               OpKind::kAllReduce,
                               OpKind::kAllReduce,
                               OpKind::kReduceScatter,
                               OpKind::kAllToAll,
                               OpKind::kCollectivePermute,
                               OpKind::kCollectiveBroadcast,
                               OpKind::kCollectiveBroadcastFrom,
                               OpKind::kCollectiveReduce,
                               OpKind::kCollectiveReduceTo,
                               OpKind::kReduceScatter,
                               OpKind::kAllGather};
  const OpKind kind = kKinds[random_->Below(std::size(kKinds))];
  switch (kind) {
    case OpKind::kCollectivePermute:
      return Permute(scope, parts);
    case OpKind::kAllReduce:
      return AllReduce(parts, Divide(ClassesOf(scope, parts), 0));
    case OpKind::kCollectiveBroadcast:
    case OpKind::kCollectiveBroadcastFrom:
    case OpKind::kCollectiveReduce:
    case OpKind::kCollectiveReduceTo:
      return Rooted(kind, scope, parts);
    default:
      return Divided(kind, scope, parts);
  }
}

// Some ranks may be in no group.
void Meetings::Rooted(OpKind kind, const Scope& scope, const std::vector<size_t>& parts) {
  std::vector<Ints> classes = ClassesOf(scope, parts);
  if (random_->OneIn(2)) classes.back().pop_back();
  const Groups groups = Divide(classes, 0);
  if (groups.empty()) return;
  const bool reduces = kind == OpKind::kCollectiveReduce || kind == OpKind::kCollectiveReduceTo;
  const bool is_dynamic = kind == OpKind::kCollectiveBroadcastFrom || kind == OpKind::kCollectiveReduceTo;
  size_t least = SIZE_MAX;
  for (const Ints& group : groups) least = std::min(least, group.size());
  std::vector<TensorType> types;
  std::vector<int32_t> roots;
  for (uint64_t n = 1 + random_->Below(3); n != 0; --n) {
    types.push_back(AnyType(parts));
    if (reduces) types.back().data_type = types[0].data_type;
    roots.push_back(static_cast<int32_t>(random_->Below(least)));
  }
  std::vector<Attribute> attributes;
  if (reduces) attributes.push_back({Attr::kFold, RandomFold(types[0].data_type, random_)});
  Meet(kind, parts, types, types, attributes, groups, is_dynamic ? &roots : nullptr);
}

// Of groups of one size, which changes the sizes of tensors.
void Meetings::Divided(OpKind kind, const Scope& scope, const std::vector<size_t>& parts) {
  const std::vector<Ints> classes = ClassesOf(scope, parts);
  const size_t size = CommonSize(classes);
  const auto ranks = static_cast<int64_t>(size);
  const bool gathers = kind == OpKind::kAllGather, exchanges = kind == OpKind::kAllToAll;
  std::optional<size_t> dim, other;
  std::vector<TensorType> from, to;
  for (uint64_t n = kind == OpKind::kReduceScatter ? 1 : 1 + random_->Below(3); n != 0; --n) {
    const TensorType type = DividedType(parts, &dim, gathers ? 1 : size);
    if (exchanges && !other) other = random_->Below(type.dims.size());
    if (exchanges && *other >= type.dims.size()) continue;
    from.push_back(type);
    to.push_back(type);
    int64_t& divided = to.back().dims[*dim];
    divided = gathers ? divided * ranks : divided / ranks;
    if (exchanges) to.back().dims[*other] *= ranks;
  }
  std::vector<Attribute> attributes;
  if (kind == OpKind::kReduceScatter) attributes.push_back({Attr::kFold, RandomFold(from[0].data_type, random_)});
  attributes.push_back({exchanges ? Attr::kSplitDim : Attr::kDim, static_cast<int64_t>(*dim)});
  if (exchanges) attributes.push_back({Attr::kConcatDim, static_cast<int64_t>(*other)});
  Meet(kind, parts, from, to, attributes, Divide(classes, size));
}

void Meetings::AllReduce(const std::vector<size_t>& parts, const Groups& groups) {
  std::vector<TensorType> types = {AnyType(parts)};
  for (uint64_t more = random_->Below(3); more != 0; --more) {
    types.push_back(AnyType(parts));
    types.back().data_type = types[0].data_type;
  }
  Meet(OpKind::kAllReduce, parts, types, types, {{Attr::kFold, RandomFold(types[0].data_type, random_)}}, groups);
}

void Meetings::Meet(OpKind kind, const std::vector<size_t>& parts, const std::vector<TensorType>& from,
                    const std::vector<TensorType>& to, const std::vector<Attribute>& attributes, const Groups& groups,
                    const std::vector<int32_t>* last) {
  const Attribute channel{Attr::kChannel, Small(3)};
  for (const size_t p : parts) {
    std::vector<Id> operands;
    for (const TensorType& type : from) operands.push_back(makers_[p].Find(type));
    if (last != nullptr) {
      const TensorType type{DataType::kInt32, {static_cast<int64_t>(last->size())}};
      Literal literal;
      literal.bytes.resize(last->size() * sizeof(int32_t));
      std::memcpy(literal.bytes.data(), last->data(), literal.bytes.size());
      operands.push_back(makers_[p].Emit(OpKind::kConstant, {}, {type}, {{Attr::kValue, literal}})[0].id);
    }
    std::vector<Attribute> all = attributes;
    all.push_back({Attr::kGroups, WrittenBy(p, groups)});
    all.push_back(channel);
    makers_[p].Emit(kind, operands, to, all);
  }
}

// Pairs of ranks of one class, or of none.
void Meetings::Permute(const Scope& scope, const std::vector<size_t>& parts) {
  Ints sources = random_->Pick(ClassesOf(scope, parts)), targets = sources;
  Shuffle(&targets, random_);
  Groups pairs;
  const size_t count = random_->OneIn(2) ? sources.size() : random_->Below(sources.size() + 1);
  for (size_t i = 0; i < count; ++i) pairs.push_back({sources[i], targets[i]});
  const TensorType type = AnyType(parts);
  const Attribute channel{Attr::kChannel, Small(3)};
  for (const size_t p : parts)
    makers_[p].Emit(OpKind::kCollectivePermute, {makers_[p].Find(type)}, {type}, {{Attr::kPairs, pairs}, channel});
}

// ---- messages ----

Message Meetings::NewMessage(const Scope& scope, int64_t channel) {
  Message message{channel, random_->Pick(scope.parts), {}, {}};
  const Ints& targets = makers_[message.target].ranks();
  for (const Ints& members : ClassesOf(scope, scope.parts)) {
    size_t next = 0;  // as many sources as targets, from anywhere in the class
    for (const int64_t target : targets) {
      if (Has(members, target)) message.pairs.push_back({members[next++], target});
    }
  }
  message.type = AnyType({message.target});
  return message;
}

void Meetings::Send(const Scope& scope, const Message& message) {
  for (const size_t p : scope.parts) {
    Groups own = message.pairs;
    std::erase_if(own, [&](const Ints& pair) { return !Has(makers_[p].ranks(), pair[0]); });
    if (own.empty()) continue;
    makers_[p].Emit(OpKind::kSend, {makers_[p].Find(message.type)}, {},
                    {{Attr::kPairs, random_->OneIn(2) ? own : message.pairs}, {Attr::kChannel, message.channel}});
  }
}

void Meetings::Receive(const Message& message) {
  Groups pairs = message.pairs;
  Shuffle(&pairs, random_);
  makers_[message.target].Emit(OpKind::kRecv, {}, {message.type},
                               {{Attr::kPairs, pairs}, {Attr::kChannel, message.channel}});
}

void Meetings::SendSome(Scope* scope) {
  const Message message = NewMessage(*scope, random_->Pick(scope->channels));
  Send(*scope, message);
  scope->pending.push_back(message);
}

// The first message of some channel.
void Meetings::ReceiveSome(Scope* scope) {
  if (scope->pending.empty()) return SendSome(scope);
  const int64_t channel = random_->Pick(scope->pending).channel;
  const auto first = std::find_if(scope->pending.begin(), scope->pending.end(),
                                  [&](const Message& message) { return message.channel == channel; });
  Receive(*first);
  scope->pending.erase(first);
}

void Meetings::Drain(Scope* scope) {
  while (!scope->pending.empty()) ReceiveSome(scope);
}

}  // namespace axccl::program
