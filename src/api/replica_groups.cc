// channels.h: replica groups.
#include "src/tensor/replica_groups.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "axccl/channels.h"
#include "src/api/calls.h"
#include "src/api/channels.h"
#include "src/api/context.h"
#include "src/api/export.h"

namespace axccl::api {
namespace {

using plan::Kind;

struct Rules {
  const char* call;  // what messages name
  Kind kind;
};
constexpr Rules kRules[] = {
    {"axcclGroupsCreate", Kind::kBarrier}, {"all_gather", Kind::kAllGather},
    {"all_reduce", Kind::kAllReduce},      {"reduce_scatter", Kind::kReduceScatter},
    {"all_to_all", Kind::kAllToAll},       {"collective_broadcast", Kind::kBroadcast},
    {"collective_reduce", Kind::kReduce},
};

Status Keep(axcclGroups_t* out, const tensor::GroupRequest& request) {
  AXCCL_ASSIGN_OR_RETURN(tensor::ReplicaGroups groups, tensor::ReplicaGroups::Make(request));
  auto object = std::make_shared<GroupsObject>(GroupsObject{std::move(groups), request.grid});
  return Insert(&GroupsTable(), request.call, "groups of ranks", std::move(object), out);
}

Status FromSpec(const char* name, axcclGroups_t* out, const axcclGroupSpec_t& spec) {
  const unsigned mode = static_cast<unsigned>(spec.mode), rules = static_cast<unsigned>(spec.rules);
  if (mode >= tensor::kNumGroupModes)
    return MakeStatus(Code::kInvalidArgument, "%s: the mode is %d; pass one of axcclGroupMode_t (0..%d)", name,
                      static_cast<int>(mode), tensor::kNumGroupModes - 1);
  if (rules >= std::size(kRules))
    return MakeStatus(Code::kInvalidArgument, "%s: the rules are %d; pass one of axcclGroupRules_t (0..%zu)", name,
                      static_cast<int>(rules), std::size(kRules) - 1);
  const std::string call = rules == 0 ? name : std::string(name) + ", for " + kRules[rules].call;
  tensor::GroupRequest request;
  request.call = call.c_str();
  request.kind = kRules[rules].kind;
  request.grid = {spec.num_replicas, spec.num_partitions};
  request.mode = static_cast<tensor::GroupMode>(mode);
  if (rules != 0) request.rules = tensor::StableHloRules(request.kind);
  if (spec.split_count != 0) request.rules.split_count = spec.split_count;
  size_t count = spec.num_groups;
  if (spec.offsets != nullptr && spec.num_groups != 0) {
    count = spec.offsets[spec.num_groups];
  } else if (__builtin_mul_overflow(spec.num_groups, spec.group_size, &count)) {
    count = ~size_t{0};
  }
  if (count > static_cast<size_t>(tensor::kMaxRanks) || spec.num_groups > static_cast<size_t>(tensor::kMaxRanks))
    return MakeStatus(Code::kInvalidArgument, "%s: %zu lists with %zu ids in all; at most %lld are accepted", name,
                      spec.num_groups, count, static_cast<long long>(tensor::kMaxRanks));
  if (count != 0 && spec.ids == nullptr)
    return MakeStatus(Code::kInvalidArgument, "%s: there are %zu lists and no ids (a null pointer)", name,
                      spec.num_groups);
  if (spec.offsets == nullptr && spec.num_groups != 0 && spec.group_size == 0)
    return MakeStatus(Code::kInvalidArgument, "%s: %zu lists of group_size 0; leave empty lists out", name,
                      spec.num_groups);
  const std::span<const int64_t> ids(spec.ids, count);
  if (spec.offsets != nullptr && spec.num_groups != 0) {
    AXCCL_ASSIGN_OR_RETURN(request.ids, tensor::IdLists::Ragged(name, ids, {spec.offsets, spec.num_groups + 1}));
  } else {
    request.ids = tensor::IdLists::Rectangular(ids, spec.group_size);
  }
  return Keep(out, request);
}

Status FromMesh(const char* name, axcclGroups_t* out, const axcclMesh_t& from, const axcclAxisRef_t* axes,
                int num_axes) {
  if (from.num_axes < 0 || num_axes < 0 || (from.num_axes != 0 && from.axes == nullptr) ||
      (num_axes != 0 && axes == nullptr))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: the mesh has %d axes at %p, axes are %d at %p; pass an array for them", name, from.num_axes,
                      static_cast<const void*>(from.axes), num_axes, static_cast<const void*>(axes));
  if (from.num_device_ids != 0 && from.device_ids == nullptr)
    return MakeStatus(Code::kInvalidArgument, "%s: the mesh has %zu device ids at a null pointer", name,
                      from.num_device_ids);
  std::vector<tensor::MeshAxis> mesh_axes;
  std::vector<tensor::AxisRef> refs;
  for (int i = 0; i < from.num_axes; ++i) {
    if (from.axes[i].name == nullptr)
      return MakeStatus(Code::kInvalidArgument, "%s: mesh axis %d has no name (a null pointer)", name, i);
    mesh_axes.push_back({from.axes[i].name, from.axes[i].size});
  }
  for (int i = 0; i < num_axes; ++i) {
    if (axes[i].name == nullptr)
      return MakeStatus(Code::kInvalidArgument, "%s: axis %d of axes has no name (a null pointer)", name, i);
    refs.push_back({axes[i].name, axes[i].pre_size, axes[i].size});
  }
  const tensor::Mesh mesh{mesh_axes, {from.device_ids, from.num_device_ids}};
  AXCCL_ASSIGN_OR_RETURN(const tensor::IdTable table, tensor::MeshGroups(name, mesh, refs));
  tensor::GroupRequest request;
  request.call = name;
  request.kind = Kind::kBarrier;
  request.grid.num_partitions = from.num_ranks != 0 ? from.num_ranks : static_cast<int64_t>(table.ids.size());
  request.mode = tensor::GroupMode::kFlattenedIds;
  request.ids = table.lists();
  return Keep(out, request);
}

template <class Struct>
Status CheckInitialised(const char* call, const char* argument, const Struct* value, const char* initializer) {
  if (value != nullptr && value->size == sizeof(Struct)) return Status();
  return InvalidArgument("%s: argument %s is %s; start from %s", call, argument,
                         value == nullptr ? "NULL" : "not initialised (its size is wrong)", initializer);
}

}  // namespace

