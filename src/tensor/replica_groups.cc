#include "src/tensor/replica_groups.h"

#include <algorithm>
#include <array>
#include <cinttypes>

#include "src/base/hash.h"
#include "src/tensor/cite.h"

namespace axccl::tensor {

using plan::Kind;
using plan::KindName;

namespace {

constexpr const char* kModeNames[kNumGroupModes] = {"cross_replica", "cross_partition", "cross_replica_and_partition",
                                                    "flattened_ids"};

// The numbers of the constraints on groups in StableHLO's specification, so that a reader of a message can look them
// up. (For collective_reduce, the numbers of `unique` and `range` are those of all_reduce, whose text it follows.)
struct Citations {
  const char* unique = "";
  const char* cover = "";
  const char* range = "";
  const char* channel = "";
  const char* uniform = "";
  const char* shape = "";  // the attribute itself
};

constexpr Citations CitationsOf(Kind kind) {
  switch (kind) {
    case Kind::kAllGather:
      return {"(C2)", "(C3) (C4)", "(C4)", "(C5)", "(C6)", "(I3)"};
    case Kind::kAllReduce:
      return {"(C1)", "(C2) (C3)", "(C3)", "(C4)", "", "(I2)"};
    case Kind::kReduceScatter:
      return {"(C3)", "(C4) (C5)", "(C5)", "(C6)", "(C8)", "(I3)"};
    case Kind::kAllToAll:
      return {"(C5)", "(C6) (C7)", "(C7)", "", "(C8)", "(I5)"};
    case Kind::kBroadcast:
      return {"(C1)", "", "(C2)", "", "", "(I2)"};
    case Kind::kReduce:
      return {"(C1)", "(C2) (C3)", "(C3)", "(C4)", "", "(I2)"};
    case Kind::kSendRecv:
      return {"(C2) (C3)", "", "(C4)", "", "", "(I2)"};
    default:
      return {};
  }
}

const char* IdWord(GroupMode mode) {
  switch (mode) {
    case GroupMode::kCrossReplica:
    case GroupMode::kCrossReplicaAndPartition:
      return "replica id";
    case GroupMode::kCrossPartition:
      return "partition id";
    case GroupMode::kFlattenedIds:
      return "global id";
  }
  return "id";
}

int64_t IdSpace(const Grid& grid, GroupMode mode) {
  switch (mode) {
    case GroupMode::kCrossReplica:
    case GroupMode::kCrossReplicaAndPartition:
      return grid.num_replicas;
    case GroupMode::kCrossPartition:
      return grid.num_partitions;
    case GroupMode::kFlattenedIds:
      return grid.Ranks();
  }
  return 0;
}

Status CheckGrid(const char* call, const Grid& grid) {
  const int64_t r = grid.num_replicas, p = grid.num_partitions;
  if (r >= 1 && p >= 1 && r <= kMaxRanks / p) return Status();
  return MakeStatus(Code::kInvalidArgument,
                    "%s: the grid is %" PRId64 " replicas x %" PRId64
                    " partitions; both must be at least 1 and their product at most %" PRId64,
                    call, r, p, kMaxRanks);
}

// Explains why an id that is not in the id space is refused, and what the caller may have meant.
Status OutOfRange(const char* call, Kind kind, GroupMode mode, const Grid& grid, const std::string& where, int64_t id) {
  const int64_t n = IdSpace(grid, mode);
  const char* hint = "";
  if (id == -1 && kind != Kind::kSendRecv) hint = "; -1 pads short rows only where ragged groups are legal";
  if (id >= n && id < grid.Ranks())
    hint =
        "; ids of all processes need the mode flattened_ids (a channel and "
        "use_global_device_ids)";
  return MakeStatus(Code::kInvalidArgument,
                    "%s: %s %" PRId64 " in %s is out of range: in mode %s the ids of a grid of %" PRId64
                    " replicas x %" PRId64 " partitions are 0..%" PRId64 "%s%s",
                    call, IdWord(mode), id, where.c_str(), GroupModeName(mode), grid.num_replicas, grid.num_partitions,
                    n - 1, hint, Cite(kind, CitationsOf(kind).range).c_str());
}

const char* CallOf(const GroupRequest& request) {
  return request.call != nullptr ? request.call : KindName(request.kind);
}

// Checks the lengths that the rules require; `lengths` do not count padding.
Status CheckLengths(const GroupRequest& q, const std::vector<size_t>& lengths) {
  const GroupRules& rules = q.rules;
  const char* call = CallOf(q);
  const std::string cite = Cite(q.kind, CitationsOf(q.kind).uniform);
  if (rules.split_count) {
    if (*rules.split_count < 1)
      return MakeStatus(Code::kInvalidArgument, "%s: split_count is %" PRId64 ", it must be positive%s", call,
                        *rules.split_count, q.kind == Kind::kAllToAll ? Cite(q.kind, "(C4)").c_str() : "");
    if (lengths.empty())
      return MakeStatus(Code::kInvalidArgument,
                        "%s: replica_groups is empty, so its group size is not split_count %" PRId64
                        "; list the groups%s",
                        call, *rules.split_count, cite.c_str());
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (lengths[i] == static_cast<uint64_t>(*rules.split_count)) continue;
      return MakeStatus(Code::kInvalidArgument,
                        "%s: group %zu has %zu members, the group size must be split_count %" PRId64 "%s", call, i,
                        lengths[i], *rules.split_count, cite.c_str());
    }
  }
  if (!rules.uniform) return Status();
  for (size_t i = 1; i < lengths.size(); ++i) {
    if (lengths[i] == lengths[0]) continue;
    return MakeStatus(Code::kInvalidArgument,
                      "%s: group %zu has %zu members and group 0 has %zu, all groups must have one size%s", call, i,
                      lengths[i], lengths[0], cite.c_str());
  }
  return Status();
}

// Checks one row: every id must be in range and new. `seen[id]` is 1 + the row that has it. Counts the members.
Status CheckRow(const GroupRequest& q, size_t row, std::vector<uint32_t>* seen, size_t* members) {
  const char* call = CallOf(q);
  const int64_t n = static_cast<int64_t>(seen->size());
  const std::span<const int64_t> ids = q.ids.row(row);
  *members = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t id = ids[i];
    if (id == -1 && q.rules.padding) continue;
    if (id < 0 || id >= n)
      return OutOfRange(call, q.kind, q.mode, q.grid,
                        "group " + std::to_string(row) + " at position " + std::to_string(i), id);
    uint32_t& mark = (*seen)[static_cast<size_t>(id)];
    if (mark != 0)
      return MakeStatus(Code::kInvalidArgument,
                        "%s: %s %" PRId64
                        " is in group %u and again in group %zu at position %zu; a process belongs "
                        "to one group and once, list the id once%s",
                        call, IdWord(q.mode), id, mark - 1, row, i, Cite(q.kind, CitationsOf(q.kind).unique).c_str());
    mark = static_cast<uint32_t>(row) + 1;
    ++*members;
  }
  if (*members != 0) return Status();
  return MakeStatus(Code::kInvalidArgument, "%s: group %zu has no member; leave the group out%s", call, row,
                    Cite(q.kind, CitationsOf(q.kind).shape).c_str());
}

