// Groups written as mesh axes or as an iota: both are rows of a transposed array of ids.
#include <algorithm>
#include <cinttypes>

#include "src/tensor/replica_groups.h"

namespace axccl::tensor {

namespace {

// Axes are cut at the ends of the sub-axes, so a reference contains a factor completely or not at all.
struct Factor {
  size_t axis = 0;
  int64_t pre = 1;  // (pre)size of the axis, as in AxisRef
  int64_t size = 1;
  bool grouped = false;
};

Status CheckMesh(const char* call, const Mesh& mesh, int64_t* devices) {
  *devices = 1;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    const MeshAxis& axis = mesh.axes[i];
    for (size_t j = 0; j < i; ++j) {
      if (mesh.axes[j].name == axis.name)
        return MakeStatus(Code::kInvalidArgument, "%s: the mesh has two axes named \"%.*s\"; names must differ", call,
                          static_cast<int>(axis.name.size()), axis.name.data());
    }
    if (axis.size < 1 || axis.size > kMaxRanks / *devices)
      return MakeStatus(Code::kInvalidArgument,
                        "%s: mesh axis \"%.*s\" has size %" PRId64
                        "; sizes must be at least 1 and the mesh at most %" PRId64 " devices",
                        call, static_cast<int>(axis.name.size()), axis.name.data(), axis.size, kMaxRanks);
    *devices *= axis.size;
  }
  if (!mesh.device_ids.empty() && mesh.device_ids.size() != static_cast<uint64_t>(*devices))
    return MakeStatus(Code::kInvalidArgument,
                      "%s: the mesh lists %zu device ids, but its axes span %" PRId64 " devices; list each once", call,
                      mesh.device_ids.size(), *devices);
  std::vector<int64_t> sorted(mesh.device_ids.begin(), mesh.device_ids.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    return MakeStatus(Code::kInvalidArgument, "%s: the mesh lists device id %" PRId64 " twice; list each once", call,
                      *twice);
  if (!sorted.empty() && sorted[0] < 0)
    return MakeStatus(Code::kInvalidArgument, "%s: the mesh lists device id %" PRId64 "; ids must be at least 0", call,
                      sorted[0]);
  return Status();
}

Status BadSubAxis(const char* call, const AxisRef& ref, int64_t axis_size, const char* why) {
  return MakeStatus(Code::kInvalidArgument,
                    "%s: sub-axis \"%.*s\":(%" PRId64 ")%" PRId64 " of an axis of size %" PRId64 ": %s", call,
                    static_cast<int>(ref.name.size()), ref.name.data(), ref.pre_size, ref.size, axis_size, why);
}

// Finds the axis that a reference names, and fills in its size.
Status Resolve(const char* call, const Mesh& mesh, AxisRef* ref, size_t* index) {
  for (*index = 0; *index < mesh.axes.size() && mesh.axes[*index].name != ref->name;) ++*index;
  if (*index == mesh.axes.size())
    return MakeStatus(Code::kInvalidArgument, "%s: the mesh has no axis \"%.*s\"; name one of its %zu axes", call,
                      static_cast<int>(ref->name.size()), ref->name.data(), mesh.axes.size());
  const int64_t size = mesh.axes[*index].size;
  if (ref->size == 0 && ref->pre_size == 1) ref->size = size;
  if (ref->pre_size < 1 || ref->size < 1) return BadSubAxis(call, *ref, size, "both numbers must be at least 1");
  if (ref->pre_size > size || ref->size > size / ref->pre_size || size % (ref->pre_size * ref->size) != 0)
    return BadSubAxis(call, *ref, size, "the product of the numbers must divide the size of the axis");
  return Status();
}

// Cuts every axis at the ends of its references and marks the factors that they contain. `order` lists these factors in
// the order in which the caller listed the axes.
Status CutAxes(const char* call, const Mesh& mesh, std::span<const AxisRef> axes, std::vector<Factor>* factors,
               std::vector<size_t>* order) {
  std::vector<AxisRef> refs(axes.begin(), axes.end());
  std::vector<size_t> axis_of(refs.size());
  std::vector<std::vector<int64_t>> cuts(mesh.axes.size());
  for (size_t a = 0; a < mesh.axes.size(); ++a) cuts[a] = {1, mesh.axes[a].size};
  for (size_t i = 0; i < refs.size(); ++i) {
    AXCCL_RETURN_IF_ERROR(Resolve(call, mesh, &refs[i], &axis_of[i]));
    cuts[axis_of[i]].push_back(refs[i].pre_size);
    cuts[axis_of[i]].push_back(refs[i].pre_size * refs[i].size);
  }
  for (size_t a = 0; a < mesh.axes.size(); ++a) {
    std::sort(cuts[a].begin(), cuts[a].end());
    cuts[a].erase(std::unique(cuts[a].begin(), cuts[a].end()), cuts[a].end());
    for (size_t c = 0; c + 1 < cuts[a].size(); ++c) {
      if (cuts[a][c + 1] % cuts[a][c] != 0)
        return MakeStatus(Code::kInvalidArgument,
                          "%s: the sub-axes of mesh axis \"%.*s\" cut it at %" PRId64 " and %" PRId64
                          ", of which the first does not divide the second; no mesh has both",
                          call, static_cast<int>(mesh.axes[a].name.size()), mesh.axes[a].name.data(), cuts[a][c],
                          cuts[a][c + 1]);
      factors->push_back({a, cuts[a][c], cuts[a][c + 1] / cuts[a][c], false});
    }
  }
  for (size_t i = 0; i < refs.size(); ++i) {
    if (refs[i].size == 1) continue;  // one coordinate: nothing varies
    const auto found = std::find_if(factors->begin(), factors->end(),
                                    [&](const Factor& f) { return f.axis == axis_of[i] && f.pre == refs[i].pre_size; });
    // A factor shorter than the reference was cut by another reference inside this one.
    if (found == factors->end() || found->size != refs[i].size || found->grouped)
      return BadSubAxis(call, refs[i], mesh.axes[axis_of[i]].size, "it overlaps another axis of the same list");
    found->grouped = true;
    order->push_back(static_cast<size_t>(found - factors->begin()));
  }
  return Status();
}

// The ids 0, 1, 2, ... of an array of `sizes`, read in row-major order after its dimensions are put in `order`.
std::vector<int64_t> Transposed(const std::vector<int64_t>& sizes, const std::vector<size_t>& order) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  std::vector<int64_t> ids = {0};
  // The slowest dimension first: each id so far is followed by its copies along the next dimension.
  for (size_t d : order) {
    std::vector<int64_t> next;
    next.reserve(ids.size() * static_cast<size_t>(sizes[d]));
    for (int64_t id : ids) {
      for (int64_t x = 0; x < sizes[d]; ++x) next.push_back(id + x * strides[d]);
    }
    ids = std::move(next);
  }
  return ids;
}

}  // namespace

