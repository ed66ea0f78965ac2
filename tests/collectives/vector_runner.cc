#include "tests/collectives/vector_runner.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/collectives/tensor.h"

namespace axccl::tests {
namespace {

using harness::GuardedArena;
using harness::Memory;
using harness::Random;
using harness::Scramble;
using harness::Seed;
using Ids = std::vector<int64_t>;

constexpr size_t kArenaBytes = size_t{4} << 20;

Sizes SizesOf(const Json& tensor) { return tensor.at("shape").get<Sizes>(); }

Element ElementOf(ncclDataType_t type, const Json& value) {
  uint64_t bits = 0;
  if (value.is_boolean()) {
    bits = value.get<bool>();
  } else if (harness::IsFloatType(type)) {
    bits = harness::EncodeFloat(type, value.get<double>());
  } else {
    bits = value.is_number_unsigned() ? value.get<uint64_t>() : static_cast<uint64_t>(value.get<int64_t>());
  }
  Element element = {};
  std::memcpy(element.data(), &bits, sizeof(bits));
  return element;
}

Tensor PlaceTensor(const Json& tensor, bool strided, GuardedArena* arena, Random* random) {
  Placement placement = AnyPlacement(SizesOf(tensor), false, Random(random->Next()));
  while (!strided && !placement.dense) placement = AnyPlacement(SizesOf(tensor), false, Random(random->Next()));
  return Tensor(placement, TypeOf(tensor), arena, random);
}

template <class Visit>
void ForEachElement(const Json& tensor, const Visit& visit) {
  size_t i = 0;
  ForEachIndex(SizesOf(tensor), [&](const Sizes& index) {
    visit(index, ElementOf(TypeOf(tensor), tensor.at("data").at(i)));
    ++i;
  });
}

axcclGroupRules_t RulesOf(const std::string& op) {
  static const std::map<std::string, axcclGroupRules_t> rules = {
      {"all_gather", axcclRulesAllGather},           {"all_reduce", axcclRulesAllReduce},
      {"reduce_scatter", axcclRulesReduceScatter},   {"all_to_all", axcclRulesAllToAll},
      {"collective_broadcast", axcclRulesBroadcast}, {"collective_reduce", axcclRulesReduce}};
  const auto found = rules.find(op);
  return found == rules.end() ? axcclRulesAny : found->second;
}

axcclGroupMode_t ModeNamed(const std::string& name) {
  if (name == "cross_replica") return axcclCrossReplica;
  if (name == "cross_partition") return axcclCrossPartition;
  if (name == "cross_replica_and_partition") return axcclCrossReplicaAndPartition;
  EXPECT_EQ(name, "flattened_ids");
  return axcclFlattenedIds;
}

int64_t LargestId(const Json& ids) {
  if (!ids.is_array()) return ids.get<int64_t>();
  int64_t largest = 0;
  for (const Json& inner : ids) largest = std::max(largest, LargestId(inner));
  return largest;
}

// Operators by name; a scaled sum is an average if the scale is 1/n.
ncclRedOp_t OperatorOf(const Json& test) {
  const Json& attributes = test.at("attributes");
  static const std::map<std::string, ncclRedOp_t> operators = {{"add", ncclSum}, {"mul", ncclProd}, {"min", ncclMin},
                                                               {"max", ncclMax}, {"and", axcclAnd}, {"or", axcclOr}};
  const auto found = operators.find(attributes.value("computation", "add"));
  EXPECT_NE(found, operators.end());
  if (!attributes.contains("scale")) return found->second;
  const size_t group_size = attributes.at("replica_groups").at(0).size();
  EXPECT_EQ(attributes.at("scale").get<double>() * static_cast<double>(group_size), 1);
  return ncclAvg;
}

bool IsTable(const std::string& op) {
  return std::set<std::string>{"process_groups", "group_table", "mesh_axes_groups"}.contains(op);
}

bool MovesByCounts(const std::string& op) { return op == "all_to_allv" || op == "ragged_all_to_all"; }

// ---- groups alone ----

struct RankLists {
  explicit RankLists(axcclGroups_t groups) {
    axcclGroupsInfo_t info{};
    info.size = sizeof(info);
    EXPECT_OK(axcclGroupsGetInfo(groups, &info));
    num_ranks = info.num_ranks;
    for (int g = 0; g < info.num_groups; ++g) {
      int n = 0;
      EXPECT_OK(axcclGroupsGetRanks(groups, g, nullptr, 0, &n));
      lists.emplace_back(static_cast<size_t>(n));
      EXPECT_OK(axcclGroupsGetRanks(groups, g, lists.back().data(), n, nullptr));
    }
    EXPECT_OK(axcclGroupsDestroy(groups));
  }
  int num_ranks = 0;
  std::vector<std::vector<int>> lists;
};

axcclGroups_t MeshGroups(const Json& attributes) {
  std::vector<std::string> names;  // referenced by the structs
  for (const char* key : {"mesh_axes", "axes"}) {
    for (const Json& axis : attributes.at(key)) names.push_back(axis[0]);
  }
  std::vector<axcclMeshAxis_t> axes;
  std::vector<axcclAxisRef_t> refs;
  for (const Json& axis : attributes.at("mesh_axes"))
    axes.push_back({names[axes.size()].c_str(), axis[1].get<int64_t>()});
  for (const Json& axis : attributes.at("axes")) {
    const bool sub = axis.size() > 1;
    refs.push_back(
        {names[axes.size() + refs.size()].c_str(), sub ? axis[1].get<int64_t>() : 1, sub ? axis[2].get<int64_t>() : 0});
  }
  Ids devices;
  if (!attributes.at("device_ids").is_null()) devices = attributes.at("device_ids").get<Ids>();
  axcclMesh_t mesh = AXCCL_MESH_INITIALIZER;
  mesh.axes = axes.data(), mesh.num_axes = static_cast<int>(axes.size());
  if (!devices.empty()) mesh.device_ids = devices.data(), mesh.num_device_ids = devices.size();
  // A device may have any number: there are ranks up to the largest.
  if (!devices.empty()) mesh.num_ranks = 1 + *std::max_element(devices.begin(), devices.end());
  axcclGroups_t groups = nullptr;
  EXPECT_OK(axcclGroupsCreateFromMesh(&groups, &mesh, refs.data(), static_cast<int>(refs.size())));
  return groups;
}

void CheckTable(const Json& test) {
  const Json &attributes = test.at("attributes"), &expected = test.at("expected");
  const std::string op = test.at("op");
  axcclGroups_t groups = nullptr;
  int64_t partitions = 1;
  if (op == "mesh_axes_groups") {
    groups = MeshGroups(attributes);
  } else {
    partitions = test.at("num_partitions");
    ASSERT_OK(CreateGroups(op, attributes, ModeNamed(test.at("mode")), test.at("num_replicas"), partitions, &groups));
  }
  ASSERT_NE(groups, nullptr);
  for (size_t rank = 0; op == "group_table" && rank < expected.at("color").size(); ++rank) {
    int group = -2, position = -2;
    EXPECT_OK(axcclGroupsGetPlace(groups, static_cast<int>(rank), &group, &position, nullptr));
    EXPECT_EQ(group, expected.at("color")[rank].get<int>());
    EXPECT_EQ(position, expected.at("key")[rank].get<int>());
  }
  const RankLists found(groups);
  if (expected.contains("num_groups")) {
    EXPECT_EQ(found.lists.size(), expected.at("num_groups").get<size_t>());
    for (const auto& list : found.lists) EXPECT_EQ(list.size(), expected.at("group_size").get<size_t>());
  }
  if (expected.contains("replica_groups")) {
    EXPECT_EQ(Json(found.lists), expected.at("replica_groups"));
  }
  if (op != "process_groups") return;
  Json processes = Json::array();
  for (const auto& list : found.lists) {
    processes.push_back(Json::array());
    for (const int rank : list) processes.back().push_back({rank / partitions, rank % partitions});
  }
  EXPECT_EQ(processes, expected.at("process_groups"));
}

}  // namespace

ncclDataType_t TypeOf(const Json& tensor) {
  static const std::map<std::string, ncclDataType_t> types = {
      {"i8", ncclInt8},     {"i16", axcclInt16},  {"i32", ncclInt32},  {"i64", ncclInt64},   {"u8", ncclUint8},
      {"u16", axcclUint16}, {"u32", ncclUint32},  {"u64", ncclUint64}, {"f16", ncclFloat16}, {"bf16", ncclBfloat16},
      {"f32", ncclFloat32}, {"f64", ncclFloat64}, {"bool", axcclBool}};
  return types.at(tensor.at("dtype").get<std::string>());
}

axcclGroupMode_t ModeOf(const std::string& op, const Json& attributes) {
  const bool global = attributes.value("use_global_device_ids", false);
  const bool channel = attributes.value("channel_id", int64_t{0}) > 0;
  const bool of_partitions = op == "all_to_all" || op == "collective_broadcast" || op == "collective_permute";
  if (global) return axcclFlattenedIds;
  if (!channel) return axcclCrossReplica;
  return of_partitions ? axcclCrossPartition : axcclCrossReplicaAndPartition;
}

ncclResult_t CreateGroups(const std::string& op, const Json& attributes, axcclGroupMode_t mode, int64_t replicas,
                          int64_t partitions, axcclGroups_t* groups) {
  Ids ids;
  size_t width = 0;
  // A permutation is over all ids: its pairs name ranks of the channel.
  const Json lists = attributes.value("replica_groups", Json::array());
  for (const Json& list : lists) {
    width = list.size();
    for (const Json& id : list) ids.push_back(id.get<int64_t>());
  }
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.mode = mode, spec.rules = RulesOf(op), spec.num_replicas = replicas, spec.num_partitions = partitions;
  spec.ids = ids.empty() ? nullptr : ids.data(), spec.num_groups = lists.size(), spec.group_size = width;
  spec.split_count = attributes.value("split_count", int64_t{0});
  return axcclGroupsCreate(groups, &spec);
}

std::string NotExpressible(const Json& test) {
  const std::string op = test.at("op");
  if (op == "iota_groups") return "the caller computes ids from iota";
  const Json attributes = test.at("attributes");
  if (test.value("kind", "") == "shape" && attributes.contains("computation_dtype")) {
    for (const Json& type : test.at("expected").at("result_dtypes")) {
      if (type != test.at("operands").at(0).at("dtype")) return "results have the type of the operands";
    }
  }
  return "";
}

namespace {

// A table of a permutation's peers, as data: the result when every rank sends its number.
Json OfRanks(const Json& test) {
  Json data = test;
  data["op"] = "collective_permute", data["mode"] = "cross_replica";
  data["inputs"] = data["expected"] = Json::array();
  const Json& sources = test.at("expected").at("recv_from");
  for (size_t k = 0; k < sources.size(); ++k) {
    const auto number = [](const Json& value) {
      return Json::array({{{"dtype", "i64"}, {"shape", {1}}, {"data", {value}}}});
    };
    data["inputs"].push_back(number(k));
    data["expected"].push_back(number(sources[k]));
    EXPECT_EQ(sources.at(test.at("expected").at("send_to")[k].get<size_t>()), k);
  }
  return data;
}

}  // namespace

Json WithData(const Json& test) {
  if (test.at("op") == "permute_table") return OfRanks(test);
  if (test.value("kind", "") != "shape") return test;
  Json data = test;
  const Json& attributes = test.at("attributes");
  const axcclGroupMode_t mode = ModeOf(test.at("op"), attributes);
  const char* ids = attributes.contains("replica_groups") ? "replica_groups" : "source_target_pairs";
  const int64_t processes = LargestId(attributes.at(ids)) + 1;
  static const char* const kModes[] = {"cross_replica", "cross_partition", "cross_replica_and_partition",
                                       "flattened_ids"};
  data["mode"] = kModes[mode];
  data["num_replicas"] = mode == axcclCrossPartition ? 1 : processes;
  data["num_partitions"] = mode == axcclCrossPartition ? processes : 1;
  const auto zeros = [](const Json& type, const Json& shape) {
    size_t elements = 1;
    for (const Json& size : shape) elements *= size.get<size_t>();
    return Json{{"dtype", type}, {"shape", shape}, {"data", std::vector<int>(elements)}};
  };
  Json inputs = Json::array(), outputs = Json::array();
  for (const Json& tensor : test.at("operands")) inputs.push_back(zeros(tensor.at("dtype"), tensor.at("shape")));
  const Json& expected = test.at("expected");
  for (size_t i = 0; i < expected.at("result_shapes").size(); ++i)
    outputs.push_back(zeros(expected.at("result_dtypes")[i], expected.at("result_shapes")[i]));
  data["inputs"] = std::vector<Json>(static_cast<size_t>(processes), inputs);
  data["expected"] = std::vector<Json>(static_cast<size_t>(processes), outputs);
  return data;
}

int RanksOf(const Json& test) {
  if (IsTable(test.at("op"))) return 1;
  return static_cast<int>(test.at("num_replicas").get<int64_t>() * test.at("num_partitions").get<int64_t>());
}

ncclResult_t CallOp(const Json& test, const std::vector<axcclView_t>& in, const std::vector<axcclView_t>& out,
                    const std::vector<int32_t>& roots, axcclChannel_t channel, cudaStream_t stream) {
  const std::string op = test.at("op");
  const Json& attributes = test.at("attributes");
  const int count = static_cast<int>(out.size());
  const auto dim = [&](const char* name) { return attributes.at(name).get<int>(); };
  const bool dynamic = attributes.value("has_dynamic_root", false);
  if (op == "all_gather")
    return axcclAllGather(count, in.data(), out.data(), dim("all_gather_dim"), channel, nullptr, stream);
  if (op == "all_reduce")
    return axcclAllReduce(count, in.data(), out.data(), OperatorOf(test), channel, nullptr, stream);
  if (op == "reduce_scatter")
    return axcclReduceScatter(count, in.data(), out.data(), dim("scatter_dimension"), OperatorOf(test), channel,
                              nullptr, stream);
  if (op == "all_to_all")
    return axcclAllToAll(count, in.data(), out.data(), dim("split_dimension"), dim("concat_dimension"), channel,
                         nullptr, stream);
  if (op == "collective_broadcast" && dynamic)
    return axcclBroadcastFrom(count, in.data(), out.data(), roots.data(), channel, nullptr, stream);
  if (op == "collective_broadcast") return axcclBroadcast(count, in.data(), out.data(), 0, channel, nullptr, stream);
  if (op == "collective_reduce" && dynamic)
    return axcclReduceTo(count, in.data(), out.data(), OperatorOf(test), roots.data(), channel, nullptr, stream);
  if (op == "collective_reduce")
    return axcclReduce(count, in.data(), out.data(), OperatorOf(test), 0, channel, nullptr, stream);
  if (op == "collective_permute") {
    Ids pairs;
    for (const Json& pair : attributes.at("source_target_pairs")) {
      for (const Json& id : pair) pairs.push_back(id.get<int64_t>());
    }
    return axcclCollectivePermute(count, in.data(), out.data(), pairs.data(), static_cast<int>(pairs.size() / 2),
                                  channel, nullptr, stream);
  }
  ADD_FAILURE() << "no call for " << op;
  return ncclInternalError;
}

VectorRunner::VectorRunner(harness::RankContext& context, const harness::Clique& clique, const std::string& forced)
    : context_(context), clique_(clique), forced_(forced), rank_(clique.rank(0)) {
  arenas_[0] = GuardedArena::Create(Memory::kMalloc, kArenaBytes);
  arenas_[1] = GuardedArena::Create(Memory::kMemAlloc, kArenaBytes);
}

void VectorRunner::Run(const Json& test, bool strided) {
  const std::string op = test.at("op"), name = test.at("name");
  SCOPED_TRACE(name + (strided ? ", strided" : "") + ", AXCCL_TEST_SEED=" + std::to_string(Seed()));
  if (!context_.Step("%s", name.c_str())) return;
  if (IsTable(op)) return CheckTable(test);
  if (op == "replica_id" || op == "partition_id") return RunProcessId(test);
  if (op == "send_recv") return RunSendRecv(test, strided);
  RunData(test, strided);
}

void VectorRunner::RunData(const Json& test, bool strided) {
  const std::string op = test.at("op");
  const Json &attributes = test.at("attributes"), &inputs = test.at("inputs").at(static_cast<size_t>(rank_)),
             &expected = test.at("expected").at(static_cast<size_t>(rank_));
  const axcclGroupMode_t mode = ModeNamed(test.at("mode"));
  if (!MovesByCounts(op)) {
    EXPECT_EQ(mode, ModeOf(op, attributes));
  }
  axcclGroups_t groups = nullptr;
  ASSERT_OK(CreateGroups(op, attributes, mode, test.at("num_replicas"), test.at("num_partitions"), &groups));
  int position = -1, group_size = 0;
  ASSERT_OK(axcclGroupsGetPlace(groups, rank_, nullptr, &position, &group_size));
  axcclChannel_t channel = nullptr;
  ASSERT_OK(axcclChannelCreate(&channel, clique_.comm(), groups, attributes.value("channel_id", int64_t{0}), 0));
  EXPECT_OK(axcclGroupsDestroy(groups));

  Random random(Scramble(Seed(), static_cast<uint64_t>(rank_), strided));
  GuardedArena* const arena = arenas_[strided].get();
  std::vector<Tensor> in, out;
  for (size_t i = 0; i < expected.size(); ++i) {
    Tensor& input = in.emplace_back(PlaceTensor(inputs.at(i), strided, arena, &random));
    Tensor& output = out.emplace_back(PlaceTensor(expected[i], strided, arena, &random));
    ForEachElement(inputs[i], [&](const Sizes& index, const Element& e) { input.Write(index, e); });
    if (op == "ragged_all_to_all")
      ForEachElement(inputs[1], [&](const Sizes& index, const Element& e) { output.Write(index, e); });
    ForEachElement(expected[i], [&](const Sizes& index, const Element& e) { output.Expect(index, e); });
  }
  std::vector<axcclView_t> in_views, out_views;
  for (Tensor& tensor : in) in_views.push_back(tensor.View());
  for (Tensor& tensor : out) out_views.push_back(tensor.View());
  std::vector<int32_t> roots;
  if (attributes.value("has_dynamic_root", false)) roots = inputs.back().at("data").get<std::vector<int32_t>>();
  // Ranks in no group also call, and get zeros.
  if (MovesByCounts(op)) {
    ASSERT_OK(CallRagged(test, position, in_views, out_views, channel));
  } else {
    ASSERT_OK(CallOp(test, in_views, out_views, roots, channel, stream()));
  }
  ASSERT_OK(axcclStreamSynchronize(clique_.stream()));
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(in[i].FirstWrong(), -1) << "input " << i << " of process " << rank_;
    EXPECT_EQ(out[i].FirstWrong(), -1) << "output " << i << " of process " << rank_;
  }
  EXPECT_EQ(arena->CheckSentinels(), "");
  arena->Reset();
  // Direct access needs memory that peers can map.
  const bool mapped = strided || context_.layout().processes == 1;
  if (group_size > 1 && (mapped || forced_ != "direct")) CheckAlgorithm(test);
  EXPECT_OK(axcclChannelDestroy(channel));
}

