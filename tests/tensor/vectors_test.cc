// The groups, shapes and results of the valid cases. Groups are compared with the specification's formulas and the
// cases' own tables, results with those of moving the blocks that FindBlocks finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "tests/tensor/block_simulator.h"
#include "tests/tensor/vectors.h"

namespace axccl::tensor {
namespace {

using Rows = std::vector<std::vector<int64_t>>;

Grid GridOf(const Json& test) {
  return {test.at("num_replicas").get<int64_t>(), test.at("num_partitions").get<int64_t>()};
}

GroupMode ModeOf(const Json& test) {
  GroupMode mode = GroupMode::kCrossReplica;
  const std::string name = test.value("mode", "cross_replica");
  EXPECT_TRUE(FindGroupMode(name, &mode)) << name;
  return mode;
}

Rows RowsOf(const ReplicaGroups& groups) {
  Rows rows;
  for (int g = 0; g < groups.num_groups(); ++g) rows.emplace_back(groups.Group(g).begin(), groups.Group(g).end());
  return rows;
}

// The specification's formulas, written out for the rows of a case.
Rows ExpectedGroups(const Json& test) {
  const Grid grid = GridOf(test);
  const int64_t partitions = grid.num_partitions;
  const std::string mode = test.at("mode");
  Rows groups;
  for (const Json& row : test.at("attributes").at("replica_groups")) {
    std::vector<int64_t> ids;
    for (int64_t id : row.get<std::vector<int64_t>>()) {
      if (id != -1) ids.push_back(id);
    }
    if (mode == "flattened_ids") groups.push_back(ids);
    if (mode == "cross_replica_and_partition") groups.emplace_back();
    if (mode == "cross_partition") {
      for (int64_t r = 0; r < grid.num_replicas; ++r) {
        groups.emplace_back();
        for (int64_t p : ids) groups.back().push_back(r * partitions + p);
      }
    }
    if (!mode.starts_with("cross_replica")) continue;
    for (int64_t p = 0; p < partitions; ++p) {
      if (mode == "cross_replica") groups.emplace_back();
      for (int64_t r : ids) groups.back().push_back(r * partitions + p);
    }
  }
  return groups;
}

Result<ReplicaGroups> GroupsOf(const Json& test, const GroupRules& rules, Kind kind) {
  const IdTensor tensor = ReadIds(kind, test.at("attributes"));
  AXCCL_ASSIGN_OR_RETURN(const IdLists lists, tensor.Lists("vectors"));
  return ReplicaGroups::Make({.kind = kind, .grid = GridOf(test), .mode = ModeOf(test), .ids = lists, .rules = rules});
}

Result<PermutePairs> PairsOf(const Json& test) {
  const IdTensor tensor = ReadIds(Kind::kSendRecv, test.at("attributes"));
  AXCCL_ASSIGN_OR_RETURN(const IdLists lists, tensor.Lists("vectors"));
  return PermutePairs::Make({.grid = GridOf(test), .mode = ModeOf(test), .pairs = lists});
}

// ---- element arithmetic on JSON numbers ----

int64_t Wrap(uint64_t value, int bits, bool is_signed) {
  if (bits == 64) return static_cast<int64_t>(value);
  const uint64_t low = value & ((uint64_t{1} << bits) - 1);
  const bool negative = is_signed && (low >> (bits - 1)) != 0;
  return static_cast<int64_t>(negative ? low - (uint64_t{1} << bits) : low);
}

Json Combine(const std::string& dtype, const std::string& computation, const Json& a, const Json& b) {
  const bool lesser = computation == "min";
  if (dtype == "bool") return computation == "and" ? a.get<bool>() && b.get<bool>() : a.get<bool>() || b.get<bool>();
  if (computation == "min" || computation == "max") return (a < b) == lesser ? a : b;
  if (dtype[0] == 'f' || dtype[0] == 'b') {
    const double x = a.get<double>(), y = b.get<double>();
    return computation == "mul" ? x * y : x + y;
  }
  const auto bits_of = [](const Json& v) {
    return v.is_number_unsigned() ? v.get<uint64_t>() : static_cast<uint64_t>(v.get<int64_t>());
  };
  const uint64_t x = bits_of(a), y = bits_of(b), value = computation == "mul" ? x * y : x + y;
  const int64_t wrapped = Wrap(value, std::stoi(dtype.substr(1)), dtype[0] == 'i');
  if (dtype == "u64") return static_cast<uint64_t>(wrapped);
  return wrapped;
}

Tensor<Json> TensorOf(const Json& tensor) { return {ShapeOf(tensor), tensor.at("data").get<std::vector<Json>>()}; }

// A tensor of zeros with the shape of `like`.
Tensor<Json> Zeros(const Json& like) {
  const Json zero = like.at("dtype") == "bool" ? Json(false) : Json(0);
  return {ShapeOf(like), std::vector<Json>(like.at("data").size(), zero)};
}

void ExpectTensor(const Json& expected, const Tensor<Json>& found, size_t rank) {
  EXPECT_EQ(Text(found.shape), Text(ShapeOf(expected))) << "of process " << rank;
  EXPECT_EQ(Json(found.data), expected.at("data")) << "of process " << rank;
}

// ---- cases with data ----

class DataCase {
 public:
  DataCase(const Json& test, harness::Random* random)
      : test_(test), attributes_(test.at("attributes")), op_(test.at("op")), random_(random) {}

