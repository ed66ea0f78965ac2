#include <algorithm>

#include "src/program/check/rules.h"

namespace axccl::program {
namespace {

// The numbers under which StableHLO has the constraints on groups. Null: the kind does not have it.
struct GroupRules {
  OpKind kind;
  const char *unique, *covers, *range;
  const char* equal_sizes;
};

constexpr GroupRules kGroupRules[] = {
    {OpKind::kAllGather, "(C2)", "(C3)", "(C4)", "(I3)"},
    {OpKind::kAllReduce, "(C1)", "(C2)", "(C3)", nullptr},
    {OpKind::kAllToAll, "(C5)", "(C6)", "(C7)", "(C8)"},
    {OpKind::kCollectiveBroadcast, "(C1)", nullptr, "(C2)", nullptr},
    {OpKind::kCollectiveBroadcastFrom, "(C1)", nullptr, "(C2)", nullptr},
    {OpKind::kCollectiveReduce, "(C1)", nullptr, "(C3)", nullptr},
    {OpKind::kCollectiveReduceTo, "(C1)", nullptr, "(C3)", nullptr},
    {OpKind::kReduceScatter, "(C3)", "(C4)", "(C5)", "(I3)"},
};

// A rank of `part` that `members`, which ascend, do not have, or -1.
int64_t MissingRank(const Part& part, const Ints& members) {
  for (const int64_t rank : part.ranks) {
    if (!std::binary_search(members.begin(), members.end(), rank)) return rank;
  }
  return -1;
}

Status CheckRange(const Site& site, int64_t rank, const char* constraint) {
  if (rank >= 0 && rank < site.program.ranks) return Status();
  return site.Fail(constraint,
                   "there is no rank " + std::to_string(rank) + " of " + std::to_string(site.program.ranks));
}

Status CheckGroups(const Site& site) {
  const auto rules = std::find_if(std::begin(kGroupRules), std::end(kGroupRules),
                                  [&](const GroupRules& row) { return row.kind == site.operation.kind; });
  const Groups& groups = Get<Groups>(site.operation, Attr::kGroups);
  Ints members;
  for (const Ints& group : groups) {
    if (rules->equal_sizes != nullptr && group.size() != groups[0].size())
      return site.Fail(rules->equal_sizes, "a group has " + std::to_string(group.size()) +
                                               " ranks, but the first one has " + std::to_string(groups[0].size()));
    for (const int64_t rank : group) {
      AXCCL_RETURN_IF_ERROR(CheckRange(site, rank, rules->range));
      members.push_back(rank);
    }
  }
  std::sort(members.begin(), members.end());
  const auto twice = std::adjacent_find(members.begin(), members.end());
  if (twice != members.end())
    return site.Fail(rules->unique, "rank " + std::to_string(*twice) + " is in the groups twice");
  const int64_t missing = rules->covers == nullptr ? -1 : MissingRank(site.part, members);
  return missing < 0 ? Status()
                     : site.Fail(rules->covers, "rank " + std::to_string(missing) + " of the part is in no group");
}

// The ranks of one side of the pairs: their sources (0) or targets (1).
Status CheckSide(const Site& site, size_t side, const char* unique, const char* range, Ints* ranks) {
  for (const Ints& pair : Get<Groups>(site.operation, Attr::kPairs)) {
    if (pair.size() != 2) return site.Fail("(C1)", "a pair has " + std::to_string(pair.size()) + " ranks");
    AXCCL_RETURN_IF_ERROR(CheckRange(site, pair[side], range));
    ranks->push_back(pair[side]);
  }
  std::sort(ranks->begin(), ranks->end());
  const auto twice = std::adjacent_find(ranks->begin(), ranks->end());
  if (twice == ranks->end()) return Status();
  return site.Fail(unique,
                   "rank " + std::to_string(*twice) + " is the " + (side == 0 ? "source" : "target") + " of two pairs");
}

Status CheckPairs(const Site& site, Ints* sources, Ints* targets) {
  AXCCL_RETURN_IF_ERROR(CheckSide(site, 0, "(C2)", "(C4)", sources));
  return CheckSide(site, 1, "(C3)", "(C4)", targets);
}

int64_t GroupSize(const Site& site) {
  return static_cast<int64_t>(Get<Groups>(site.operation, Attr::kGroups)[0].size());
}

Status CheckAllGather(const Site& site) {
  AXCCL_RETURN_IF_ERROR(CheckGroups(site));
  for (size_t i = 0; i < site.operands.size(); ++i) {
    TensorType gathered = site.operand(i);
    AXCCL_RETURN_IF_ERROR(CheckDim(site, Attr::kDim, Rank(gathered), "(C1)"));
    int64_t& size = gathered.dims[static_cast<size_t>(site.number(Attr::kDim))];
    size = Times(size, GroupSize(site));
    AXCCL_RETURN_IF_ERROR(site.ExpectResult(i, gathered, "(C6)"));
  }
  return Status();
}

Status CheckAllReduce(const Site& site) {
  AXCCL_RETURN_IF_ERROR(CheckGroups(site));
  for (size_t i = 0; i < site.operands.size(); ++i) {
    AXCCL_RETURN_IF_ERROR(CheckFold(site, site.operand(i).data_type, "(C5)"));
    AXCCL_RETURN_IF_ERROR(site.ExpectDataType(i, "(C5)"));  // one computation has one type
    AXCCL_RETURN_IF_ERROR(site.ExpectResult(i, site.operand(i), "(C6) (C7)"));
  }
  return Status();
}

// Divides the size along the dimension into as many parts as there are ranks in a group.
Status SplitDim(const Site& site, Attr attr, const char* divides, TensorType* type) {
  const auto dim = static_cast<size_t>(site.number(attr));
  if (type->dims[dim] % GroupSize(site) != 0)
    return site.Fail(divides, "the size " + std::to_string(type->dims[dim]) + " of dimension " + std::to_string(dim) +
                                  " cannot be divided among " + std::to_string(GroupSize(site)) + " ranks");
  type->dims[dim] /= GroupSize(site);
  return Status();
}

Status CheckAllToAll(const Site& site) {
  AXCCL_RETURN_IF_ERROR(CheckGroups(site));
  for (size_t i = 0; i < site.operands.size(); ++i) {
    TensorType type = site.operand(i);
    AXCCL_RETURN_IF_ERROR(CheckDim(site, Attr::kSplitDim, Rank(type), "(C1)"));
    AXCCL_RETURN_IF_ERROR(CheckDim(site, Attr::kConcatDim, Rank(type), "(C3)"));
    AXCCL_RETURN_IF_ERROR(SplitDim(site, Attr::kSplitDim, "(C2)", &type));
    int64_t& size = type.dims[static_cast<size_t>(site.number(Attr::kConcatDim))];
    size = Times(size, GroupSize(site));
    AXCCL_RETURN_IF_ERROR(site.ExpectResult(i, type, "(C9)"));
  }
  return Status();
}

Status CheckReduceScatter(const Site& site) {
  AXCCL_RETURN_IF_ERROR(CheckGroups(site));
  TensorType type = site.operand(0);
  AXCCL_RETURN_IF_ERROR(CheckFold(site, type.data_type, "(C7)"));
  AXCCL_RETURN_IF_ERROR(CheckDim(site, Attr::kDim, Rank(type), "(C2)"));
  AXCCL_RETURN_IF_ERROR(SplitDim(site, Attr::kDim, "(C1)", &type));
  return site.ExpectResult(0, type, "(C8) (C9)");
}

// The results have the types of the operands. A dynamic root is a number for each of them, behind them.
Status CheckRooted(const Site& site) {
  const OpKind kind = site.operation.kind;
  const bool is_dynamic = kind == OpKind::kCollectiveBroadcastFrom || kind == OpKind::kCollectiveReduceTo;
  const bool reduces = kind == OpKind::kCollectiveReduce || kind == OpKind::kCollectiveReduceTo;
  AXCCL_RETURN_IF_ERROR(CheckGroups(site));
  const size_t count = site.operation.results.size();
  if (is_dynamic)
    AXCCL_RETURN_IF_ERROR(
        site.ExpectOperand(count, {DataType::kInt32, {static_cast<int64_t>(count)}}, reduces ? "" : "(C4)"));
  for (size_t i = 0; i < count; ++i) {
    if (reduces) {
      AXCCL_RETURN_IF_ERROR(CheckFold(site, site.operand(i).data_type, "(C5)"));
      AXCCL_RETURN_IF_ERROR(site.ExpectDataType(i, "(C5)"));  // one computation has one type
    }
    AXCCL_RETURN_IF_ERROR(site.ExpectResult(i, site.operand(i), reduces ? "" : "(C3)"));
  }
  return Status();
}

Status CheckPermute(const Site& site) {
  Ints sources, targets;
  AXCCL_RETURN_IF_ERROR(CheckPairs(site, &sources, &targets));
  return site.ExpectResult(0, site.operand(0), "(C5)");
}

// Beyond StableHLO: a `send` of which no rank is a source does nothing, and what a rank gets from a `recv` of which it
// is not a target is undefined.
Status CheckSend(const Site& site) {
  Ints sources, targets;
  AXCCL_RETURN_IF_ERROR(CheckPairs(site, &sources, &targets));
  const bool sends = std::any_of(sources.begin(), sources.end(), [&](int64_t rank) {
    return std::binary_search(site.part.ranks.begin(), site.part.ranks.end(), rank);
  });
  return sends ? Status() : site.Fail("", "no rank of the part is the source of a pair");
}

Status CheckRecv(const Site& site) {
  Ints sources, targets;
  AXCCL_RETURN_IF_ERROR(CheckPairs(site, &sources, &targets));
  const int64_t missing = MissingRank(site.part, targets);
  return missing < 0 ? Status()
                     : site.Fail("", "rank " + std::to_string(missing) + " of the part is the target of no pair");
}

}  // namespace

Status CheckCollective(const Site& site) {
  switch (site.operation.kind) {
    case OpKind::kAllGather:
      return CheckAllGather(site);
    case OpKind::kAllReduce:
      return CheckAllReduce(site);
    case OpKind::kAllToAll:
      return CheckAllToAll(site);
    case OpKind::kCollectiveBroadcast:
    case OpKind::kCollectiveBroadcastFrom:
    case OpKind::kCollectiveReduce:
    case OpKind::kCollectiveReduceTo:
      return CheckRooted(site);
    case OpKind::kCollectivePermute:
      return CheckPermute(site);
    case OpKind::kReduceScatter:
      return CheckReduceScatter(site);
    case OpKind::kSend:
      return CheckSend(site);
    case OpKind::kRecv:
      return CheckRecv(site);
    default:  // partition_id, replica_id
      return site.ExpectResult(0, {DataType::kUint32, {}}, "");
  }
}

}  // namespace axccl::program