ncclResult_t VectorRunner::CallRagged(const Json& test, int place, const std::vector<axcclView_t>& in,
                                      const std::vector<axcclView_t>& out, axcclChannel_t channel) {
  const Json& inputs = test.at("inputs").at(static_cast<size_t>(rank_));
  if (test.at("op") == "ragged_all_to_all") {
    for (size_t i = 0; i < 4; ++i) numbers_[i] = inputs.at(2 + i).at("data").get<Ids>();
    return axcclRaggedAllToAll(1, in.data(), out.data(), 0, numbers_[0].data(), numbers_[1].data(), numbers_[2].data(),
                               numbers_[3].data(), channel, nullptr, stream());
  }
  const Json& counts = test.at("attributes").at("send_counts");
  const auto sent = counts.at(static_cast<size_t>(place)).get<Ids>();
  Ids received;
  for (const Json& row : counts) received.push_back(row.at(static_cast<size_t>(place)));
  return axcclAllToAllV(1, in.data(), out.data(), 0, sent.data(), received.data(), channel, nullptr, stream());
}

void VectorRunner::CheckAlgorithm(const Json& test) {
  static const std::map<std::string, std::set<std::string>> has = {
      {"all_reduce", {"oneshot", "direct", "twoshot", "ring", "tree", "rhd"}},
      {"all_gather", {"oneshot", "direct", "ring", "bruck"}},
      {"reduce_scatter", {"oneshot", "direct", "ring"}},
      {"all_to_all", {"oneshot", "direct", "pairwise"}},
      {"collective_broadcast", {"oneshot", "direct", "tree"}},
      {"collective_reduce", {"tree"}}};
  const auto found = has.find(test.at("op").get<std::string>());
  const bool dynamic = test.at("attributes").value("has_dynamic_root", false);
  if (found == has.end() || !found->second.contains(forced_) || dynamic) return;
  const char* taken = nullptr;
  ASSERT_OK(axcclCommGetLastAlgorithm(clique_.comm(), &taken));
  EXPECT_EQ(taken, forced_);
}