  // Each group's operand k is simulated separately; ranks in no group or without an output hold zeros.
  void Run(const Rows& groups) {
    const Json& expected = test_.at("expected");
    const size_t operands = expected.empty() ? 0 : expected[0].size();
    for (size_t k = 0; k < operands; ++k) {
      std::vector<Tensor<Json>> outputs;
      for (const Json& process : expected) outputs.push_back(Zeros(process[k]));
      for (const std::vector<int64_t>& group : groups) RunGroup(group, k, &outputs);
      for (size_t rank = 0; rank < outputs.size(); ++rank) ExpectTensor(expected[rank][k], outputs[rank], rank);
    }
  }

 private:
  const Json& Input(int64_t rank, size_t k) { return test_.at("inputs").at(static_cast<size_t>(rank)).at(k); }

  void RunGroup(const std::vector<int64_t>& group, size_t k, std::vector<Tensor<Json>>* outputs) {
    const std::string dtype = Input(group[0], k).at("dtype"), computation = attributes_.value("computation", "");
    const Collective c = ReadCollective(op_, attributes_, static_cast<int>(group.size()), static_cast<int>(k));
    int root = 0;
    if (attributes_.value("has_dynamic_root", false))
      root = test_.at("inputs").at(static_cast<size_t>(group[0])).back().at("data").at(k).get<int>();
    std::vector<Tensor<Json>> inputs;
    for (int64_t rank : group) inputs.push_back(TensorOf(Input(rank, k)));
    const auto fold = [&](const Json& a, const Json& b) { return Combine(dtype, computation, a, b); };
    std::vector<Tensor<Json>> found = Simulate<Json>(c, root, inputs, fold, random_);
    const Contract contract = {c.kind, c.group_size, root};
    for (size_t i = 0; i < group.size(); ++i) {
      if (OutputBlocks(contract, static_cast<int>(i)) == 0) continue;
      if (attributes_.contains("scale")) {
        for (Json& value : found[i].data) value = value.get<double>() * attributes_.at("scale").get<double>();
      }
      (*outputs)[static_cast<size_t>(group[i])] = found[i];
    }
  }

  const Json& test_;
  const Json& attributes_;
  const std::string op_;
  harness::Random* random_;
};

void CheckPermute(const Json& test, harness::Random* random) {
  Result<PermutePairs> pairs = PairsOf(test);
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  Rows transfers;
  for (int rank = 0; rank < pairs->num_ranks(); ++rank) {
    const int source = pairs->SourceOf(rank);
    if (source < 0) continue;
    EXPECT_EQ(pairs->TargetOf(source), rank);
    transfers.push_back({source, rank});
  }
  DataCase(test, random).Run(transfers);
}

void CheckCollective(const Json& test, Kind kind, harness::Random* random) {
  const Json& attributes = test.at("attributes");
  Result<GroupMode> mode = ModeOfChannel(nullptr, kind, attributes.value("channel_id", int64_t{0}),
                                         attributes.value("use_global_device_ids", false));
  ASSERT_TRUE(mode.ok()) << mode.status().message();
  EXPECT_STREQ(GroupModeName(*mode), test.at("mode").get<std::string>().c_str());
  if (kind == Kind::kSendRecv) return CheckPermute(test, random);
  Result<ReplicaGroups> groups = GroupsOf(test, ReadRules(kind, attributes), kind);
  ASSERT_TRUE(groups.ok()) << groups.status().message();
  EXPECT_EQ(RowsOf(*groups), ExpectedGroups(test));
  const std::string op = test.at("op");
  // Counts that differ by pair are not blocks of one shape, so only their groups are checked here.
  if (op != "all_to_allv" && op != "ragged_all_to_all") DataCase(test, random).Run(RowsOf(*groups));
}

// A channel is a FIFO; each step is a transfer between the two ranks that name it.
void CheckSendRecv(const Json& test, harness::Random* random) {
  const Json& programs = test.at("attributes").at("programs");
  std::map<int64_t, std::deque<Tensor<Json>>> channels;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    for (const Json& step : programs[rank]) {
      if (step[0] == "send")
        channels[step[1].get<int64_t>()].push_back(TensorOf(test.at("inputs")[rank].at(step[2].get<size_t>())));
    }
  }
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    size_t received = 0;
    for (const Json& step : programs[rank]) {
      if (step[0] != "recv") continue;
      std::deque<Tensor<Json>>& channel = channels[step[1].get<int64_t>()];
      ASSERT_FALSE(channel.empty());
      const Collective c = {.kind = Kind::kSendRecv, .group_size = 2};
      const auto found = Simulate<Json>(c, 0, {channel.front(), channel.front()}, {}, random);
      ExpectTensor(test.at("expected")[rank].at(received++), found[1], rank);
      channel.pop_front();
    }
    EXPECT_EQ(received, test.at("expected")[rank].size());
  }
}

