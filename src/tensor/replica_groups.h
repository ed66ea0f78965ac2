// Replica groups as objects: from the ids a compiler writes to ordered groups of ranks.
//
// The words are StableHLO's (specification, "Process groups"; mesh axes: Shardy and the RFC of 2026-02-23). A grid has
// R x P processes; process (r, p) is rank r * P + p. A *mode* says what an id is and how id lists become groups:
//
//   mode                           an id is    list g becomes
//   kCrossReplica                  a replica   one group per partition p: the ranks (r, p) for r in g
//   kCrossPartition                a partition one group per replica r: the ranks (r, p) for p in g
//   kCrossReplicaAndPartition      a replica   one group: for p in 0..P-1, for r in g: the rank (r, p)
//   kFlattenedIds                  a rank      one group: the ranks of g
//
// The position in a group is the rank in the group: it determines the order of concatenation and of split parts, and
// position 0 is the default root. A request without lists stands for one list of all ids in ascending order, where the
// rules allow it.
//
// ReplicaGroups and PermutePairs are immutable values that own their memory; many threads may read them. IdLists,
// GroupRequest and the mesh structs borrow what they point to for the duration of a call. Nothing here communicates:
// every rank resolves the same request to the same groups. Resolving costs O(ids + ranks) and allocates. Resolve each
// request once, and look the result up by Hash() and == afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/plan/contract.h"

namespace axccl::tensor {

// Larger grids and meshes are refused rather than allocated.
inline constexpr int64_t kMaxRanks = int64_t{1} << 24;

struct Grid {
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;

  int64_t Ranks() const { return num_replicas * num_partitions; }
};

enum class GroupMode : uint8_t { kCrossReplica, kCrossPartition, kCrossReplicaAndPartition, kFlattenedIds };
inline constexpr int kNumGroupModes = 4;

const char* GroupModeName(GroupMode mode);  // "cross_replica", ... (StableHLO's words)
bool FindGroupMode(std::string_view name, GroupMode* mode);

// The mode that a compiler's (channel_id, use_global_device_ids) stands for:
//
//   kind                                            channel_id <= 0   > 0                           > 0, global ids
//   kAllGather kAllReduce kReduceScatter kReduce
//   kGather kScatter (ours, like the others)        cross_replica     cross_replica_and_partition   flattened_ids
//   kAllToAll kBroadcast kSendRecv (and permute)    cross_replica     cross_partition               an error
//
// Global ids without a positive channel are an error everywhere. For collective_reduce with a channel, StableHLO's text
// says cross_partition and its interpreter cross_replica_and_partition; this function follows the interpreter. A caller
// that needs another mode passes the mode itself.
Result<GroupMode> ModeOfChannel(const char* call, plan::Kind kind, int64_t channel_id, bool use_global_device_ids);

// Borrowed lists of ids, rectangular (-1 may pad short rows) or natively ragged.
class IdLists {
 public:
  IdLists() = default;
  // Precondition: `ids` holds whole rows of `width` ids.
  static IdLists Rectangular(std::span<const int64_t> ids, size_t width);
  // Row i is ids[offsets[i] .. offsets[i + 1]); `offsets` starts at 0, ends at ids.size() and never falls.
  static Result<IdLists> Ragged(const char* call, std::span<const int64_t> ids, std::span<const size_t> offsets);
  // Reads a tensor constant as compilers write it: replica_groups, or source_target_pairs of kSendRecv. Returns an
  // error unless the shape is rows x width.
  static Result<IdLists> FromTensor(const char* call, plan::Kind kind, std::span<const int64_t> ids,
                                    std::span<const int64_t> shape);

  size_t rows() const { return rows_; }
  std::span<const int64_t> row(size_t i) const;

 private:
  std::span<const int64_t> ids_;
  std::span<const size_t> offsets_;  // empty = rectangular
  size_t rows_ = 0;
  size_t width_ = 0;
};

// What a caller requires of the lists beyond what every group needs (ids in range, no duplicate, no empty group).
struct GroupRules {
  bool cover = false;                  // every id must be in some list; otherwise ranks may be in no group
  bool padding = true;                 // -1 is skipped
  bool uniform = false;                // all lists must have the same length
  bool implicit = true;                // no lists = one list of all ids, in modes other than kFlattenedIds
  std::optional<int64_t> split_count;  // the length that all lists must have
};

// The rules of StableHLO: the lists of all_gather, reduce_scatter and all_to_all cover all ids, have one length and no
// padding; the lists of all_reduce cover all ids and may be ragged; those of collective_broadcast and collective_reduce
// may leave processes out. So may those of kGather and kScatter (not in StableHLO). all_to_all accepts no empty list of
// lists; its caller must add the split_count.
GroupRules StableHloRules(plan::Kind kind);

struct GroupRequest {
  const char* call = nullptr;                // named in messages; null = the kind's name
  plan::Kind kind = plan::Kind::kAllReduce;  // whose constraints messages cite
  Grid grid;
  GroupMode mode = GroupMode::kFlattenedIds;
  IdLists ids;
  GroupRules rules;  // the defaults are the library's own: partial, padded, ragged and implicit groups are fine
};

class ReplicaGroups {
 public:
  // The place of a rank; group -1: the rank is in no group.
  struct Place {
    int group = -1;
    int position = -1;
    int size = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };

