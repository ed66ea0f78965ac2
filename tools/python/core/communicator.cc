#include "tools/python/core/communicator.h"

#include <nanobind/ndarray.h>

#include <cstring>

#include "tools/python/core/arguments.h"

namespace axccl::python {
namespace {

axcclGroupMode_t ReadMode(const std::string& mode) {
  if (mode == "ranks") return axcclFlattenedIds;
  if (mode == "cross_replica") return axcclCrossReplica;
  if (mode == "cross_partition") return axcclCrossPartition;
  if (mode == "cross_replica_and_partition") return axcclCrossReplicaAndPartition;
  RaiseArgument(
      "channel: argument mode is \"%s\"; there are ranks, cross_replica, cross_partition and "
      "cross_replica_and_partition",
      mode.c_str());
}

// The axes of `along`: a name, or a sequence of names and of (name, pre_size, size). The names stay in `names`.
std::vector<axcclAxisRef_t> ReadAlong(nb::handle along, std::vector<std::string>* names) {
  std::vector<axcclAxisRef_t> axes;
  const nb::object items = PyUnicode_Check(along.ptr()) ? nb::make_tuple(along) : nb::borrow(along);
  for (const nb::handle item : nb::iter(items)) {
    axcclAxisRef_t axis{nullptr, 1, 0};
    if (PyUnicode_Check(item.ptr())) {
      names->push_back(nb::cast<std::string>(item));
    } else if (std::string name; PyTuple_Check(item.ptr()) && PyTuple_Size(item.ptr()) == 3 &&
                                 nb::try_cast(item[0], name) && nb::try_cast(item[1], axis.pre_size) &&
                                 nb::try_cast(item[2], axis.size)) {
      names->push_back(name);
    } else {
      RaiseType("mesh_channel: argument along has %s; pass names of axes, or (name, pre_size, size) for a part of one",
                nb::cast<std::string>(nb::repr(item)).c_str());
    }
    axes.push_back(axis);
  }
  for (size_t i = 0; i < axes.size(); ++i) axes[i].name = (*names)[i].c_str();
  return axes;
}

}  // namespace

std::shared_ptr<Rank> Communicator::Join(int rank, int size, nb::handle unique_id, std::optional<std::string> name,
                                         std::optional<double> timeout) {
  if (!PyBytes_Check(unique_id.ptr()))
    RaiseType("Communicator: argument unique_id is of type %s; pass the bytes of axccl.unique_id()",
              nb::cast<std::string>(nb::type_name(unique_id.type())).c_str());
  if (PyBytes_Size(unique_id.ptr()) != NCCL_UNIQUE_ID_BYTES)
    RaiseArgument("Communicator: argument unique_id has %zd bytes; pass all %d of axccl.unique_id()",
                  PyBytes_Size(unique_id.ptr()), NCCL_UNIQUE_ID_BYTES);
  // Before the ranks meet: an error after that is one of all of them.
  if (timeout && !(*timeout >= 0))
    RaiseArgument("Communicator: argument timeout is %g; pass seconds, or 0 to wait forever", *timeout);
  ncclUniqueId id;
  std::memcpy(id.internal, PyBytes_AsString(unique_id.ptr()), sizeof id.internal);
  return Rank::Join(rank, size, id, name ? name->c_str() : nullptr, timeout);
}

nb::list Communicator::MakeAll(int size) {
  nb::list all;
  for (std::shared_ptr<Rank>& rank : Rank::MakeAll(size))
    all.append(nb::cast(new Communicator(std::move(rank)), nb::rv_policy::take_ownership));
  return all;
}

void Communicator::SetTimeout(double seconds) {
  RaiseIfFailed(Take(axcclCommSetTimeout(owner()->comm("timeout"), seconds)));
}

double Communicator::timeout() const {
  axcclCommInfo_t info{};
  info.size = sizeof info;
  RaiseIfFailed(Take(axcclCommGetInfo(owner()->comm("timeout"), &info)));
  return info.timeout;
}

nb::object Communicator::Split(std::optional<int> color, int key) {
  if (color && *color < 0)
    RaiseArgument("split: argument color is %d; pass 0 or more, or None for a rank that takes no part", *color);
  std::shared_ptr<Rank> part = owner()->Split(color.value_or(NCCL_SPLIT_NOCOLOR), key);
  if (part == nullptr) return nb::none();
  return nb::cast(new Communicator(std::move(part)), nb::rv_policy::take_ownership);
}

std::unique_ptr<Channel> Communicator::CreateChannel(axcclGroups_t groups, int64_t id, bool group_order) {
  axcclChannel_t channel = nullptr;
  const Outcome made =
      Take(axcclChannelCreate(&channel, owner()->comm("channel"), groups, id, group_order ? axcclGroupOrder : 0));
  if (groups != nullptr) (void)axcclGroupsDestroy(groups);
  RaiseIfFailed(made);
  return std::make_unique<Channel>(owner(), channel);
}

std::unique_ptr<Channel> Communicator::MakeChannel(nb::handle groups, int64_t id, const std::string& mode,
                                                   std::optional<int> replicas, bool group_order) {
  (void)owner()->comm("channel");
  if (groups.is_none()) return CreateChannel(nullptr, id, group_order);
  std::vector<int64_t> ids;
  std::vector<size_t> offsets = {0};
  for (const nb::handle group : nb::iter(groups)) {
    const std::vector<int64_t> numbers = ReadNumbers("channel", "groups", group);
    ids.insert(ids.end(), numbers.begin(), numbers.end());
    offsets.push_back(ids.size());
  }
  const int ranks = owner()->size();
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.mode = ReadMode(mode);
  spec.num_replicas = replicas.value_or(1);
  if (spec.num_replicas < 1 || ranks % spec.num_replicas != 0)
    RaiseArgument("channel: argument replicas is %lld; pass a divisor of the %d ranks",
                  static_cast<long long>(spec.num_replicas), ranks);
  spec.num_partitions = ranks / spec.num_replicas;
  spec.ids = ids.data();
  spec.num_groups = offsets.size() - 1;
  spec.offsets = offsets.data();
  axcclGroups_t made = nullptr;
  RaiseIfFailed(Take(axcclGroupsCreate(&made, &spec)));
  return CreateChannel(made, id, group_order);
}

std::unique_ptr<Channel> Communicator::MakeMeshChannel(nb::dict mesh, nb::handle along, int64_t id, bool group_order) {
  (void)owner()->comm("mesh_channel");
  std::vector<std::string> names, along_names;
  std::vector<axcclMeshAxis_t> axes;
  for (const auto& [name, size] : mesh) {
    names.emplace_back();
    axes.push_back({nullptr, 0});
    if (!nb::try_cast(name, names.back()) || !nb::try_cast(size, axes.back().size)) {
      RaiseType("mesh_channel: argument mesh has %s: %s; pass names and sizes of axes, such as {\"x\": 2}",
                nb::cast<std::string>(nb::repr(name)).c_str(), nb::cast<std::string>(nb::repr(size)).c_str());
    }
  }
  for (size_t i = 0; i < axes.size(); ++i) axes[i].name = names[i].c_str();
  const std::vector<axcclAxisRef_t> refs = ReadAlong(along, &along_names);
  axcclMesh_t spec = AXCCL_MESH_INITIALIZER;
  spec.axes = axes.data();
  spec.num_axes = static_cast<int>(axes.size());
  spec.num_ranks = owner()->size();
  axcclGroups_t made = nullptr;
  RaiseIfFailed(Take(axcclGroupsCreateFromMesh(&made, &spec, refs.data(), static_cast<int>(refs.size()))));
  return CreateChannel(made, id, group_order);
}

std::string Communicator::Link(int peer) const {
  const char* link = nullptr;
  RaiseIfFailed(Take(axcclCommGetLink(owner()->comm("link"), peer, &link)));
  return link;
}

std::string Communicator::LastAlgorithm() const {
  const char* algorithm = nullptr;
  RaiseIfFailed(Take(axcclCommGetLastAlgorithm(owner()->comm("last_algorithm"), &algorithm)));
  return algorithm;
}

nb::bytes MakeUniqueId() {
  ncclUniqueId id;
  RaiseIfFailed(Take(ncclGetUniqueId(&id)));
  return nb::bytes(id.internal, sizeof id.internal);
}

nb::object AllocateBytes(size_t bytes) {
  void* memory = nullptr;
  // On a thread of its own, because ncclMemAlloc gives a GPU's memory to threads that have chosen no host device.
  RaiseIfFailed(RunOnDevice(
      0, [&] { return ncclMemAlloc(&memory, bytes > 0 ? bytes : 1); }, [] {}));
  const nb::capsule owner(memory, [](void* allocated) noexcept { (void)ncclMemFree(allocated); });
  return nb::cast(nb::ndarray<nb::numpy, uint8_t>(memory, {bytes}, owner), nb::rv_policy::reference);
}

}  // namespace axccl::python
