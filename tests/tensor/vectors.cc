#include "tests/tensor/vectors.h"

#include <algorithm>
#include <functional>
#include <map>

namespace axccl::tensor {

std::optional<Kind> KindOfOp(const std::string& op) {
  static const std::map<std::string, Kind> kinds = {
      {"all_gather", Kind::kAllGather},           {"all_reduce", Kind::kAllReduce},
      {"reduce_scatter", Kind::kReduceScatter},   {"all_to_all", Kind::kAllToAll},
      {"all_to_allv", Kind::kAllToAll},           {"ragged_all_to_all", Kind::kAllToAll},
      {"collective_broadcast", Kind::kBroadcast}, {"collective_reduce", Kind::kReduce},
      {"collective_permute", Kind::kSendRecv},
  };
  const auto found = kinds.find(op);
  if (found == kinds.end()) return std::nullopt;
  return found->second;
}

Grid SmallestGrid(const IdTensor& tensor, GroupMode mode) {
  int64_t largest = 0;
  for (int64_t id : tensor.ids) largest = std::max(largest, id);
  Grid grid;
  (mode == GroupMode::kCrossPartition ? grid.num_partitions : grid.num_replicas) = largest + 1;
  return grid;
}

IdTensor ReadIds(Kind kind, const Json& attributes) {
  IdTensor tensor;
  tensor.kind = kind;
  const Json& lists = attributes.at(kind == Kind::kSendRecv ? "source_target_pairs" : "replica_groups");
  if (attributes.contains("replica_groups_shape")) {
    tensor.shape = attributes.at("replica_groups_shape").get<std::vector<int64_t>>();
    return tensor;
  }
  // The nesting is the shape; the files hold rectangular lists only.
  for (const Json* level = &lists; level->is_array(); level = &level->front()) {
    tensor.shape.push_back(static_cast<int64_t>(level->size()));
    if (level->empty()) break;
  }
  if (lists.empty()) tensor.shape = {0, 0};
  const std::function<void(const Json&)> flatten = [&](const Json& level) {
    if (!level.is_array()) tensor.ids.push_back(level.get<int64_t>());
    if (!level.is_array()) return;
    for (const Json& inner : level) flatten(inner);
  };
  flatten(lists);
  return tensor;
}

Shape ShapeOf(const Json& tensor) {
  Shape shape;
  for (const Json& size : tensor.at("shape")) shape.sizes[shape.dims++] = size.get<int64_t>();
  return shape;
}

Collective ReadCollective(const std::string& op, const Json& attributes, int group_size, int operand) {
  Collective c;
  c.kind = KindOfOp(op).value();
  c.operand = operand;
  c.group_size = group_size;
  c.negative_dims = NegativeDims::kRefuse;
  for (const char* name : {"all_gather_dim", "scatter_dimension", "split_dimension"})
    c.dim = attributes.value(name, c.dim);
  c.concat_dim = attributes.value("concat_dimension", c.concat_dim);
  return c;
}

GroupRules ReadRules(Kind kind, const Json& attributes) {
  GroupRules rules = StableHloRules(kind);
  if (attributes.contains("split_count")) rules.split_count = attributes.at("split_count").get<int64_t>();
  return rules;
}

}  // namespace axccl::tensor
