#include "src/program/stablehlo/sharding.h"

#include <algorithm>
#include <string>

#include "src/program/stablehlo/groups.h"
#include "src/program/text.h"

namespace axccl::program::stablehlo {
namespace {

using Form = AttrNode::Form;

// `"x", "y":(1)2, ?`: the axes of a dimension, up to '}'
bool ReadAxes(Scanner* in, bool may_be_open, AttrNode* attr) {
  attr->at = in->Mark();
  attr->form = Form::kList;
  if (!in->Expect("{")) return false;
  if (in->Try("}")) return true;
  do {
    if (may_be_open && in->Try("?")) break;
    AttrNode& axis = attr->items.emplace_back();
    axis.at = in->Mark();
    axis.form = Form::kSubAxis;
    if (!in->PlainString(&axis.word)) return false;
    if (!in->Try(":")) continue;
    axis.ints.resize(2);
    if (!in->Expect("(") || !in->Integer(&axis.ints[0]) || !in->Expect(")") || !in->Integer(&axis.ints[1]))
      return false;
  } while (in->Try(","));
  return in->Expect("}");
}

// What the shards of a dimension are fewer than the whole: the product of its axes; 0 if the mesh does not have them.
int64_t Shards(const Mesh& mesh, const AttrNode& dim) {
  int64_t shards = 1;
  for (const AttrNode& item : dim.items) {
    const auto axis =
        std::find_if(mesh.axes.begin(), mesh.axes.end(), [&](const Axis& one) { return one.name == item.word; });
    if (axis == mesh.axes.end()) return 0;
    const int64_t size = item.ints.empty() ? axis->size : item.ints[1];
    if (size < 1 || size > axis->size || shards > kMaxRanks / size) return 0;
    shards *= size;
  }
  return shards;
}

bool IsShard(const Mesh& mesh, const AttrNode& sharding, const TensorType& whole, const TensorType& shard) {
  const size_t dims = whole.dims.size();
  if (whole.data_type != shard.data_type || shard.dims.size() != dims || sharding.items.size() != dims) return false;
  for (size_t i = 0; i < dims; ++i) {
    int64_t size = 0;
    const int64_t shards = Shards(mesh, sharding.items[i]);
    if (shards == 0 || __builtin_mul_overflow(shard.dims[i], shards, &size) || size != whole.dims[i]) return false;
  }
  return true;
}

// Checks one value: `shard` inside, `whole` outside.
bool CheckShards(const Mesh& mesh, const NamedAttr* shardings, const std::vector<const TensorType*>& whole,
                 const std::vector<const TensorType*>& shards, const Op& op, Scanner* errors) {
  if (shardings == nullptr || shards.size() != whole.size() || shardings->value.items.size() != whole.size())
    return errors->Fail(op.at, "expected a sharding for each operand and result of sdy.manual_computation");
  for (size_t i = 0; i < whole.size(); ++i) {
    const AttrNode& sharding = shardings->value.items[i];
    if (sharding.form != Form::kSharding || sharding.word != mesh.name)
      return errors->Fail(sharding.at, "expected a sharding of the mesh " + Quote(mesh.name));
    if (!IsShard(mesh, sharding, *whole[i], *shards[i]))
      return errors->Fail(sharding.at,
                          "expected a sharding that makes " + Print(*shards[i]) + " of " + Print(*whole[i]));
  }
  return true;
}

const Mesh* MeshOf(const Module& module, const Op& op) {
  for (const char* const key : {"in_shardings", "out_shardings"}) {
    const NamedAttr* const list = Find(op.attributes, key);
    if (list == nullptr || list->value.items.empty()) continue;
    for (const Mesh& mesh : module.meshes) {
      if (mesh.name == list->value.items[0].word) return &mesh;
    }
  }
  return nullptr;
}

bool CheckMesh(const Mesh* mesh, const Op& op, const tensor::Grid& grid, Scanner* errors) {
  const NamedAttr* const manual = Find(op.attributes, "manual_axes");
  if (mesh == nullptr || manual == nullptr)
    return errors->Fail(op.at, "expected manual_axes, and shardings of an sdy.mesh");
  if (!mesh->device_ids.empty())
    return errors->Fail(mesh->at, "device_ids are not supported in the mesh of sdy.manual_computation");
  if (grid.num_replicas != 1 || Devices(*mesh) != grid.num_partitions)
    return errors->Fail(op.at, "expected as many devices in the mesh " + Quote(mesh->name) + " as ranks, " +
                                   std::to_string(grid.Ranks()));
  for (const Axis& axis : mesh->axes) {
    const auto is_it = [&](const AttrNode& item) { return item.form == Form::kText && item.word == axis.name; };
    const std::vector<AttrNode>& items = manual->value.items;
    if (axis.size > 1 && std::none_of(items.begin(), items.end(), is_it))
      return errors->Fail(manual->at, "expected all axes in manual_axes, but " + Quote(axis.name) + " is not");
  }
  return true;
}

}  // namespace

bool ReadSharding(Scanner* in, AttrNode* attr) {
  attr->at = in->Mark();
  attr->form = Form::kSharding;
  if (!in->Expect("<") || !in->Name('@', &attr->word) || !in->Expect(",") || !in->Expect("[")) return false;
  if (!in->Try("]")) {
    do {
      if (!ReadAxes(in, true, &attr->items.emplace_back())) return false;
    } while (in->Try(","));
    if (!in->Expect("]")) return false;
  }
  for (const char* const list : {"replicated", "unreduced"}) {
    const size_t mark = in->Mark();
    AttrNode axes;
    if (in->Try(",") && !in->TryWord(list)) in->Back(mark);
    if (in->Mark() != mark && (!in->Expect("=") || !ReadAxes(in, false, &axes))) return false;
    if (in->Mark() != mark && axes.items.empty()) return in->Fail(axes.at, "expected at least one axis");
  }
  return in->Expect(">");
}

bool ReadShardings(Scanner* in, AttrNode* attr) {
  attr->at = in->Mark();
  attr->form = Form::kList;
  if (!in->Expect("[")) return false;
  if (in->Try("]")) return true;
  do {
    if (!ReadSharding(in, &attr->items.emplace_back())) return false;
  } while (in->Try(","));
  return in->Expect("]");
}

bool ReadManualAxes(Scanner* in, AttrNode* attr) {
  attr->at = in->Mark();
  attr->form = Form::kList;
  if (!in->Expect("{")) return false;
  if (in->Try("}")) return true;
  do {
    AttrNode& axis = attr->items.emplace_back();
    axis.at = in->Mark();
    axis.form = Form::kText;
    if (!in->PlainString(&axis.word)) return false;
  } while (in->Try(","));
  return in->Expect("}");
}

const Op* ManualOf(const Func& func) {
  const std::vector<Op>& ops = func.body.ops;
  return ops.size() == 1 && ops[0].name == "sdy.manual_computation" ? &ops[0] : nullptr;
}

bool CheckManual(const Module& module, const Func& func, const tensor::Grid& grid, Scanner* errors) {
  const Op& op = *ManualOf(func);
  const Region& region = op.regions[0];
  bool is_all = op.operands.size() == func.body.arguments && op.results == func.body.results.size();
  for (size_t i = 0; is_all && i < op.operands.size(); ++i) is_all = op.operands[i] == i;
  for (size_t i = 0; is_all && i < op.results; ++i) is_all = func.body.results[i] == op.first_result + i;
  if (!is_all)
    return errors->Fail(op.at,
                        "expected sdy.manual_computation of all arguments of the function, whose results it "
                        "returns in their order");
  const Mesh* const mesh = MeshOf(module, op);
  if (!CheckMesh(mesh, op, grid, errors)) return false;
  std::vector<const TensorType*> whole, shards;
  for (size_t i = 0; i < op.operands.size(); ++i) whole.push_back(&func.types[i]);
  for (size_t i = 0; i < region.arguments; ++i) shards.push_back(&func.types[region.first_argument + i]);
  if (!CheckShards(*mesh, Find(op.attributes, "in_shardings"), whole, shards, op, errors)) return false;
  whole.clear();
  shards.clear();
  for (size_t i = 0; i < op.results; ++i) whole.push_back(&func.types[op.first_result + i]);
  for (const ValueId value : region.results) shards.push_back(&func.types[value]);
  return CheckShards(*mesh, Find(op.attributes, "out_shardings"), whole, shards, op, errors);
}

}  // namespace axccl::program::stablehlo