HandleTable<GroupsObject>& GroupsTable() {
  static auto* table = new HandleTable<GroupsObject>(0xa6);
  return *table;
}

Result<GroupsPin> PinGroups(axcclGroups_t groups, const char* call) {
  GroupsPin pin = GroupsTable().Get(groups);
  if (pin) return pin;
  return InvalidArgument("%s: argument groups (%p) is not live; create groups with axcclGroupsCreate", call,
                         static_cast<void*>(groups));
}

}  // namespace axccl::api

using namespace axccl;       // NOLINT: the C entry points
using namespace axccl::api;  // NOLINT

AXCCL_API ncclResult_t axcclGroupsCreate(axcclGroups_t* groups, const axcclGroupSpec_t* spec) {
  return Entry("axcclGroupsCreate", [&](const char* call) -> Status {
    if (groups == nullptr) return InvalidArgument("%s: argument groups is NULL; pass where to put them", call);
    *groups = nullptr;
    AXCCL_RETURN_IF_ERROR(CheckInitialised(call, "spec", spec, "AXCCL_GROUP_SPEC_INITIALIZER"));
    return FromSpec(call, groups, *spec);
  });
}

AXCCL_API ncclResult_t axcclGroupsCreateFromMesh(axcclGroups_t* groups, const axcclMesh_t* mesh,
                                                 const axcclAxisRef_t* axes, int num_axes) {
  return Entry("axcclGroupsCreateFromMesh", [&](const char* call) -> Status {
    if (groups == nullptr) return InvalidArgument("%s: argument groups is NULL; pass where to put them", call);
    *groups = nullptr;
    AXCCL_RETURN_IF_ERROR(CheckInitialised(call, "mesh", mesh, "AXCCL_MESH_INITIALIZER"));
    return FromMesh(call, groups, *mesh, axes, num_axes);
  });
}

AXCCL_API ncclResult_t axcclGroupsDestroy(axcclGroups_t groups) {
  return Entry("axcclGroupsDestroy", [&](const char* call) -> Status {
    if (groups != nullptr && GroupsTable().Remove(groups) != nullptr) return Status();
    return InvalidArgument("%s: argument groups (%p) is not live", call, static_cast<void*>(groups));
  });
}

AXCCL_API ncclResult_t axcclGroupsGetInfo(axcclGroups_t handle, axcclGroupsInfo_t* info) {
  return Entry("axcclGroupsGetInfo", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const GroupsPin pin, PinGroups(handle, call));
    if (info == nullptr || info->size < sizeof(size_t))
      return InvalidArgument("%s: argument info is %s; set info->size = sizeof(axcclGroupsInfo_t)", call,
                             info == nullptr ? "NULL" : "without its size");
    axcclGroupsInfo_t all{};
    all.size = std::min(info->size, sizeof(all));
    all.num_ranks = pin->groups.num_ranks();
    all.num_groups = pin->groups.num_groups();
    for (int g = 0; g < all.num_groups; ++g)
      all.largest_group = std::max(all.largest_group, static_cast<int>(pin->groups.Group(g).size()));
    std::memcpy(info, &all, all.size);
    return Status();
  });
}

AXCCL_API ncclResult_t axcclGroupsGetPlace(axcclGroups_t handle, int rank, int* group, int* position, int* group_size) {
  return Entry("axcclGroupsGetPlace", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const GroupsPin pin, PinGroups(handle, call));
    if (rank < 0 || rank >= pin->groups.num_ranks())
      return InvalidArgument("%s: argument rank is %d; pass 0..%d", call, rank, pin->groups.num_ranks() - 1);
    const tensor::ReplicaGroups::Place place = pin->groups.PlaceOf(rank);
    if (group != nullptr) *group = place.group;
    if (position != nullptr) *position = place.position;
    if (group_size != nullptr) *group_size = place.size;
    return Status();
  });
}

AXCCL_API ncclResult_t axcclGroupsGetRanks(axcclGroups_t handle, int group, int* ranks, int max_ranks, int* num_ranks) {
  return Entry("axcclGroupsGetRanks", [&](const char* call) -> Status {
    AXCCL_ASSIGN_OR_RETURN(const GroupsPin pin, PinGroups(handle, call));
    if (group < 0 || group >= pin->groups.num_groups())
      return InvalidArgument("%s: argument group is %d; pass 0..%d", call, group, pin->groups.num_groups() - 1);
    if (max_ranks < 0 || (max_ranks > 0 && ranks == nullptr))
      return InvalidArgument("%s: argument ranks is %p for max_ranks %d; pass an array", call,
                             static_cast<void*>(ranks), max_ranks);
    const std::span<const int32_t> members = pin->groups.Group(group);
    std::copy_n(members.begin(), std::min(members.size(), static_cast<size_t>(max_ranks)), ranks);
    if (num_ranks != nullptr) *num_ranks = static_cast<int>(members.size());
    return Status();
  });
}