// replica_id and partition_id: process (r, p) is rank r * P + p.
void CheckProcessId(const Json& test, bool partition) {
  const Grid grid = GridOf(test);
  ASSERT_EQ(static_cast<int64_t>(test.at("expected").size()), grid.Ranks());
  for (int64_t rank = 0; rank < grid.Ranks(); ++rank) {
    const int64_t id = partition ? rank % grid.num_partitions : rank / grid.num_partitions;
    EXPECT_EQ(test.at("expected")[static_cast<size_t>(rank)][0].at("data")[0], id);
  }
}

// ---- tables and shapes ----

void CheckGroupTable(const Json& test) {
  Result<ReplicaGroups> groups = GroupsOf(test, GroupRules(), Kind::kAllReduce);
  ASSERT_TRUE(groups.ok()) << groups.status().message();
  EXPECT_EQ(RowsOf(*groups), ExpectedGroups(test));
  const Json& expected = test.at("expected");
  if (test.at("op") == "process_groups") {
    Json found = Json::array();
    for (const auto& row : RowsOf(*groups)) {
      found.push_back(Json::array());
      const int64_t partitions = GridOf(test).num_partitions;
      for (int64_t rank : row) found.back().push_back({rank / partitions, rank % partitions});
    }
    EXPECT_EQ(found, expected.at("process_groups"));
    return;
  }
  for (int rank = 0; rank < groups->num_ranks(); ++rank) {
    EXPECT_EQ(groups->PlaceOf(rank).group, expected.at("color")[static_cast<size_t>(rank)].get<int>());
    EXPECT_EQ(groups->PlaceOf(rank).position, expected.at("key")[static_cast<size_t>(rank)].get<int>());
  }
}

void CheckPermuteTable(const Json& test) {
  Result<PermutePairs> pairs = PairsOf(test);
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  for (int rank = 0; rank < pairs->num_ranks(); ++rank) {
    EXPECT_EQ(pairs->TargetOf(rank), test.at("expected").at("send_to")[static_cast<size_t>(rank)].get<int>());
    EXPECT_EQ(pairs->SourceOf(rank), test.at("expected").at("recv_from")[static_cast<size_t>(rank)].get<int>());
  }
}

Result<IdTable> ReadMeshGroups(const Json& attributes) {
  std::vector<std::string> names;  // the owners of the string_views
  for (const Json& axis : attributes.at("mesh_axes")) names.push_back(axis[0]);
  for (const Json& axis : attributes.at("axes")) names.push_back(axis[0]);
  std::vector<MeshAxis> mesh;
  std::vector<AxisRef> refs;
  for (const Json& axis : attributes.at("mesh_axes")) mesh.push_back({names[mesh.size()], axis[1].get<int64_t>()});
  for (const Json& axis : attributes.at("axes")) {
    AxisRef ref = {.name = names[mesh.size() + refs.size()]};
    if (axis.size() > 1) ref.pre_size = axis[1].get<int64_t>(), ref.size = axis[2].get<int64_t>();
    refs.push_back(ref);
  }
  std::vector<int64_t> devices;
  if (!attributes.at("device_ids").is_null()) devices = attributes.at("device_ids").get<std::vector<int64_t>>();
  return MeshGroups("vectors", {mesh, devices}, refs);
}

