#include "tools/axccl-program/rank_run.h"

#include <algorithm>
#include <exception>
#include <string>

#include "src/program/facts.h"
#include "src/program/kinds.h"
#include "src/program/simulate/work.h"

namespace axccl::tools {

using program::Function;
using program::Operation;
using program::OpKind;
using program::Tensor;
using program::Tensors;

namespace {

// Whether a simulation has no event of it for that rank.
bool IsWithoutEvent(const Operation& operation, int rank) {
  if (program::IsCommunication(operation.kind)) return !TakesPart(operation, rank);
  return operation.kind == OpKind::kIf || operation.kind == OpKind::kWhile || program::IsIdle(operation.kind);
}

// That of the rank's part; an empty one if it has none.
const Function& FunctionOf(const program::Program& program, int rank) {
  static const Function kNothing;
  for (const program::Part& part : program.parts) {
    if (std::binary_search(part.ranks.begin(), part.ranks.end(), rank)) return part.function;
  }
  return kNothing;
}

}  // namespace

RankRun::RankRun(const WholeRun& whole, const Tensors& inputs, int rank, ncclComm_t comm, axcclStream_t stream)
    : whole_(whole),
      inputs_(inputs),
      rank_(rank),
      function_(&FunctionOf(whole.program, rank)),
      calls_(whole.program.ranks, rank, comm, stream) {}

// ---- values ----

RankRun::Shared RankRun::Keep(Tensor tensor) {
  const auto give_back = [this](const Tensor* dropped) {
    pool_.Put(std::move(const_cast<Tensor*>(dropped)->bytes));  // it was made below, not const
    delete dropped;
  };
  return Count(Shared(new Tensor(std::move(tensor)), give_back));
}

RankRun::Shared RankRun::Count(Shared tensor) {
  live_ += tensor->bytes.size();
  peak_ = std::max(peak_, live_);
  const Tensor* const counted = tensor.get();
  return Shared(counted, Counted{std::move(tensor), &live_});
}

RankRun::Values RankRun::Get(const std::vector<program::Id>& ids) const {
  Values values;
  for (const program::Id id : ids) values.push_back(values_.at(id));
  return values;
}

void RankRun::Drop(std::span<const program::Id> ids) {
  for (const program::Id id : ids) values_.erase(id);
}

// ---- functions ----

Result<RankResult> RankRun::Run() {
  RankResult result;
  const std::string call = "rank " + std::to_string(rank_);
  AXCCL_ASSIGN_OR_RETURN(result.outputs, CatchAll(call.c_str(), [&] { return Repeat(); }));
  result.peak_bytes = peak_;
  result.seconds = seconds_;
  result.events.assign(events_.begin(), events_.end());
  return result;
}

Status RankRun::RunOnceMore() {
  const std::string call = "rank " + std::to_string(rank_);
  return CatchAll(call.c_str(), [&] { return RunPart().status(); });
}

Result<Tensors> RankRun::Repeat() {
  for (int left = whole_.options.repeat; left > 1; --left) {
    AXCCL_RETURN_IF_ERROR(RunPart().status());
    events_.clear();
  }
  return RunPart();
}

Result<Tensors> RankRun::RunPart() {
  const program::BufferPool::Use use(&pool_);
  Values arguments;
  for (const Tensor& input : inputs_) {
    Tensor copy = Tensor::Zeros(input.type);
    std::copy(input.bytes.begin(), input.bytes.end(), copy.bytes.begin());
    arguments.push_back(Keep(std::move(copy)));
  }
  const bool is_timed = whole_.options.repeat > 0;
  if (is_timed) AXCCL_RETURN_IF_ERROR(calls_.Meet());
  const uint64_t begin = MonotonicNanoseconds();
  AXCCL_ASSIGN_OR_RETURN(const Values results, Execute(*function_, std::move(arguments)));
  AXCCL_RETURN_IF_ERROR(calls_.Finish());
  if (is_timed) seconds_.push_back(static_cast<double>(MonotonicNanoseconds() - begin) * 1e-9);
  values_.clear();
  Tensors outputs;
  for (const Shared& result : results) outputs.push_back(*result);
  return outputs;
}

Result<RankRun::Values> RankRun::Execute(const Function& function, Values arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) values_[function.arguments[i].id] = std::move(arguments[i]);
  arguments.clear();
  Drop(whole_.liveness.DroppedAtOnce(function));
  for (const Operation& operation : function.operations) {
    AXCCL_ASSIGN_OR_RETURN(Values results, ExecuteMeasured(operation));
    for (size_t i = 0; i < results.size(); ++i) {
      if (whole_.observer) whole_.observer(rank_, operation, i, *results[i]);
      values_[operation.results[i].id] = std::move(results[i]);
    }
    Drop(whole_.liveness.DroppedAfter(function, operation));
  }
  Values results = Get(function.results);
  Drop(whole_.liveness.DroppedAtEnd(function));
  return results;
}

