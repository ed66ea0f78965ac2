#include "tests/collectives/group_cases.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace axccl::tests {
namespace {

using harness::Random;
using Ids = std::vector<int64_t>;

int64_t AnyDivisor(int64_t n, Random* random) {
  Ids divisors;
  for (int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return random->Pick(divisors);
}

Ids Shuffled(int64_t n, Random* random) {
  Ids ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random->Below(i)]);
  return ids;
}

// All ids or some of them, in any order, cut at random or into equal parts; or no lists at all.
void AnyLists(GroupCase* c, Random* random) {
  const bool of_ranks = c->mode == axcclFlattenedIds, of_partitions = c->mode == axcclCrossPartition;
  const int64_t domain = of_ranks ? c->replicas * c->partitions : of_partitions ? c->partitions : c->replicas;
  if (!of_ranks && random->OneIn(8)) return;
  Ids ids = Shuffled(domain, random);
  if (random->OneIn(4)) ids.resize(1 + random->Below(ids.size()));
  const bool equal = random->OneIn(2);
  const auto width = static_cast<size_t>(AnyDivisor(static_cast<int64_t>(ids.size()), random));
  c->lists.emplace_back();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0 && (equal ? i % width == 0 : random->OneIn(3))) c->lists.emplace_back();
    c->lists.back().push_back(ids[i]);
  }
  c->padded = random->OneIn(2);
}

void ExpandLists(GroupCase* c) {
  std::vector<Ids> lists = c->lists;
  if (lists.empty()) {
    lists.emplace_back(static_cast<size_t>(c->mode == axcclCrossPartition ? c->partitions : c->replicas));
    std::iota(lists[0].begin(), lists[0].end(), 0);
  }
  const auto rank = [&](int64_t r, int64_t p) { return static_cast<int>(r * c->partitions + p); };
  for (const Ids& list : lists) {
    switch (c->mode) {
      case axcclCrossReplica:
        for (int64_t p = 0; p < c->partitions; ++p) {
          c->groups.emplace_back();
          for (const int64_t r : list) c->groups.back().push_back(rank(r, p));
        }
        break;
      case axcclCrossPartition:
        for (int64_t r = 0; r < c->replicas; ++r) {
          c->groups.emplace_back();
          for (const int64_t p : list) c->groups.back().push_back(rank(r, p));
        }
        break;
      case axcclCrossReplicaAndPartition:
        c->groups.emplace_back();
        for (int64_t p = 0; p < c->partitions; ++p) {
          for (const int64_t r : list) c->groups.back().push_back(rank(r, p));
        }
        break;
      case axcclFlattenedIds:
        c->groups.emplace_back(list.begin(), list.end());
        break;
    }
  }
}

void AnyMesh(GroupCase* c, int nranks, Random* random) {
  for (int64_t rest = nranks; rest > 1 || c->axis_sizes.empty();) {
    const int64_t size = AnyDivisor(rest, random);
    if (size == 1 && !random->OneIn(3)) continue;
    // Few axes; the last one takes the remaining ranks.
    c->axis_sizes.push_back(c->axis_sizes.size() == 4 ? rest : size);
    rest /= c->axis_sizes.back();
  }
  if (random->OneIn(2)) c->devices = Shuffled(nranks, random);
  for (const int64_t axis : Shuffled(static_cast<int64_t>(c->axis_sizes.size()), random)) {
    if (random->OneIn(2)) continue;
    GroupCase::Ref ref{static_cast<int>(axis), 1, 0};
    const int64_t whole = c->axis_sizes[static_cast<size_t>(axis)];
    if (random->OneIn(2) && whole > 1) {
      ref.pre_size = AnyDivisor(whole, random);
      ref.size = AnyDivisor(whole / ref.pre_size, random);
    }
    // A sub-axis of size 1 counts as a whole axis.
    if (ref.size == 1) ref = {static_cast<int>(axis), 1, 0};
    c->refs.push_back(ref);
  }
}