Status CheckLists(const GroupRequest& q) {
  const char* call = CallOf(q);
  const int64_t n = IdSpace(q.grid, q.mode);
  // Each list needs an id that no other list has.
  if (q.ids.rows() > static_cast<uint64_t>(n))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %zu groups, but in mode %s there are only %" PRId64 " ids; every group needs its own%s",
                      call, q.ids.rows(), GroupModeName(q.mode), n, Cite(q.kind, CitationsOf(q.kind).unique).c_str());
  std::vector<uint32_t> seen(static_cast<size_t>(n));
  std::vector<size_t> lengths(q.ids.rows());
  for (size_t row = 0; row < q.ids.rows(); ++row) AXCCL_RETURN_IF_ERROR(CheckRow(q, row, &seen, &lengths[row]));
  AXCCL_RETURN_IF_ERROR(CheckLengths(q, lengths));
  if (q.ids.rows() == 0) {
    if (q.rules.implicit && q.mode != GroupMode::kFlattenedIds) return Status();
    return MakeStatus(Code::kInvalidArgument, "%s: replica_groups is empty, in mode %s%s; list the groups%s", call,
                      GroupModeName(q.mode), q.rules.implicit ? " it has no meaning" : " of this call it may not be",
                      Cite(q.kind, CitationsOf(q.kind).range).c_str());
  }
  if (!q.rules.cover) return Status();
  for (size_t id = 0; id < seen.size(); ++id) {
    if (seen[id] != 0) continue;
    return MakeStatus(Code::kInvalidArgument,
                      "%s: %s %zu is in no group, but the groups must cover all ids 0..%" PRId64 " of mode %s%s", call,
                      IdWord(q.mode), id, n - 1, GroupModeName(q.mode),
                      Cite(q.kind, CitationsOf(q.kind).cover).c_str());
  }
  return Status();
}