  static Result<ReplicaGroups> Make(const GroupRequest& request);

  int num_ranks() const { return static_cast<int>(places_.size()); }
  int num_groups() const { return static_cast<int>(begins_.size()) - 1; }
  // The ranks of a group in group order.
  std::span<const int32_t> Group(int group) const;
  // Precondition: 0 <= rank < num_ranks().
  Place PlaceOf(int rank) const;
  bool CoversAllRanks() const { return ranks_.size() == places_.size(); }

  // Two objects are equal when the same ranks communicate in the same order. The mode, padding and the order of the
  // groups do not matter. Equal objects have equal hashes.
  uint64_t Hash() const { return hash_; }
  friend bool operator==(const ReplicaGroups& a, const ReplicaGroups& b) { return a.Equals(b); }
  // The key of one group, under which callers look up the channel of a rank's group.
  static uint64_t GroupHash(std::span<const int32_t> ranks);

  // "[0 2] [1 3] of 4 ranks", the groups by ascending first rank (the same text for equal objects).
  std::string Text() const;

 private:
  struct Spot {
    int32_t group = -1;
    int32_t position = -1;
  };

  bool Equals(const ReplicaGroups& other) const;
  void Add(const GroupRequest& request, std::span<const int64_t> list);
  void Close();
  void Finish();

  std::vector<int32_t> ranks_;        // group after group
  std::vector<size_t> begins_ = {0};  // of the groups in ranks_, and the end
  std::vector<Spot> places_;          // of every rank
  uint64_t hash_ = 0;
};

// source_target_pairs of a permutation. Each row has two ids. A pair (s, t) makes one transfer per partition
// (kCrossReplica), one per replica (kCrossPartition) or a single one (kFlattenedIds); kCrossReplicaAndPartition has no
// meaning here. A source sends once and a target receives once; s = t is legal. Ranks that receive nothing hold zeros
// afterwards.
struct PairRequest {
  const char* call = nullptr;  // named in messages; null = "collective_permute"
  Grid grid;
  GroupMode mode = GroupMode::kFlattenedIds;
  IdLists pairs;
};

class PermutePairs {
 public:
  static Result<PermutePairs> Make(const PairRequest& request);

  int num_ranks() const { return static_cast<int>(targets_.size()); }
  // The rank that `rank` sends to or receives from; -1 = none. Precondition: 0 <= rank < num_ranks().
  int TargetOf(int rank) const { return targets_[static_cast<size_t>(rank)]; }
  int SourceOf(int rank) const { return sources_[static_cast<size_t>(rank)]; }

  uint64_t Hash() const { return hash_; }
  friend bool operator==(const PermutePairs& a, const PermutePairs& b) {
    return a.hash_ == b.hash_ && a.targets_ == b.targets_;
  }

 private:
  std::vector<int32_t> targets_;
  std::vector<int32_t> sources_;
  uint64_t hash_ = 0;
};

// A mesh: named axes, major to minor, and the device at each coordinate in row-major order (empty = 0, 1, 2, ...).
struct MeshAxis {
  std::string_view name;
  int64_t size = 1;
};

struct Mesh {
  std::span<const MeshAxis> axes;
  std::span<const int64_t> device_ids;
};

// An axis, or its part `(pre_size)size`: the axis is viewed as [pre_size, size, rest], and the part is the middle.
struct AxisRef {
  std::string_view name;
  int64_t pre_size = 1;
  int64_t size = 0;  // 0 = the whole axis
};

// Groups of ids for kFlattenedIds, all of one length.
struct IdTable {
  std::vector<int64_t> ids;
  size_t width = 0;

  IdLists lists() const { return IdLists::Rectangular(ids, width); }
};

// Returns the groups over which `axes` vary, in the order listed, the first slowest. The other axes and the remainders
// of sub-axes number the groups, in mesh order. Without axes, every device is a group of its own.
Result<IdTable> MeshGroups(const char* call, const Mesh& mesh, std::span<const AxisRef> axes);

// XLA's [num_groups,group_size]<=[reshape_dims]T(transpose_perm): 0, 1, 2, ... reshaped, transposed and cut into rows.
Result<IdTable> IotaGroups(const char* call, int64_t num_groups, int64_t group_size,
                           std::span<const int64_t> reshape_dims, std::span<const int64_t> transpose_perm);

}  // namespace axccl::tensor
