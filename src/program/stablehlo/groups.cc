#include "src/program/stablehlo/groups.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

namespace axccl::program::stablehlo {
namespace {

using Form = AttrNode::Form;

constexpr size_t kMaxAxes = 64;

struct Endpoint {
  int64_t handle = 0;
  bool is_global = false;  // use_global_device_ids
};

std::optional<plan::Kind> CollectiveOf(std::string_view name) {
  constexpr struct {
    std::string_view name;
    plan::Kind kind;
  } kRows[] = {{"stablehlo.all_gather", plan::Kind::kAllGather},
               {"stablehlo.all_reduce", plan::Kind::kAllReduce},
               {"stablehlo.all_to_all", plan::Kind::kAllToAll},
               {"stablehlo.collective_broadcast", plan::Kind::kBroadcast},
               {"stablehlo.collective_permute", plan::Kind::kSendRecv},
               {"stablehlo.collective_reduce", plan::Kind::kReduce},
               {"stablehlo.reduce_scatter", plan::Kind::kReduceScatter}};
  for (const auto& row : kRows) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

// The same position in errors as where the attribute is.
bool Fail(const AttrNode& attr, const Status& status, Scanner* errors) {
  return errors->Fail(attr.at, std::string(status.message()));
}

bool ReadEndpoint(const Op& op, Scanner* errors, Endpoint* endpoint) {
  for (const char* const unit : {"has_dynamic_root", "use_global_device_ids"}) {
    const NamedAttr* const found = Find(op.attributes, unit);
    if (found != nullptr && found->value.form != Form::kUnit)
      return errors->Fail(found->at, "expected " + std::string(unit) + " without a value");
  }
  endpoint->is_global = Find(op.attributes, "use_global_device_ids") != nullptr;
  const NamedAttr* const channel = Find(op.attributes, "channel_handle");
  if (channel == nullptr) return true;
  const std::vector<NamedAttr>& fields = channel->value.fields;
  const NamedAttr *const handle = Find(fields, "handle"), *const type = Find(fields, "type");
  if (channel->value.name != "channel_handle" || fields.size() != 2 || handle == nullptr || type == nullptr ||
      handle->value.form != Form::kNumber || type->value.form != Form::kNumber)
    return errors->Fail(channel->value.at, "expected #stablehlo.channel_handle<handle = 1, type = 0>");
  endpoint->handle = handle->value.number;
  return true;
}

bool ModeOf(const Op& op, Scanner* errors, tensor::GroupMode* mode) {
  Endpoint endpoint;
  if (!ReadEndpoint(op, errors, &endpoint)) return false;
  const Result<tensor::GroupMode> found =
      tensor::ModeOfChannel(nullptr, *CollectiveOf(op.name), endpoint.handle, endpoint.is_global);
  if (!found.ok()) return errors->Fail(op.at, std::string(found.status().message()));
  *mode = found.value();
  return true;
}

// The attribute that says who communicates.
const NamedAttr* IdsOf(const Op& op, Scanner* errors) {
  const char* const key = *CollectiveOf(op.name) == plan::Kind::kSendRecv ? "source_target_pairs" : "replica_groups";
  const NamedAttr* const found = Find(op.attributes, key);
  if (found == nullptr) (void)errors->Fail(op.at, "expected the attribute '" + std::string(key) + "'");
  return found;
}

bool ReadIds(const AttrNode& attr, Scanner* errors, Ints* ids) {
  if (attr.form != Form::kDense || attr.word != "i64")
    return errors->Fail(attr.at,
                        "expected lists such as dense<[[0, 1]]> : tensor<1x2xi64>, or for groups "
                        "#stablehlo.replica_group_mesh_axes<...>");
  ids->resize(attr.literal.bytes.size() / sizeof(int64_t));
  if (!ids->empty()) std::memcpy(ids->data(), attr.literal.bytes.data(), attr.literal.bytes.size());
  const int64_t elements = Elements(attr.types[0]);
  if (ids->size() != 1 || elements <= 1) return true;
  // More than a pair of a rank with itself has the id twice where it may not.
  if (elements > 2) return errors->Fail(attr.at, "expected lists of ids that differ");
  ids->push_back((*ids)[0]);
  return true;
}

bool IsMeshAxes(const AttrNode& attr) { return attr.form == Form::kFields && attr.name == "replica_group_mesh_axes"; }

const Mesh* FindMesh(const Module& module, const AttrNode& attr, Scanner* errors) {
  const NamedAttr* const symbol = Find(attr.fields, "mesh");
  if (symbol == nullptr || symbol->value.form != Form::kSymbol) {
    (void)errors->Fail(attr.at, "expected mesh = @name");
    return nullptr;
  }
  for (const Mesh& mesh : module.meshes) {
    if (mesh.name == symbol->value.word) return &mesh;
  }
  (void)errors->Fail(symbol->at, "expected the name of an sdy.mesh, found " + Quote(symbol->value.word));
  return nullptr;
}

bool ReadAxes(const AttrNode& attr, Scanner* errors, std::vector<tensor::AxisRef>* refs) {
  const NamedAttr* const axes = Find(attr.fields, "axes");
  const auto fail = [&](size_t at) {
    return errors->Fail(at,
                        "expected axes = [#stablehlo.axis_ref<name = \"x\", sub_axis_info = (1)2>], or without "
                        "sub_axis_info");
  };
  if (axes == nullptr || attr.fields.size() != 2) return fail(attr.at);
  if (axes->value.form != Form::kList && (axes->value.form != Form::kInts || !axes->value.ints.empty()))
    return fail(axes->at);
  if (axes->value.items.size() > kMaxAxes) return errors->Fail(axes->at, "expected at most 64 axes");
  for (const AttrNode& item : axes->value.items) {
    const NamedAttr *const name = Find(item.fields, "name"), *const part = Find(item.fields, "sub_axis_info");
    if (item.name != "axis_ref" || name == nullptr || name->value.form != Form::kText ||
        item.fields.size() != (part == nullptr ? 1 : 2) || (part != nullptr && part->value.form != Form::kSubAxis))
      return fail(item.at);
    tensor::AxisRef& ref = refs->emplace_back(tensor::AxisRef{.name = name->value.word});
    if (part == nullptr) continue;
    ref.pre_size = part->value.ints[0];
    ref.size = part->value.ints[1];
    if (ref.size < 1) return errors->Fail(part->at, "expected a part of an axis of at least 1");
  }
  return true;
}

// One more than the largest id in the operations, by what the ids are of.
bool CountIds(const std::vector<Op>& ops, Scanner* errors, int64_t* replicas, int64_t* partitions) {
  for (const Op& op : ops) {
    for (const Region& region : op.regions) {
      if (!CountIds(region.ops, errors, replicas, partitions)) return false;
    }
    if (!CollectiveOf(op.name)) continue;
    tensor::GroupMode mode{};
    const NamedAttr* const attribute = IdsOf(op, errors);
    if (attribute == nullptr || !ModeOf(op, errors, &mode)) return false;
    if (IsMeshAxes(attribute->value)) continue;
    Ints ids;
    if (!ReadIds(attribute->value, errors, &ids)) return false;
    const bool is_replica =
        mode == tensor::GroupMode::kCrossReplica || mode == tensor::GroupMode::kCrossReplicaAndPartition;
    int64_t* const count = is_replica ? replicas : partitions;
    for (const int64_t id : ids) {
      if (id >= kMaxRanks)
        return errors->Fail(attribute->value.at, "expected ids less than " + std::to_string(kMaxRanks));
      *count = std::max(*count, id + 1);
    }
  }
  return true;
}

}  // namespace

int64_t Devices(const Mesh& mesh) {
  int64_t devices = 1;
  for (const Axis& axis : mesh.axes) {
    if (axis.size < 1 || axis.size > kMaxRanks / devices) return 0;
    devices *= axis.size;
  }
  return devices;
}

bool FailBudget(size_t at, Scanner* errors) {
  return errors->Fail(
      at,
      "the program is too large for its text: calls, groups and meshes in it stand for too much. It may "
      "take 64 words of 8 bytes for each byte of the text, and 2^20 more");
}

bool GridOf(const Module& module, Scanner* errors, tensor::Grid* grid) {
  for (const Mesh& mesh : module.meshes) {
    if (mesh.axes.size() > kMaxAxes || Devices(mesh) == 0)
      return errors->Fail(mesh.at, "expected a mesh of at most 64 axes and 2^20 devices");
  }
  int64_t replicas = 1, partitions = 1;
  if (module.replicas != 0 || module.partitions != 0) {
    *grid = {std::max<int64_t>(module.replicas, 1), std::max<int64_t>(module.partitions, 1)};
  } else {
    for (const Func& func : module.funcs) {
      if (!CountIds(func.body.ops, errors, &replicas, &partitions)) return false;
    }
    for (const Mesh& mesh : module.meshes) {
      partitions = std::max(partitions, Devices(mesh));
      for (const int64_t id : mesh.device_ids) partitions = std::max(partitions, std::min<int64_t>(id, kMaxRanks) + 1);
    }
    if (replicas > 1 && partitions > 1)
      return errors->Fail(0,
                          "expected the attributes mhlo.num_replicas and mhlo.num_partitions, because the module has "
                          "ids of both");
    *grid = {replicas, partitions};
  }
  return grid->num_replicas <= kMaxRanks / grid->num_partitions ||
         errors->Fail(0, "expected at most 2^20 ranks: mhlo.num_replicas times mhlo.num_partitions");
}

bool Communication::TakeRanks(const Op& op, size_t words) {
  return budget_.Take(words + static_cast<size_t>(grid_.Ranks())) || FailBudget(op.at, &errors_);
}

bool Communication::ReadChannel(const Op& op, int64_t* channel) {
  Endpoint endpoint;
  if (!ReadEndpoint(op, &errors_, &endpoint)) return false;
  *channel = std::max<int64_t>(endpoint.handle, 0);
  return true;
}

bool Communication::ReadGroups(const Op& op, Groups* groups) {
  tensor::GroupRequest request{.kind = *CollectiveOf(op.name), .grid = grid_, .ids = {}, .rules = {}};
  request.rules = tensor::StableHloRules(request.kind);
  const NamedAttr* const attribute = IdsOf(op, &errors_);
  if (attribute == nullptr || !ModeOf(op, &errors_, &request.mode)) return false;
  const AttrNode& attr = attribute->value;
  Ints ids;
  tensor::IdTable table;
  if (IsMeshAxes(attr)) {
    const Mesh* const mesh = FindMesh(module_, attr, &errors_);
    std::vector<tensor::AxisRef> refs;
    if (mesh == nullptr || !ReadAxes(attr, &errors_, &refs)) return false;
    if (!TakeRanks(op, static_cast<size_t>(std::max<int64_t>(Devices(*mesh) - grid_.Ranks(), 0)))) return false;
    std::vector<tensor::MeshAxis> axes;
    for (const Axis& axis : mesh->axes) axes.push_back({axis.name, axis.size});
    Result<tensor::IdTable> found = tensor::MeshGroups(plan::KindName(request.kind), {axes, mesh->device_ids}, refs);
    if (!found.ok()) return Fail(attr, found.status(), &errors_);
    table = std::move(found.value());
    request.ids = table.lists();
  } else {
    if (!ReadIds(attr, &errors_, &ids) || !TakeRanks(op, ids.size())) return false;
    const Result<tensor::IdLists> lists =
        tensor::IdLists::FromTensor(plan::KindName(request.kind), request.kind, ids, attr.types[0].dims);
    if (!lists.ok()) return Fail(attr, lists.status(), &errors_);
    request.ids = lists.value();
  }
  if (request.kind == plan::Kind::kAllToAll) {
    const NamedAttr* const count = Find(op.attributes, "split_count");
    if (count == nullptr || count->value.form != Form::kNumber)
      return errors_.Fail(op.at, "expected a number as the attribute 'split_count'");
    request.rules.split_count = count->value.number;
  }
  const Result<tensor::ReplicaGroups> made = tensor::ReplicaGroups::Make(request);
  if (!made.ok()) return Fail(attr, made.status(), &errors_);
  if (!budget_.Take(8 * static_cast<size_t>(made.value().num_groups()))) return FailBudget(op.at, &errors_);
  for (int g = 0; g < made.value().num_groups(); ++g) {
    const auto group = made.value().Group(g);
    groups->emplace_back(group.begin(), group.end());
  }
  return true;
}

bool Communication::ReadPairs(const Op& op, Groups* pairs) {
  tensor::PairRequest request{.grid = grid_, .pairs = {}};
  const NamedAttr* const attribute = IdsOf(op, &errors_);
  Ints ids;
  if (attribute == nullptr || !ModeOf(op, &errors_, &request.mode) || !ReadIds(attribute->value, &errors_, &ids))
    return false;
  if (!TakeRanks(op, ids.size())) return false;
  const Result<tensor::IdLists> lists =
      tensor::IdLists::FromTensor("collective_permute", plan::Kind::kSendRecv, ids, attribute->value.types[0].dims);
  if (!lists.ok()) return Fail(attribute->value, lists.status(), &errors_);
  request.pairs = lists.value();
  const Result<tensor::PermutePairs> made = tensor::PermutePairs::Make(request);
  if (!made.ok()) return Fail(attribute->value, made.status(), &errors_);
  for (int rank = 0; rank < made.value().num_ranks(); ++rank) {
    const int target = made.value().TargetOf(rank);
    if (target < 0) continue;
    if (!budget_.Take(10)) return FailBudget(op.at, &errors_);
    pairs->push_back({rank, target});
  }
  return true;
}

}  // namespace axccl::program::stablehlo