// By side (source, target) and id: 1 + the pair that has the id.
using SeenPairs = std::array<std::vector<size_t>, 2>;

Status CheckPair(const char* call, const PairRequest& q, size_t i, SeenPairs* seen) {
  const std::span<const int64_t> pair = q.pairs.row(i);
  if (pair.size() != 2)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: row %zu of source_target_pairs has %zu ids; a pair is a source and a target "
                      "[StableHLO collective_permute (C1)]",
                      call, i, pair.size());
  for (size_t side = 0; side < 2; ++side) {
    const char* word = side == 0 ? "source" : "target";
    const int64_t id = pair[side];
    if (id < 0 || id >= IdSpace(q.grid, q.mode))
      return OutOfRange(call, Kind::kSendRecv, q.mode, q.grid,
                        "the " + std::string(word) + " of pair " + std::to_string(i), id);
    size_t& mark = (*seen)[side][static_cast<size_t>(id)];
    if (mark != 0)
      return MakeStatus(Code::kInvalidArgument,
                        "%s: duplicate %s: %s %" PRId64
                        " is the %s of pair %zu and of pair %zu; a process sends once "
                        "and receives once [StableHLO collective_permute %s]",
                        call, word, IdWord(q.mode), id, word, mark - 1, i, side == 0 ? "(C2)" : "(C3)");
    mark = i + 1;
  }
  return Status();
}

}  // namespace

const char* GroupModeName(GroupMode mode) {
  const int i = static_cast<int>(mode);
  return i < kNumGroupModes ? kModeNames[i] : "unknown";
}

bool FindGroupMode(std::string_view name, GroupMode* mode) {
  for (int i = 0; i < kNumGroupModes; ++i) {
    if (name != kModeNames[i]) continue;
    *mode = static_cast<GroupMode>(i);
    return true;
  }
  return false;
}

Result<GroupMode> ModeOfChannel(const char* call, Kind kind, int64_t channel_id, bool use_global_device_ids) {
  if (call == nullptr) call = KindName(kind);
  const bool by_partition = kind == Kind::kAllToAll || kind == Kind::kBroadcast || kind == Kind::kSendRecv;
  if (use_global_device_ids && by_partition)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: use_global_device_ids is set, but this operation has ids of replicas (channel_id <= 0) or "
                      "of partitions (channel_id > 0) only; clear it, or give the mode flattened_ids itself",
                      call);
  if (use_global_device_ids && channel_id <= 0)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: use_global_device_ids is set and channel_id is %" PRId64
                      "; channel_id must be positive with it%s",
                      call, channel_id, Cite(kind, CitationsOf(kind).channel).c_str());
  if (use_global_device_ids) return GroupMode::kFlattenedIds;
  if (channel_id <= 0) return GroupMode::kCrossReplica;
  return by_partition ? GroupMode::kCrossPartition : GroupMode::kCrossReplicaAndPartition;
}

IdLists IdLists::Rectangular(std::span<const int64_t> ids, size_t width) {
  IdLists lists;
  lists.ids_ = ids;
  lists.width_ = width;
  lists.rows_ = width == 0 ? 0 : ids.size() / width;
  return lists;
}

Result<IdLists> IdLists::Ragged(const char* call, std::span<const int64_t> ids, std::span<const size_t> offsets) {
  const bool ends = offsets.empty() ? ids.empty() : offsets.front() == 0 && offsets.back() == ids.size();
  if (!ends || !std::is_sorted(offsets.begin(), offsets.end()))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: the offsets of the groups go from %zu to %zu for %zu ids; they must start at 0, never fall "
                      "and end at the number of ids",
                      call, offsets.empty() ? 0 : offsets.front(), offsets.empty() ? 0 : offsets.back(), ids.size());
  IdLists lists;
  lists.ids_ = ids;
  lists.offsets_ = offsets;
  lists.rows_ = offsets.empty() ? 0 : offsets.size() - 1;
  return lists;
}

