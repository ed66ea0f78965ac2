#include "src/algo/algo.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>

#include "src/algo/builder.h"
#include "src/algo/generators.h"
#include "src/algo/hierarchical.h"
#include "src/base/format.h"

namespace axccl::algo {

using plan::Contract;
using plan::Kind;

namespace {

using Names = std::vector<std::string_view>;
using Table = std::array<Names, plan::kNumKinds>;

struct Family {
  std::string_view name;
  plan::Schedule (*generate)(const Contract& contract, int lanes, std::span<const int> only);
};

constexpr Family kFamilies[] = {
    {"bruck", Bruck},     {kDirect, Direct},      {"nvls", Nvls},        {"nvls_oneshot", NvlsOneshot},
    {"oneshot", Oneshot}, {"pairwise", Pairwise}, {kPull, Pull},         {"push", Push},
    {"rhd", Rhd},         {kRing, Ring},          {kRingPull, RingPull}, {"tree", Tree},
    {"twoshot", Twoshot},
};
bool IsHierarchical(std::string_view algorithm) { return algorithm.starts_with(kHierarchical); }

// Limits on ranks. The larger one is for algorithms whose schedules do not grow with the square of the ranks.
constexpr int kMostRanks = 4096, kMostOfFewOps = 16384;

int MostRanks(Kind kind, std::string_view algorithm, bool for_some) {
  const bool by_two_trees = kind == Kind::kAllReduce || kind == Kind::kBroadcast || kind == Kind::kReduce;
  if (by_two_trees && (algorithm == "tree" || algorithm == "hierarchical_tree")) return kMostOfFewOps;
  const bool partly = for_some && !plan::HasRoot(kind) && (algorithm == "ring" || IsHierarchical(algorithm));
  return partly ? kMostOfFewOps : kMostRanks;
}

// Schedules number slots with 16 bits, and the verifier has a limit, too.
bool HasRoomForBundles(const plan::Placement& placement) {
  const int slots = BundleSlots(placement);
  return slots <= 0xffff && int64_t{slots} * placement.ranks() <= 1 << 23;
}

// The schedule for a group of one: copies the input to the output.
plan::Schedule Alone(const Contract& contract, std::string_view algorithm, int lanes) {
  Builder b(contract, algorithm, 1);
  const bool moves = plan::InputBlocks(contract, 0) > 0 && plan::OutputBlocks(contract, 0) > 0;
  if (moves) b.Copy(0, {Out(0)}, In(0), plan::Reduces(contract.kind) ? State::kFinal : State::kPartial);
  return b.Build(lanes);
}

Status CheckArguments(const Contract& c, std::string_view algorithm, int lanes, const plan::Placement& placement,
                      std::span<const int> only) {
  const char* kind = plan::KindName(c.kind);
  const int most = MostRanks(c.kind, algorithm, !only.empty());
  if (c.ranks < 1 || c.ranks > most) {
    return MakeStatus(Code::kInvalidArgument, "Generate(%s): %d ranks; must be 1 to %d for %.*s", kind, c.ranks, most,
                      static_cast<int>(algorithm.size()), algorithm.data());
  }
  for (size_t i = 0; i < only.size(); ++i) {
    if (only[i] < (i == 0 ? 0 : only[i - 1] + 1) || only[i] >= c.ranks)
      return MakeStatus(Code::kInvalidArgument,
                        "Generate(%s): the program of rank %d is asked for; programs must be of the %d ranks, "
                        "in ascending order",
                        kind, only[i], c.ranks);
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

const std::vector<std::string_view>& HierarchicalAlgorithms(Kind kind) {
  static const Table kTable = [] {
    Table table;
    const auto at = [&table](Kind k) -> Names& { return table[static_cast<size_t>(k)]; };
    for (int k = 0; k < plan::kNumKinds; ++k) {
      if (static_cast<Kind>(k) != Kind::kSendRecv) at(static_cast<Kind>(k)).push_back(kHierarchical);
    }
    const auto add = [&at](std::string_view name, std::initializer_list<Kind> kinds) {
      for (Kind k : kinds) at(k).push_back(name);
    };
    add("hierarchical_rhd", {Kind::kAllReduce, Kind::kReduceScatter});
    add("hierarchical_leader", {Kind::kAllReduce});
    add("hierarchical_bruck", {Kind::kAllReduce, Kind::kAllGather, Kind::kAllToAll, Kind::kBarrier});
    add("hierarchical_ring", {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter});
    add("hierarchical_tree", {Kind::kAllReduce, Kind::kBroadcast, Kind::kReduce});
    return table;
  }();
  return kTable[static_cast<size_t>(kind)];
}

std::vector<std::string_view> Algorithms(Kind kind, const plan::Placement& placement) {
  static const Table kFlat = [] {
    Table table;
    const auto at = [&table](Kind k) -> Names& { return table[static_cast<size_t>(k)]; };
    at(Kind::kAllReduce) = {"direct", "twoshot", "oneshot", "rhd", "ring", "tree", "pull", "ring_pull"};
    at(Kind::kBroadcast) = {"direct", "oneshot", "tree", "ring", "pull"};
    at(Kind::kReduce) = {"direct", "twoshot", "oneshot", "tree", "ring", "pull"};
    at(Kind::kAllGather) = {"direct", "oneshot", "bruck", "rhd", "ring", "pull", "ring_pull"};
    at(Kind::kReduceScatter) = {"direct", "oneshot", "pairwise", "rhd", "ring", "push"};
    at(Kind::kAllToAll) = {"direct", "oneshot", "pairwise", "bruck", "push"};
    at(Kind::kGather) = {"direct", "oneshot", "tree", "pull"};
    at(Kind::kScatter) = {"direct", "oneshot", "tree"};
    at(Kind::kSendRecv) = {"direct", "oneshot", "pull"};
    at(Kind::kBarrier) = {"oneshot"};
    return table;
  }();
  Names names = kFlat[static_cast<size_t>(kind)];
  if (!placement.has_levels()) return names;
  for (std::string_view name : HierarchicalAlgorithms(kind)) {
    if (kind != Kind::kAllToAll || name == kHierarchical || HasRoomForBundles(placement)) names.push_back(name);
  }
  return names;
}

const std::vector<std::string_view>& MulticastAlgorithms(Kind kind) {
  static const Names kAllReduce = {"nvls", "nvls_oneshot"}, kOthers = {"nvls"}, kNone;
  if (kind == Kind::kAllReduce) return kAllReduce;
  return kind == Kind::kReduceScatter || kind == Kind::kAllGather ? kOthers : kNone;
}

bool FoldsByMulticast(Kind kind, std::string_view algorithm) { return algorithm == "nvls" && plan::Reduces(kind); }

const std::vector<std::string_view>& AllAlgorithms() {
  static const Names kAll = [] {
    std::set<std::string_view> names;
    for (int k = 0; k < plan::kNumKinds; ++k) {
      const auto kind = static_cast<Kind>(k);
      for (const Names& some : {Algorithms(kind), HierarchicalAlgorithms(kind), MulticastAlgorithms(kind)})
        names.insert(some.begin(), some.end());
    }
    return Names(names.begin(), names.end());
  }();
  return kAll;
}

Result<plan::Schedule> Generate(const Contract& contract, std::string_view algorithm, int lanes,
                                const plan::Placement& placement, std::span<const int> only) {
  AXCCL_RETURN_IF_ERROR(CheckArguments(contract, algorithm, lanes, placement, only));
  Names known = Algorithms(contract.kind, placement);
  if (placement.machines() == 1) {
    const Names& multicast = MulticastAlgorithms(contract.kind);
    known.insert(known.end(), multicast.begin(), multicast.end());
  }
  if (std::find(known.begin(), known.end(), algorithm) == known.end()) {
    return MakeStatus(
        Code::kInvalidArgument, "Generate(%s): no algorithm '%.*s' for this kind%s; there is %s",
        plan::KindName(contract.kind), static_cast<int>(algorithm.size()), algorithm.data(),
        IsHierarchical(algorithm) ? " and placement (it takes several machines, one of several ranks)" : "",
        Join(known, ", ").c_str());
  }
  if (contract.ranks == 1) return Alone(contract, algorithm, lanes);
  if (IsHierarchical(algorithm)) return Hierarchical(contract, algorithm, placement, lanes, only);
  for (const Family& family : kFamilies) {
    if (family.name == algorithm)
      return family.generate(contract, lanes, HasRoot(contract.kind) ? std::span<const int>() : only);
  }
  return MakeStatus(Code::kInternalError, "Generate(%s): algorithm '%.*s' is listed but has no generator",
                    plan::KindName(contract.kind), static_cast<int>(algorithm.size()), algorithm.data());
}

const std::vector<std::string_view>& ChunkedAlgorithms(Kind kind) {
  static const Table kTable = [] {
    Table table;
    const auto at = [&table](Kind k) -> Names& { return table[static_cast<size_t>(k)]; };
    for (const Kind k : {Kind::kAllReduce, Kind::kBroadcast, Kind::kAllToAll, Kind::kSendRecv})
      at(k) = {kChunkedDirect, kChunkedStaged};
    for (const Kind k : {Kind::kAllGather, Kind::kReduceScatter})
      at(k) = {kChunkedDirect, kChunkedStaged, kChunkedRing};
    return table;
  }();
  return kTable[static_cast<size_t>(kind)];
}

namespace {

Status CheckOrder(Kind kind, std::string_view algorithm, ChunkOrder order) {
  const auto orders = ChunkOrders(kind, algorithm);
  if (order == ChunkOrder::kDefault || std::find(orders.begin(), orders.end(), order) != orders.end()) return Status();
  std::string known = "default";
  for (const ChunkOrder o : orders) known.append(", ").append(ChunkOrderName(o));
  return MakeStatus(Code::kInvalidArgument, "GenerateChunked(%s): order %s; for %.*s there is %s%s",
                    plan::KindName(kind), ChunkOrderName(order), static_cast<int>(algorithm.size()), algorithm.data(),
                    known.c_str(), orders.empty() ? ", as a rank has one block" : "");
}

}  // namespace

Result<plan::Schedule> GenerateChunked(const Contract& contract, std::string_view algorithm, const Chunking& chunking) {
  AXCCL_RETURN_IF_ERROR(CheckArguments(contract, algorithm, 1, {}, {}));
  const char* kind = plan::KindName(contract.kind);
  const auto& known = ChunkedAlgorithms(contract.kind);
  if (std::find(known.begin(), known.end(), algorithm) == known.end())
    return MakeStatus(Code::kInvalidArgument, "GenerateChunked(%s): no algorithm '%.*s' for this kind; there is %s",
                      kind, static_cast<int>(algorithm.size()), algorithm.data(),
                      known.empty() ? "none" : Join(known, ", ").c_str());
  AXCCL_RETURN_IF_ERROR(CheckOrder(contract.kind, algorithm, chunking.order));
  const int64_t parts = int64_t{chunking.slices} * (contract.kind == Kind::kAllReduce ? contract.ranks : 1);
  int64_t chunks = 0;
  for (int r = 0; r < contract.ranks; ++r)
    chunks = std::max<int64_t>(chunks, std::max(InputBlocks(contract, r), OutputBlocks(contract, r)));
  chunks *= chunking.slices;
  // Where each chunk is a signal of one endpoint, a turn has room for one less.
  const int most = plan::kMaxChunks - (algorithm == kChunkedStaged ? 1 : 0);
  if (chunking.slices >= 1 && parts <= std::numeric_limits<uint16_t>::max() && chunks <= most) {
    if (algorithm == kChunkedRing) return ChunkedRing(contract, chunking);
    return algorithm == kChunkedStaged ? ChunkedStaged(contract, chunking) : ChunkedDirect(contract, chunking);
  }
  return MakeStatus(Code::kInvalidArgument,
                    "GenerateChunked(%s): %d slices are %lld chunks and %lld parts; must be 1 to %d chunks, and up to "
                    "65535 parts",
                    kind, chunking.slices, static_cast<long long>(chunks), static_cast<long long>(parts), most);
}

bool Alike(const Contract& contract, std::string_view algorithm) {
  const bool paired = contract.kind == Kind::kSendRecv || HasRoot(contract.kind);
  if (paired || contract.ranks < 2 || algorithm == "tree" || IsHierarchical(algorithm)) return false;
  return algorithm != "rhd" || std::has_single_bit(static_cast<unsigned>(contract.ranks));
}

bool Complete(const plan::Schedule& schedule) {
  // All lanes follow the pattern of lane 0, so checking that one is enough.
  std::vector<const plan::Lane*> program;
  for (const auto& lanes : schedule.program) program.push_back(&lanes[0]);
  return AllContainAll(KnownBegins(program));
}

}  // namespace axccl::algo
