#include "src/algo/algo.h"

#include <algorithm>
#include <array>
#include <string>

#include "src/algo/builder.h"
#include "src/algo/generators.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;

namespace {

struct Family {
  std::string_view name;
  plan::Schedule (*generate)(const Contract& contract, int lanes);
};

constexpr Family kFamilies[] = {
    {"bruck", Bruck}, {"direct", Direct}, {"oneshot", Oneshot}, {"pairwise", Pairwise},
    {"pull", Pull},   {"push", Push},     {"rhd", Rhd},         {"ring", Ring},
    {"tree", Tree},   {"twoshot", Twoshot},
};

// A group of one: the input is the output.
plan::Schedule Alone(const Contract& contract, std::string_view algorithm, int lanes) {
  Builder b(contract, algorithm, 1);
  const bool moves = plan::InputBlocks(contract, 0) > 0 && plan::OutputBlocks(contract, 0) > 0;
  if (moves) b.Copy(0, {Out(0)}, In(0), plan::Reduces(contract.kind) ? State::kFinal : State::kPartial);
  return b.Build(lanes);
}

Status CheckArguments(const Contract& c, int lanes, const plan::Placement& placement) {
  const char* kind = plan::KindName(c.kind);
  if (c.ranks < 1 || c.ranks > 4096) {
    return MakeStatus(Code::kInvalidArgument, "Generate(%s): %d ranks; must be 1 to 4096", kind, c.ranks);
  }
  if (c.kind == Kind::kSendRecv && c.ranks != 2) {
    return MakeStatus(Code::kInvalidArgument, "Generate(%s): %d ranks; must be 2, the sender and the receiver", kind,
                      c.ranks);
  }
  if (c.root < 0 || c.root >= c.ranks || (!plan::HasRoot(c.kind) && c.root != 0)) {
    return MakeStatus(Code::kInvalidArgument, "Generate(%s): root %d; must be %s", kind, c.root,
                      plan::HasRoot(c.kind) ? "a rank of the group" : "0, the kind has no root");
  }
  if (!placement.is_flat() && placement.ranks() != c.ranks) {
    return MakeStatus(Code::kInvalidArgument, "Generate(%s): a placement of %d ranks; must be of all %d", kind,
                      placement.ranks(), c.ranks);
  }
  if (lanes < 1 || lanes > 1024) {
    return MakeStatus(Code::kInvalidArgument, "Generate(%s): %d lanes; must be 1 to 1024", kind, lanes);
  }
  return Status();
}

}  // namespace

const std::vector<std::string_view>& Algorithms(Kind kind, const plan::Placement& placement) {
  using Names = std::vector<std::string_view>;
  using Table = std::array<Names, plan::kNumKinds>;
  static const Table kFlat = [] {
    Table table;
    const auto at = [&table](Kind k) -> Names& { return table[static_cast<size_t>(k)]; };
    at(Kind::kAllReduce) = {"direct", "twoshot", "oneshot", "rhd", "ring", "tree"};
    at(Kind::kBroadcast) = {"direct", "oneshot", "tree", "ring"};
    at(Kind::kReduce) = {"direct", "twoshot", "oneshot", "tree", "ring"};
    at(Kind::kAllGather) = {"direct", "oneshot", "bruck", "rhd", "ring", "pull"};
    at(Kind::kReduceScatter) = {"direct", "oneshot", "pairwise", "rhd", "ring", "push"};
    at(Kind::kAllToAll) = {"direct", "oneshot", "pairwise", "bruck", "push"};
    at(Kind::kGather) = {"direct", "oneshot", "tree"};
    at(Kind::kScatter) = {"direct", "oneshot", "tree"};
    at(Kind::kSendRecv) = {"direct", "oneshot"};
    at(Kind::kBarrier) = {"oneshot"};
    return table;
  }();
  static const Table kWithLevels = [] {
    Table table = kFlat;
    for (int k = 0; k < plan::kNumKinds; ++k) {
      if (static_cast<Kind>(k) != Kind::kSendRecv) table[static_cast<size_t>(k)].push_back(kHierarchical);
    }
    return table;
  }();
  return (placement.has_levels() ? kWithLevels : kFlat)[static_cast<size_t>(kind)];
}

Result<plan::Schedule> Generate(const Contract& contract, std::string_view algorithm, int lanes,
                                const plan::Placement& placement) {
  AXCCL_RETURN_IF_ERROR(CheckArguments(contract, lanes, placement));
  const auto& known = Algorithms(contract.kind, placement);
  if (std::find(known.begin(), known.end(), algorithm) == known.end()) {
    std::string list;
    for (std::string_view name : known) list.append(list.empty() ? "" : ", ").append(name);
    return MakeStatus(Code::kInvalidArgument, "Generate(%s): no algorithm '%.*s' for this kind%s; there is %s",
                      plan::KindName(contract.kind), static_cast<int>(algorithm.size()), algorithm.data(),
                      algorithm == kHierarchical ? " and placement (it takes several machines, one of several ranks)" : "",
                      list.c_str());
  }
  if (contract.ranks == 1) return Alone(contract, algorithm, lanes);
  if (algorithm == kHierarchical) return Hierarchical(contract, placement, lanes);
  for (const Family& family : kFamilies) {
    if (family.name == algorithm) return family.generate(contract, lanes);
  }
  return MakeStatus(Code::kInternalError, "Generate(%s): algorithm '%.*s' is listed but has no generator",
                    plan::KindName(contract.kind), static_cast<int>(algorithm.size()), algorithm.data());
}

bool Complete(const plan::Schedule& schedule) {
  // All lanes follow the pattern of lane 0.
  std::vector<const plan::Lane*> program;
  for (const auto& lanes : schedule.program) program.push_back(&lanes[0]);
  return AllContainAll(KnownBegins(program));
}

}  // namespace axccl::algo