Result<IdLists> IdLists::FromTensor(const char* call, Kind kind, std::span<const int64_t> ids,
                                    std::span<const int64_t> shape) {
  std::string text;
  for (int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  const bool pairs = kind == Kind::kSendRecv;
  const char* attribute = pairs ? "source_target_pairs" : "replica_groups";
  if (shape.size() != 2)
    return MakeStatus(Code::kInvalidArgument, "%s: %s has %zu dimensions (shape [%s]); it must have 2, %s%s", call,
                      attribute, shape.size(), text.c_str(), pairs ? "(pairs, 2)" : "(groups, ids of a group)",
                      Cite(kind, CitationsOf(kind).shape).c_str());
  const size_t rows = static_cast<size_t>(shape[0]), width = static_cast<size_t>(shape[1]);
  const bool agree = width == 0 ? ids.empty() : ids.size() % width == 0 && ids.size() / width == rows;
  if (shape[0] < 0 || shape[1] < 0 || !agree)
    return MakeStatus(Code::kInvalidArgument, "%s: %s has %zu ids, its shape is [%s]; they must agree", call, attribute,
                      ids.size(), text.c_str());
  return Rectangular(ids, width);
}

std::span<const int64_t> IdLists::row(size_t i) const {
  if (offsets_.empty()) return ids_.subspan(i * width_, width_);
  return ids_.subspan(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

GroupRules StableHloRules(Kind kind) {
  GroupRules rules;
  rules.cover =
      kind == Kind::kAllGather || kind == Kind::kReduceScatter || kind == Kind::kAllToAll || kind == Kind::kAllReduce;
  rules.padding = kind == Kind::kAllReduce;
  rules.uniform = kind == Kind::kAllGather || kind == Kind::kReduceScatter || kind == Kind::kAllToAll;
  rules.implicit = kind != Kind::kAllToAll;
  return rules;
}

// Appends the ranks of one list of ids; closes a group wherever the mode ends one.
void ReplicaGroups::Add(const GroupRequest& q, std::span<const int64_t> list) {
  const int64_t replicas = q.grid.num_replicas, partitions = q.grid.num_partitions;
  const auto add = [&](int64_t rank) { ranks_.push_back(static_cast<int32_t>(rank)); };
  switch (q.mode) {
    case GroupMode::kCrossReplica:
    case GroupMode::kCrossReplicaAndPartition:
      for (int64_t p = 0; p < partitions; ++p) {
        for (int64_t r : list) {
          if (r >= 0) add(r * partitions + p);
        }
        if (q.mode == GroupMode::kCrossReplica) Close();
      }
      if (q.mode == GroupMode::kCrossReplicaAndPartition) Close();
      return;
    case GroupMode::kCrossPartition:
      for (int64_t r = 0; r < replicas; ++r) {
        for (int64_t p : list) {
          if (p >= 0) add(r * partitions + p);
        }
        Close();
      }
      return;
    case GroupMode::kFlattenedIds:
      for (int64_t id : list) {
        if (id >= 0) add(id);
      }
      Close();
      return;
  }
}

void ReplicaGroups::Close() { begins_.push_back(ranks_.size()); }

void ReplicaGroups::Finish() {
  hash_ = Mix(kHashSeed, places_.size());
  for (int g = 0; g < num_groups(); ++g) {
    const std::span<const int32_t> group = Group(g);
    // A sum, so that the hash does not depend on the order of the groups.
    hash_ += GroupHash(group);
    for (size_t i = 0; i < group.size(); ++i)
      places_[static_cast<size_t>(group[i])] = {static_cast<int32_t>(g), static_cast<int32_t>(i)};
  }
}

Result<ReplicaGroups> ReplicaGroups::Make(const GroupRequest& q) {
  AXCCL_RETURN_IF_ERROR(CheckGrid(CallOf(q), q.grid));
  AXCCL_RETURN_IF_ERROR(CheckLists(q));
  ReplicaGroups groups;
  groups.places_.resize(static_cast<size_t>(q.grid.Ranks()));
  groups.ranks_.reserve(groups.places_.size());
  if (q.ids.rows() == 0) {
    std::vector<int64_t> all(static_cast<size_t>(IdSpace(q.grid, q.mode)));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    groups.Add(q, all);
  }
  for (size_t row = 0; row < q.ids.rows(); ++row) groups.Add(q, q.ids.row(row));
  groups.Finish();
  return groups;
}

std::span<const int32_t> ReplicaGroups::Group(int group) const {
  const size_t g = static_cast<size_t>(group);
  return std::span<const int32_t>(ranks_).subspan(begins_[g], begins_[g + 1] - begins_[g]);
}

ReplicaGroups::Place ReplicaGroups::PlaceOf(int rank) const {
  const Spot spot = places_[static_cast<size_t>(rank)];
  if (spot.group < 0) return {};
  return {spot.group, spot.position, static_cast<int>(Group(spot.group).size())};
}

uint64_t ReplicaGroups::GroupHash(std::span<const int32_t> ranks) {
  uint64_t hash = Mix(kHashSeed, ranks.size());
  for (int32_t rank : ranks) hash = Mix(hash, static_cast<uint64_t>(rank));
  return hash;
}

bool ReplicaGroups::Equals(const ReplicaGroups& other) const {
  if (hash_ != other.hash_ || num_groups() != other.num_groups() || places_.size() != other.places_.size() ||
      ranks_.size() != other.ranks_.size())
    return false;
  for (int g = 0; g < num_groups(); ++g) {
    const std::span<const int32_t> mine = Group(g);
    const Spot spot = other.places_[static_cast<size_t>(mine[0])];
    if (spot.position != 0) return false;
    const std::span<const int32_t> theirs = other.Group(spot.group);
    if (!std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end())) return false;
  }
  return true;
}

std::string ReplicaGroups::Text() const {
  std::string text;
  for (size_t rank = 0; rank < places_.size(); ++rank) {
    if (places_[rank].position != 0) continue;
    text += "[";
    for (int32_t member : Group(places_[rank].group)) text += std::to_string(member) + " ";
    text.back() = ']';
    text += " ";
  }
  return text + "of " + std::to_string(places_.size()) + " ranks";
}

Result<PermutePairs> PermutePairs::Make(const PairRequest& q) {
  const char* call = q.call != nullptr ? q.call : "collective_permute";
  AXCCL_RETURN_IF_ERROR(CheckGrid(call, q.grid));
  if (q.mode == GroupMode::kCrossReplicaAndPartition)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: mode cross_replica_and_partition does not say which rank a pair means; use cross_replica, "
                      "cross_partition or flattened_ids",
                      call);
  const int64_t n = IdSpace(q.grid, q.mode), partitions = q.grid.num_partitions;
  // The ranks that an id stands for, one per copy.
  const auto rank_of = [&](int64_t id, int64_t copy) {
    if (q.mode == GroupMode::kCrossReplica) return id * partitions + copy;
    return q.mode == GroupMode::kCrossPartition ? copy * partitions + id : id;
  };
  SeenPairs seen;
  for (std::vector<size_t>& side : seen) side.resize(static_cast<size_t>(n));
  PermutePairs result;
  result.targets_.assign(static_cast<size_t>(q.grid.Ranks()), -1);
  result.sources_ = result.targets_;
  for (size_t i = 0; i < q.pairs.rows(); ++i) {
    AXCCL_RETURN_IF_ERROR(CheckPair(call, q, i, &seen));
    const std::span<const int64_t> pair = q.pairs.row(i);
    for (int64_t copy = 0; copy < q.grid.Ranks() / n; ++copy) {
      const int64_t source = rank_of(pair[0], copy), target = rank_of(pair[1], copy);
      result.targets_[static_cast<size_t>(source)] = static_cast<int32_t>(target);
      result.sources_[static_cast<size_t>(target)] = static_cast<int32_t>(source);
    }
  }
  result.hash_ = Mix(kHashSeed, result.targets_.size());
  for (int32_t target : result.targets_) result.hash_ = Mix(result.hash_, static_cast<uint32_t>(target));
  return result;
}

}  // namespace axccl::tensor