// Devices whose coordinates differ only in the axes of the references form a group, ordered by these axes, the first
// slowest.
void ExpandMesh(GroupCase* c, int nranks) {
  std::map<Ids, std::map<Ids, int>> groups;  // by the coordinates outside the references, then by those inside
  for (int64_t i = 0; i < nranks; ++i) {
    Ids rest(c->axis_sizes.size()), key;
    int64_t left = i;
    for (size_t a = rest.size(); a-- > 0; left /= c->axis_sizes[a]) rest[a] = left % c->axis_sizes[a];
    for (const GroupCase::Ref& ref : c->refs) {
      int64_t& coordinate = rest[static_cast<size_t>(ref.axis)];
      const int64_t whole = c->axis_sizes[static_cast<size_t>(ref.axis)], size = ref.size == 0 ? whole : ref.size;
      const int64_t minor = whole / ref.pre_size / size;
      key.push_back(coordinate / minor % size);
      coordinate -= key.back() * minor;
    }
    groups[rest][key] = static_cast<int>(c->devices.empty() ? i : c->devices[static_cast<size_t>(i)]);
  }
  for (const auto& [rest, group] : groups) {
    c->groups.emplace_back();
    for (const auto& [key, rank] : group) c->groups.back().push_back(rank);
  }
}

}  // namespace

GroupCase AnyGroupCase(Random* random, int nranks) {
  GroupCase c;
  if (random->OneIn(4)) {
    AnyMesh(&c, nranks, random);
    ExpandMesh(&c, nranks);
    return c;
  }
  c.mode = static_cast<axcclGroupMode_t>(random->Below(4));
  c.replicas = AnyDivisor(nranks, random);
  c.partitions = nranks / c.replicas;
  AnyLists(&c, random);
  ExpandLists(&c);
  return c;
}

ncclResult_t GroupCase::Create(axcclGroups_t* out) const {
  if (!axis_sizes.empty()) {
    static constexpr const char* kNames[] = {"a", "b", "c", "d", "e"};
    std::vector<axcclMeshAxis_t> axes;
    for (const int64_t size : axis_sizes) axes.push_back({kNames[axes.size()], size});
    std::vector<axcclAxisRef_t> named;
    for (const Ref& ref : refs) named.push_back({kNames[ref.axis], ref.pre_size, ref.size});
    axcclMesh_t mesh = AXCCL_MESH_INITIALIZER;
    mesh.axes = axes.data(), mesh.num_axes = static_cast<int>(axes.size());
    mesh.device_ids = devices.empty() ? nullptr : devices.data(), mesh.num_device_ids = devices.size();
    return axcclGroupsCreateFromMesh(out, &mesh, named.data(), static_cast<int>(named.size()));
  }
  size_t width = 0;
  for (const Ids& list : lists) width = std::max(width, list.size());
  Ids ids;
  std::vector<size_t> offsets = {0};
  for (const Ids& list : lists) {
    ids.insert(ids.end(), list.begin(), list.end());
    if (padded) ids.resize(ids.size() + width - list.size(), -1);
    offsets.push_back(ids.size());
  }
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.mode = mode, spec.num_replicas = replicas, spec.num_partitions = partitions;
  spec.ids = ids.empty() ? nullptr : ids.data(), spec.num_groups = lists.size(), spec.group_size = width;
  spec.offsets = padded || lists.empty() ? nullptr : offsets.data();
  return axcclGroupsCreate(out, &spec);
}

std::string GroupCase::Text() const {
  std::string text = axis_sizes.empty() ? "mode " + std::to_string(mode) + " on a grid of " + std::to_string(replicas) +
                                              " x " + std::to_string(partitions)
                                        : "mesh of " + std::to_string(axis_sizes.size()) + " axes";
  for (const auto& group : groups) {
    text += " |";
    for (const int rank : group) text += " " + std::to_string(rank);
  }
  return text;
}

}  // namespace axccl::tests