// A channel of the vectors is a queue between the two processes that it names.
void VectorRunner::RunSendRecv(const Json& test, bool strided) {
  const Json& programs = test.at("attributes").at("programs");
  const auto other_end = [&](const Json& step) {
    const char* other = step[0] == "send" ? "recv" : "send";
    for (size_t k = 0; k < programs.size(); ++k) {
      for (const Json& s : programs[k]) {
        if (s[0] == other && s[1] == step[1]) return static_cast<int>(k);
      }
    }
    return -1;
  };
  std::map<int64_t, axcclChannel_t> channels;
  for (const Json& program : programs) {
    for (const Json& step : program) channels[step[1].get<int64_t>()] = nullptr;
  }
  for (auto& [id, channel] : channels) ASSERT_OK(axcclChannelCreate(&channel, clique_.comm(), nullptr, id, 0));
  Random random(Scramble(Seed(), static_cast<uint64_t>(rank_), strided));
  GuardedArena* const arena = arenas_[strided].get();
  const auto rank = static_cast<size_t>(rank_);
  std::vector<Tensor> sent, received;
  for (const Json& tensor : test.at("inputs").at(rank)) {
    Tensor& input = sent.emplace_back(PlaceTensor(tensor, strided, arena, &random));
    ForEachElement(tensor, [&](const Sizes& index, const Element& e) { input.Write(index, e); });
  }
  for (const Json& tensor : test.at("expected").at(rank)) {
    Tensor& output = received.emplace_back(PlaceTensor(tensor, strided, arena, &random));
    ForEachElement(tensor, [&](const Sizes& index, const Element& e) { output.Expect(index, e); });
  }
  size_t next = 0;
  for (const Json& step : programs.at(rank)) {
    const int peer = other_end(step);
    const axcclChannel_t channel = channels.at(step[1].get<int64_t>());
    if (step[0] == "send") {
      ASSERT_OK(axcclSend(1, &sent.at(step[2].get<size_t>()).View(), peer, channel, nullptr, stream()));
    } else {
      ASSERT_OK(axcclRecv(1, &received.at(next++).View(), peer, channel, nullptr, stream()));
    }
  }
  ASSERT_OK(axcclStreamSynchronize(clique_.stream()));
  for (Tensor& tensor : sent) EXPECT_EQ(tensor.FirstWrong(), -1) << "sent by process " << rank_;
  for (Tensor& tensor : received) EXPECT_EQ(tensor.FirstWrong(), -1) << "received by process " << rank_;
  EXPECT_EQ(arena->CheckSentinels(), "");
  arena->Reset();
  for (auto& [id, channel] : channels) EXPECT_OK(axcclChannelDestroy(channel));
}

void VectorRunner::RunProcessId(const Json& test) {
  axcclGroups_t groups = nullptr;
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.mode = axcclCrossReplica, spec.num_replicas = test.at("num_replicas");
  spec.num_partitions = test.at("num_partitions");
  ASSERT_OK(axcclGroupsCreate(&groups, &spec));
  axcclChannel_t channel = nullptr;
  ASSERT_OK(axcclChannelCreate(&channel, clique_.comm(), groups, 0, 0));
  EXPECT_OK(axcclGroupsDestroy(groups));
  axcclChannelInfo_t info{};
  info.size = sizeof(info);
  EXPECT_OK(axcclChannelGetInfo(channel, &info));
  EXPECT_OK(axcclChannelDestroy(channel));
  const int64_t id = test.at("op") == "replica_id" ? info.replica_id : info.partition_id;
  EXPECT_EQ(test.at("expected").at(static_cast<size_t>(rank_)).at(0).at("data").at(0), id);
}

}  // namespace axccl::tests