Result<IdTable> MeshGroups(const char* call, const Mesh& mesh, std::span<const AxisRef> axes) {
  int64_t devices = 1;
  AXCCL_RETURN_IF_ERROR(CheckMesh(call, mesh, &devices));
  std::vector<Factor> factors;
  std::vector<size_t> grouped;
  AXCCL_RETURN_IF_ERROR(CutAxes(call, mesh, axes, &factors, &grouped));
  std::vector<int64_t> sizes;
  std::vector<size_t> order;
  IdTable table;
  table.width = 1;
  for (size_t f = 0; f < factors.size(); ++f) {
    sizes.push_back(factors[f].size);
    if (!factors[f].grouped) order.push_back(f);
  }
  for (size_t f : grouped) {
    order.push_back(f);
    table.width *= static_cast<size_t>(factors[f].size);
  }
  table.ids = Transposed(sizes, order);
  if (!mesh.device_ids.empty()) {
    for (int64_t& id : table.ids) id = mesh.device_ids[static_cast<size_t>(id)];
  }
  return table;
}

Result<IdTable> IotaGroups(const char* call, int64_t num_groups, int64_t group_size,
                           std::span<const int64_t> reshape_dims, std::span<const int64_t> transpose_perm) {
  if (num_groups < 1 || group_size < 1 || num_groups > kMaxRanks / group_size)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: iota groups [%" PRId64 ",%" PRId64
                      "]: both must be at least 1 and their product at most %" PRId64,
                      call, num_groups, group_size, kMaxRanks);
  int64_t count = 1;
  for (int64_t size : reshape_dims) {
    if (size < 1 || size > kMaxRanks / count)
      return MakeStatus(Code::kInvalidArgument,
                        "%s: iota groups: a reshape dimension is %" PRId64
                        "; it must be at least 1, the product at most %" PRId64,
                        call, size, kMaxRanks);
    count *= size;
  }
  if (count != num_groups * group_size)
    return MakeStatus(Code::kInvalidArgument,
                      "%s: iota groups [%" PRId64 ",%" PRId64 "] hold %" PRId64 " ids, the reshape dimensions %" PRId64
                      "; they must agree",
                      call, num_groups, group_size, num_groups * group_size, count);
  std::vector<size_t> order;
  std::vector<bool> taken(reshape_dims.size());
  for (int64_t dim : transpose_perm) {
    if (dim < 0 || static_cast<uint64_t>(dim) >= taken.size() || taken[static_cast<size_t>(dim)]) break;
    taken[static_cast<size_t>(dim)] = true;
    order.push_back(static_cast<size_t>(dim));
  }
  if (order.size() != reshape_dims.size() || order.size() != transpose_perm.size())
    return MakeStatus(Code::kInvalidArgument,
                      "%s: iota groups: the transposition lists %zu dimensions, the array has %zu; list each once",
                      call, transpose_perm.size(), reshape_dims.size());
  IdTable table;
  table.width = static_cast<size_t>(group_size);
  table.ids = Transposed({reshape_dims.begin(), reshape_dims.end()}, order);
  return table;
}

}  // namespace axccl::tensor