void CheckIdTable(const Json& test) {
  const Json &attributes = test.at("attributes"), &expected = test.at("expected");
  Result<IdTable> table = [&] {
    if (test.at("op") == "mesh_axes_groups") return ReadMeshGroups(attributes);
    const auto dims = attributes.at("reshape_dims").get<std::vector<int64_t>>();
    const auto permutation = attributes.at("transpose_perm").get<std::vector<int64_t>>();
    return IotaGroups("vectors", attributes.at("num_groups"), attributes.at("group_size"), dims, permutation);
  }();
  ASSERT_TRUE(table.ok()) << table.status().message();
  // The groups consist of flattened ids that cover the devices.
  GroupRules rules = StableHloRules(Kind::kAllGather);
  const Grid grid = {static_cast<int64_t>(table->ids.size()), 1};
  Result<ReplicaGroups> groups =
      ReplicaGroups::Make({.grid = grid, .mode = GroupMode::kFlattenedIds, .ids = table->lists(), .rules = rules});
  ASSERT_TRUE(groups.ok()) << groups.status().message();
  if (expected.contains("replica_groups")) {
    EXPECT_EQ(RowsOf(*groups), expected.at("replica_groups").get<Rows>());
    return;
  }
  EXPECT_EQ(groups->num_groups(), expected.at("num_groups").get<int>());
  EXPECT_EQ(table->width, expected.at("group_size").get<size_t>());
}

void CheckShape(const Json& test, Kind kind) {
  const Json& attributes = test.at("attributes");
  const IdTensor ids = ReadIds(kind, attributes);
  Result<GroupMode> mode = ModeOfChannel(nullptr, kind, attributes.value("channel_id", int64_t{0}),
                                         attributes.value("use_global_device_ids", false));
  ASSERT_TRUE(mode.ok()) << mode.status().message();
  Result<IdLists> lists = ids.Lists("vectors");
  ASSERT_TRUE(lists.ok()) << lists.status().message();
  const Grid grid = SmallestGrid(ids, *mode);
  if (kind == Kind::kSendRecv) {
    const Result<PermutePairs> pairs = PermutePairs::Make({.grid = grid, .mode = *mode, .pairs = *lists});
    ASSERT_TRUE(pairs.ok()) << pairs.status().message();
    for (const Json& pair : attributes.at("source_target_pairs"))
      EXPECT_EQ(pairs.value().TargetOf(pair[0].get<int>()), pair[1].get<int>());
  } else {
    const Result<ReplicaGroups> groups = ReplicaGroups::Make(
        {.kind = kind, .grid = grid, .mode = *mode, .ids = *lists, .rules = ReadRules(kind, attributes)});
    ASSERT_TRUE(groups.ok()) << groups.status().message();
    EXPECT_EQ(RowsOf(groups.value()), attributes.at("replica_groups").get<Rows>());
  }
  const Json& expected = test.at("expected").at("result_shapes");
  const size_t roots = attributes.value("has_dynamic_root", false) ? 1 : 0;
  ASSERT_EQ(test.at("operands").size(), expected.size() + roots);
  for (size_t i = 0; i < expected.size(); ++i) {
    Shape output;
    const Collective c = ReadCollective(test.at("op"), attributes, static_cast<int>(ids.shape.at(1)), 0);
    const Status status = OutputShape(c, ShapeOf(test.at("operands")[i]), &output);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(Text(output), Text(ShapeOf({{"shape", expected[i]}})));
  }
}

void CheckCase(const Json& test, harness::Random* random) {
  const std::string op = test.at("op");
  const std::optional<Kind> kind = KindOfOp(op);
  if (test.value("kind", "") == "shape" && kind) return CheckShape(test, *kind);
  if (kind) return CheckCollective(test, *kind, random);
  if (op == "send_recv") return CheckSendRecv(test, random);
  if (op == "replica_id" || op == "partition_id") return CheckProcessId(test, op == "partition_id");
  if (op == "process_groups" || op == "group_table") return CheckGroupTable(test);
  if (op == "permute_table") return CheckPermuteTable(test);
  if (op == "mesh_axes_groups" || op == "iota_groups") return CheckIdTable(test);
  ADD_FAILURE() << "unknown op " << op;
}

void CheckFile(const std::string& file) {
  if (const std::string missing = VectorsMissing(); !missing.empty()) GTEST_SKIP() << missing;
  harness::Random random(harness::Seed());
  std::map<std::string, int> cases;
  for (const Json& test : ReadVectors(file)) {
    SCOPED_TRACE(test.at("name").get<std::string>() + ", AXCCL_TEST_SEED=" + std::to_string(harness::Seed()));
    CheckCase(test, &random);
    ++cases[test.at("op")];
  }
  EXPECT_FALSE(cases.empty());
  for (const auto& [op, count] : cases) std::printf("%s: %d cases of %s\n", file.c_str(), count, op.c_str());
}

TEST(VectorsTest, PublicCases) { CheckFile("public_cases.json"); }
TEST(VectorsTest, StableHloInterpreter) { CheckFile("stablehlo_interpret.json"); }

}  // namespace
}  // namespace axccl::tensor
