#include "src/program/facts.h"

#include <algorithm>
#include <set>

namespace axccl::program {
namespace {

void LearnTypes(const Function& function, IdTable<const TensorType*>* types) {
  for (const Value& argument : function.arguments) (*types)[argument.id] = &argument.type;
  for (const Operation& operation : function.operations) {
    for (const Function& region : operation.regions) LearnTypes(region, types);
    for (const Value& result : operation.results) (*types)[result.id] = &result.type;
  }
}

}  // namespace

bool IsCommunication(OpKind kind) {
  return kind >= OpKind::kAllGather && kind <= OpKind::kSend && kind != OpKind::kPartitionId &&
         kind != OpKind::kReplicaId;
}

bool IsMessage(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }

std::vector<Ints> MembersOf(const Operation& collective) {
  if (collective.kind != OpKind::kCollectivePermute) return Get<Groups>(collective, Attr::kGroups);
  std::set<int64_t> ranks;
  for (const Ints& pair : Get<Groups>(collective, Attr::kPairs)) ranks.insert(pair.begin(), pair.end());
  return {Ints(ranks.begin(), ranks.end())};
}

Ints GroupOf(const Operation& collective, int64_t rank) {
  for (const Ints& members : MembersOf(collective)) {
    if (std::find(members.begin(), members.end(), rank) != members.end()) return members;
  }
  return {};
}

IdTable<const TensorType*> TypesOf(const Function& function) {
  IdTable<const TensorType*> types;
  LearnTypes(function, &types);
  return types;
}

}  // namespace axccl::program
