#include "src/program/simulate/on_machines.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/algo/algo.h"
#include "src/program/check/rules.h"
#include "src/program/kinds.h"
#include "src/program/simulate/work.h"
#include "src/sim/simulate.h"

namespace axccl::program {
namespace {

// A device moves data in that many lanes, which share the bandwidth of its memory and its link.
constexpr int kLanesOfDevice = 8;
// The scratch of a lane, as large as GPUs have use for between machines.
constexpr uint64_t kScratchOfDevice = 64 << 20;

// The largest group for which the tuner is asked.
constexpr int kMostTuned = 256;
// Turns of a tree of many ranks, at most, and the least bytes of one.
constexpr uint64_t kTurnsOfTree = 64, kTurnBytesOfTree = 1 << 20;

// Whether a plan of many ranks may be simulated in seconds: not if each rank exchanges data with each at once, and not
// if another of the same pattern knows the machines.
bool SuitsManyRanks(std::string_view algorithm, const plan::Placement& placement) {
  for (const std::string_view all_pairs : {"direct", "pull", "push", "oneshot", "twoshot", "hierarchical_ring"}) {
    if (algorithm == all_pairs) return false;
  }
  return !placement.has_levels() || algorithm.starts_with(algo::kHierarchical);
}

bool IsPair(OpKind kind) {
  return kind == OpKind::kSend || kind == OpKind::kRecv || kind == OpKind::kCollectivePermute;
}

plan::Kind KindOfPlan(OpKind kind) {
  switch (kind) {
    case OpKind::kAllGather:
      return plan::Kind::kAllGather;
    case OpKind::kAllReduce:
      return plan::Kind::kAllReduce;
    case OpKind::kAllToAll:
      return plan::Kind::kAllToAll;
    case OpKind::kCollectiveReduce:
      return plan::Kind::kReduce;
    case OpKind::kReduceScatter:
      return plan::Kind::kReduceScatter;
    default:
      return plan::Kind::kBroadcast;
  }
}

// The kind as which a call counts. A root that a value gives makes no difference.
OpKind KindOfCall(OpKind kind) {
  if (kind == OpKind::kRecv) return OpKind::kSend;
  if (kind == OpKind::kCollectiveBroadcastFrom) return OpKind::kCollectiveBroadcast;
  return kind == OpKind::kCollectiveReduceTo ? OpKind::kCollectiveReduce : kind;
}

// The matrix products of a dot.
double Batches(const Operation& operation, const TensorType& lhs) {
  double batches = 1;
  if (operation.kind == OpKind::kDot) return batches;
  for (const int64_t dim : Get<Ints>(operation, Attr::kLhsBatchingDims))
    batches *= static_cast<double>(lhs.dims[static_cast<size_t>(dim)]);
  return batches;
}

// The bytes of a block, of the size that nccl-tests gives.
uint64_t BlockBytes(plan::Kind kind, int ranks, uint64_t bytes) {
  const bool cut =
      kind == plan::Kind::kAllGather || kind == plan::Kind::kReduceScatter || kind == plan::Kind::kAllToAll;
  return cut ? bytes / static_cast<uint64_t>(ranks) : bytes;
}

}  // namespace

double MachinesModel::LocalSeconds(const Operation& operation, const std::vector<const TensorType*>& operands) const {
  if (IsIdle(operation.kind)) return 0;
  const Work work = WorkOf(operation, operands);
  const Measured& measured = machines_.measured;
  if (const auto curve = measured.operations.find(operation.kind); curve != measured.operations.end())
    return SecondsAt(curve->second, work.read + work.written);
  if (work.product && measured.products.contains(operands[0]->data_type)) {
    const Measured::Product& product = measured.products.at(operands[0]->data_type);
    return product.seconds * Batches(operation, *operands[0]) + product.per_flop * work.flops +
           product.per_left_byte * BytesOf(*operands[0]) + product.per_right_byte * BytesOf(*operands[1]) +
           product.per_result_byte * work.written;
  }
  double rate = machines_.element_flops;
  if (work.product) {
    const DataType type = operands[0]->data_type;
    rate = !IsFloat(type)               ? machines_.integer_flops
           : type == DataType::kFloat64 ? machines_.f64_flops
           : type == DataType::kFloat32 ? machines_.f32_flops
                                        : machines_.f16_flops;
  }
  return machines_.launch_seconds +
         std::max(work.flops / rate, (work.read + work.written) / machines_.fabric.memory_bytes_per_second);
}

plan::Placement MachinesModel::PlacementOf(const Ints& ranks) const {
  std::vector<int> machine_of;
  for (const int64_t rank : ranks) machine_of.push_back(static_cast<int>(rank / machines_.ranks_per_machine));
  return plan::Placement::Of(machine_of);
}

Result<double> MachinesModel::Seconds(const Transfer& transfer) {
  const Operation& operation = transfer.operation;
  const double bytes = std::max(transfer.operand_bytes, transfer.result_bytes);
  const int ranks = static_cast<int>(transfer.ranks.size());
  const OpKind kind = KindOfCall(operation.kind);
  if (const auto curve = machines_.measured.calls.find({kind, ranks}); curve != machines_.measured.calls.end())
    return SecondsAt(curve->second, bytes);
  Result<double> seconds = 0.0;
  if (operation.kind == OpKind::kCollectivePermute) {
    seconds = PairsSeconds(Get<Groups>(operation, Attr::kPairs), bytes);
  } else if (IsPair(operation.kind)) {
    seconds = PairsSeconds({transfer.ranks}, bytes);
  } else {
    seconds = CallSeconds({KindOfPlan(kind), ranks, static_cast<uint64_t>(bytes), PlacementOf(transfer.ranks)});
  }
  if (seconds.ok()) return machines_.launch_seconds + seconds.value();
  return MakeStatus(seconds.status().code(), "%%%u %s: %s", operation.id,
                    std::string(InfoOf(operation.kind).name).c_str(), std::string(seconds.status().message()).c_str());
}

// Each rank has links of its own, so the slowest pair tells the time. A message of a rank to itself is a copy.
Result<double> MachinesModel::PairsSeconds(const Groups& pairs, double bytes) {
  bool near = false, apart = false;
  for (const Ints& pair : pairs) {
    const bool far = pair[0] / machines_.ranks_per_machine != pair[1] / machines_.ranks_per_machine;
    apart = apart || far;
    near = near || (!far && pair[0] != pair[1]);
  }
  double seconds = 2 * bytes / machines_.fabric.memory_bytes_per_second;
  for (const bool far : {false, true}) {
    if (far ? !apart : !near) continue;
    const plan::Placement placement = far ? plan::Placement::Of(std::vector<int>{0, 1}) : plan::Placement();
    AXCCL_ASSIGN_OR_RETURN(const double message,
                           CallSeconds({plan::Kind::kSendRecv, 2, static_cast<uint64_t>(bytes), placement}));
    seconds = std::max(seconds, message);
  }
  return seconds;
}

Result<double> MachinesModel::CallSeconds(const Call& call) {
  const auto known = calls_.find(call);
  if (known != calls_.end()) return known->second;
  const auto& [kind, ranks, bytes, placement] = call;
  Result<double> seconds = 2 * static_cast<double>(bytes) / machines_.fabric.memory_bytes_per_second;  // of one rank
  if (ranks > 1) seconds = ranks <= kMostTuned ? TunedSeconds(call) : FastestSeconds(call);
  if (seconds.ok()) calls_.emplace(call, seconds.value());
  return seconds;
}

// Its figures are those with which src/sim simulates, as far as it has them.
const tune::Chooser& MachinesModel::ChooserFor(int ranks_of_machine) {
  std::unique_ptr<tune::Chooser>& chooser = choosers_[ranks_of_machine];
  if (chooser != nullptr) return *chooser;
  const sim::Fabric& fabric = machines_.fabric;
  cost::Machine machine;
  machine.signal_seconds = fabric.signal_seconds;
  machine.op_seconds = fabric.op_seconds;
  machine.switch_seconds = 0;
  const double copied = std::min(fabric.memory_bytes_per_second / 2, fabric.link_bytes_per_second);
  machine.cached_bytes_per_second = machine.memory_bytes_per_second = copied / kLanesOfDevice;
  machine.network_signal_seconds = fabric.network_seconds + fabric.message_seconds;
  machine.network_message_seconds = fabric.message_seconds;
  machine.link_bytes_per_second = fabric.nic_bytes_per_second * ranks_of_machine;
  machine.cores = ranks_of_machine * kLanesOfDevice;
  machine.ranks = ranks_of_machine;
  chooser = std::move(tune::Chooser::Create(machine, "", kScratchOfDevice, kLanesOfDevice).value());
  return *chooser;
}

Result<double> MachinesModel::TunedSeconds(const Call& call) {
  const auto& [kind, ranks, bytes, placement] = call;
  tune::Query query;
  query.contract = {kind, ranks, 0};
  query.block_bytes = BlockBytes(kind, ranks, bytes);
  query.access = placement.is_flat() ? tune::Access::kMapped : tune::Access::kNone;
  query.placement = placement;
  const tune::Choice choice = ChooserFor(placement.Most(ranks)).Choose(query);
  sim::Request request;
  request.contract = query.contract;
  request.algorithm = choice.algorithm;
  request.lanes = choice.lanes;
  request.placement = placement;
  request.bytes = bytes;
  request.tile_bytes = choice.tile_bytes;
  request.fabric = machines_.fabric;
  AXCCL_ASSIGN_OR_RETURN(const sim::Report report, sim::Simulate(request));
  return report.seconds;
}

Result<double> MachinesModel::FastestSeconds(const Call& call) const {
  const auto& [kind, ranks, bytes, placement] = call;
  sim::Request request;
  request.contract = {kind, ranks, 0};
  request.lanes = tune::kNetworkLanes;
  request.placement = placement;
  request.bytes = bytes;
  request.fabric = machines_.fabric;
  Result<double> best = MakeStatus(Code::kInvalidUsage, "there is no plan for that group that can be simulated");
  for (const std::string_view algorithm : algo::Algorithms(kind, placement)) {
    if (!SuitsManyRanks(algorithm, placement)) continue;
    request.algorithm = algorithm;
    request.tile_bytes =
        algorithm.ends_with("tree") ? std::max(kTurnBytesOfTree, bytes / tune::kNetworkLanes / kTurnsOfTree) : 0;
    const Result<sim::Report> report = sim::Simulate(request);
    if (report.ok() && (!best.ok() || report.value().seconds < best.value())) best = report.value().seconds;
  }
  return best;
}

}  // namespace axccl::program