Result<RankRun::Values> RankRun::ExecuteMeasured(const Operation& operation) {
  if (!whole_.events || IsWithoutEvent(operation, rank_)) return ExecuteWithoutExceptions(operation, nullptr);
  RankEvent& event = events_.emplace_back();
  event.operation = operation.id;
  event.communication = program::IsCommunication(operation.kind);
  event.begin = MonotonicNanoseconds();
  Result<Values> results = ExecuteWithoutExceptions(operation, &event);
  if (operation.kind != OpKind::kSend) event.end = MonotonicNanoseconds();
  event.live_bytes = live_;
  return results;
}

// Memory may run out.
Result<RankRun::Values> RankRun::ExecuteWithoutExceptions(const Operation& operation, RankEvent* event) {
  try {
    return Execute(operation, event);
  } catch (const std::exception&) {
    const std::string call = "rank " + std::to_string(rank_) + " in %" + std::to_string(operation.id) + " " +
                             std::string(program::InfoOf(operation.kind).name);
    return StatusOfException(call.c_str());
  }
}

Result<RankRun::Values> RankRun::Execute(const Operation& operation, RankEvent* event) {
  Values operands = operation.kind == OpKind::kFree ? Values() : Get(operation.operands);
  switch (operation.kind) {
    case OpKind::kAllGather:
    case OpKind::kAllReduce:
    case OpKind::kAllToAll:
    case OpKind::kCollectiveBroadcast:
    case OpKind::kCollectiveBroadcastFrom:
    case OpKind::kCollectivePermute:
    case OpKind::kCollectiveReduce:
    case OpKind::kCollectiveReduceTo:
    case OpKind::kReduceScatter:
      return Collect(operation, operands);
    case OpKind::kSend:
      AXCCL_RETURN_IF_ERROR(calls_.Send(operation, Uncounted(operands[0]), event));
      return Values();
    case OpKind::kRecv:
      return Receive(operation);
    case OpKind::kFree:
      Drop(operation.operands);
      return Values();
    case OpKind::kIf:
      return Execute(operation.regions[*operands[0]->at(0) != 0 ? 0 : 1], {});
    case OpKind::kWhile:
      return While(operation, std::move(operands));
    case OpKind::kOptimizationBarrier:
      return operands;
    case OpKind::kPartitionId:
      return Values{Keep(Tensor::Of(static_cast<uint32_t>(rank_)))};
    case OpKind::kReplicaId:
      return Values{Keep(Tensor::Of(0))};
    default: {
      std::vector<const Tensor*> tensors;
      for (const Shared& operand : operands) tensors.push_back(operand.get());
      return Values{Keep(whole_.options.local(operation, tensors))};
    }
  }
}

Result<RankRun::Values> RankRun::While(const Operation& operation, Values carried) {
  for (;;) {
    AXCCL_ASSIGN_OR_RETURN(Values more, Execute(operation.regions[0], carried));
    if (*more[0]->at(0) == 0) return carried;
    more.clear();  // before the body allocates
    AXCCL_ASSIGN_OR_RETURN(carried, Execute(operation.regions[1], std::move(carried)));
  }
}

// ---- between ranks ----

Result<RankRun::Values> RankRun::Collect(const Operation& operation, const Values& operands) {
  Tensors results;
  for (const program::Value& result : operation.results) results.push_back(Tensor::Zeros(result.type));
  AXCCL_RETURN_IF_ERROR(calls_.Collect(operation, operands, &results));
  Values values;
  for (Tensor& result : results) values.push_back(Keep(std::move(result)));
  return values;
}

Result<RankRun::Values> RankRun::Receive(const Operation& operation) {
  Tensor result = Tensor::Zeros(operation.results[0].type);
  AXCCL_ASSIGN_OR_RETURN(Shared own, calls_.Receive(operation, &result));
  if (own == nullptr) return Values{Keep(std::move(result))};
  pool_.Put(std::move(result.bytes));
  return Values{Count(std::move(own))};
}

}  // namespace axccl::tools
