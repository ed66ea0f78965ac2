#include "src/program/check/shared_values.h"

#include <algorithm>

namespace axccl::program {

SharedValues::SharedValues(const Part& part) : part_(part) {
  for (const Value& argument : part.function.arguments) {
    if (!argument.type.dims.empty()) Lower(argument.id, kOwn);
  }
  ReadFunction(part.function);
  Propagate();
}

void SharedValues::ReadFunction(const Function& function) {
  for (const Operation& operation : function.operations) {
    for (const Function& region : operation.regions) ReadFunction(region);
    ReadOperation(operation);
  }
}

void SharedValues::ReadWhile(const Operation& operation) {
  const Function &cond = operation.regions[0], &body = operation.regions[1];
  for (size_t i = 0; i < operation.operands.size(); ++i) {
    for (const Id from : {operation.operands[i], body.results[i]}) {
      Connect(from, cond.arguments[i].id);
      Connect(from, body.arguments[i].id);
      Connect(from, operation.results[i].id);
    }
    Connect(cond.results[0], operation.results[i].id);
  }
}

void SharedValues::ReadOperation(const Operation& operation) {
  switch (operation.kind) {
    case OpKind::kPartitionId:
    case OpKind::kReplicaId:
    case OpKind::kRecv:
    case OpKind::kAllToAll:
    case OpKind::kCollectivePermute:
    case OpKind::kCollectiveReduce:
    case OpKind::kCollectiveReduceTo:
    case OpKind::kReduceScatter:
      for (const Value& result : operation.results) Lower(result.id, kOwn);
      return;
    case OpKind::kAllGather:
    case OpKind::kAllReduce:
    case OpKind::kCollectiveBroadcast:
    case OpKind::kCollectiveBroadcastFrom: {
      const int sharing = SharingOf(Get<Groups>(operation, Attr::kGroups));
      for (const Value& result : operation.results) Lower(result.id, sharing);
      return;
    }
    case OpKind::kWhile:
      return ReadWhile(operation);
    case OpKind::kOptimizationBarrier:
      for (size_t i = 0; i < operation.operands.size(); ++i) Connect(operation.operands[i], operation.results[i].id);
      return;
    case OpKind::kIf:
      for (const Function& region : operation.regions) {
        for (size_t i = 0; i < operation.results.size(); ++i) Connect(region.results[i], operation.results[i].id);
      }
      break;
    default:
      break;
  }
  for (const Id operand : operation.operands) {
    for (const Value& result : operation.results) Connect(operand, result.id);
  }
}

int SharedValues::SharingOf(const Groups& groups) {
  const auto [known, is_new] = known_groups_.emplace(groups, kFirstGroups + static_cast<int>(groups_.size()));
  if (!is_new) return known->second;
  NumberOfRank numbers;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const int64_t rank : groups[i]) numbers[rank] = i;
  }
  const auto number_of = [&](int64_t rank) {
    const auto found = numbers.find(rank);
    return found == numbers.end() ? groups.size() : found->second;
  };
  const bool is_one = std::all_of(part_.ranks.begin(), part_.ranks.end(),
                                  [&](int64_t rank) { return number_of(rank) == number_of(part_.ranks[0]); });
  if (is_one) return known->second = kAll;
  groups_.push_back(std::move(numbers));
  return known->second;
}

void SharedValues::Lower(Id value, int sharing) {
  int& now = sharing_[value];
  if (sharing == kAll || sharing == now || now == kOwn) return;
  now = now == kAll ? sharing : kOwn;
  lowered_.push_back(value);
}

void SharedValues::Propagate() {
  while (!lowered_.empty()) {
    const Id value = lowered_.back();
    lowered_.pop_back();
    const int sharing = sharing_.at(value);
    const auto users = users_.find(value);
    if (users == users_.end()) continue;
    for (const Id user : users->second) Lower(user, sharing);
  }
}

int64_t SharedValues::OtherRank(Id value, const Ints& members) const {
  const auto found = sharing_.find(value);
  const int sharing = found == sharing_.end() ? kAll : found->second;
  if (sharing == kAll) return -1;
  if (sharing == kOwn) {
    const auto other = std::find_if(members.begin(), members.end(), [&](int64_t rank) { return rank != members[0]; });
    return other == members.end() ? -1 : *other;
  }
  const NumberOfRank& numbers = groups_[static_cast<size_t>(sharing - kFirstGroups)];
  const auto first = numbers.find(members[0]);
  for (const int64_t rank : members) {
    const auto number = numbers.find(rank);
    const bool is_equal =
        number == numbers.end() || first == numbers.end() ? number == first : number->second == first->second;
    if (!is_equal) return rank;
  }
  return -1;
}

std::vector<Ints> SharedValues::SetsOf(Id value) const {
  const auto found = sharing_.find(value);
  const int sharing = found == sharing_.end() ? kAll : found->second;
  std::map<size_t, Ints> sets;
  if (sharing == kAll) {
    sets[0] = part_.ranks;
  } else if (sharing != kOwn) {
    const NumberOfRank& numbers = groups_[static_cast<size_t>(sharing - kFirstGroups)];
    for (const int64_t rank : part_.ranks) {
      const auto number = numbers.find(rank);
      sets[number == numbers.end() ? SIZE_MAX : number->second].push_back(rank);
    }
  }
  std::vector<Ints> result;
  for (auto& [number, ranks] : sets) {
    if (ranks.size() > 1) result.push_back(std::move(ranks));
  }
  return result;
}

}  // namespace axccl::program
