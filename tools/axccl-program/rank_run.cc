#include "tools/axccl-program/rank_run.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "src/base/hash.h"
#include "src/program/facts.h"
#include "src/program/kinds.h"

namespace axccl::tools {

using program::Attr;
using program::Function;
using program::Groups;
using program::Ints;
using program::Operation;
using program::OpKind;
using program::Tensor;
using program::Tensors;

namespace {

ncclDataType_t TypeOf(DataType type) {
  switch (type) {
    case DataType::kInt16:
      return axcclInt16;
    case DataType::kUint16:
      return axcclUint16;
    case DataType::kBool:
      return axcclBool;
    default:
      return static_cast<ncclDataType_t>(type);
  }
}

ncclRedOp_t OpOf(Combine fold) {
  constexpr ncclRedOp_t kOps[] = {ncclSum, ncclProd, ncclMax, ncclMin, axcclAnd, axcclOr, axcclXor};
  return kOps[static_cast<int>(fold)];
}

axcclView_t ViewOf(const Tensor& tensor) {
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.data = const_cast<uint8_t*>(tensor.bytes.data());  // the library only reads inputs
  view.datatype = TypeOf(tensor.type.data_type);
  view.num_dims = static_cast<int>(tensor.type.dims.size());
  view.sizes = tensor.type.dims.data();
  return view;
}

// Source and target of each pair, as positions in the group.
Ints Positions(const Operation& operation, const Ints& ranks) {
  Ints positions;
  for (const Ints& pair : program::Get<Groups>(operation, Attr::kPairs)) {
    for (const int64_t rank : pair) positions.push_back(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }
  return positions;
}

Status ErrorOf(int rank, const char* what) {
  return MakeStatus(Code::kRemoteError, "rank %d in %s: %s", rank, what, ncclGetLastError(nullptr));
}

constexpr int64_t kCollectives = -1;  // not the number of a channel

int Number(const Operation& operation, Attr attr) { return static_cast<int>(program::Get<int64_t>(operation, attr)); }

}  // namespace

RankRun::RankRun(const program::Program& program, const program::Liveness& liveness, int rank, ncclComm_t comm,
                 axcclStream_t stream, const RunOptions& options, const program::Observer& observer)
    : program_(program),
      liveness_(liveness),
      rank_(rank),
      comm_(comm),
      stream_(stream),
      options_(options),
      observer_(observer) {}

RankRun::~RankRun() {
  for (const auto& [key, channel] : channels_) (void)axcclChannelDestroy(channel);
  for (const auto& [channel, sending] : sending_) {
    if (sending.stream != nullptr) (void)axcclStreamDestroy(sending.stream);
  }
}

Status RankRun::Check(ncclResult_t result, const Operation& operation) const {
  if (result == ncclSuccess) return Status();
  return MakeStatus(Code::kRemoteError, "rank %d in %%%u %s: %s", rank_, operation.id,
                    std::string(program::InfoOf(operation.kind).name).c_str(), ncclGetLastError(comm_));
}

// ---- values ----

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

Result<Tensors> RankRun::Run(const Tensors& inputs) {
  const auto has_rank = [this](const program::Part& part) {
    return std::binary_search(part.ranks.begin(), part.ranks.end(), rank_);
  };
  const auto part = std::find_if(program_.parts.begin(), program_.parts.end(), has_rank);
  static const Function kNothing;
  const Function& function = part == program_.parts.end() ? kNothing : part->function;
  const std::string call = "rank " + std::to_string(rank_);
  return CatchAll(call.c_str(), [&]() -> Result<Tensors> {
    for (int left = options_.repeat; left > 1; --left) AXCCL_RETURN_IF_ERROR(RunPart(function, inputs).status());
    return RunPart(function, inputs);
  });
}

Result<Tensors> RankRun::RunPart(const Function& function, const Tensors& inputs) {
  Values arguments;
  for (const Tensor& input : inputs) arguments.push_back(Keep(input));
  if (options_.repeat > 0) AXCCL_RETURN_IF_ERROR(WaitForAll());
  const auto begin = std::chrono::steady_clock::now();
  AXCCL_ASSIGN_OR_RETURN(const Values results, Execute(function, std::move(arguments)));
  AXCCL_RETURN_IF_ERROR(WaitForSent());
  if (options_.repeat > 0)
    seconds_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  values_.clear();
  Tensors outputs;
  for (const Shared& result : results) outputs.push_back(*result);
  return outputs;
}

// A barrier.
Status RankRun::WaitForAll() {
  float none = 0;
  const ncclResult_t met = ncclAllReduce(&none, &none, 1, ncclFloat, ncclSum, comm_, axcclStreamToCuda(stream_));
  if (met == ncclSuccess && axcclStreamSynchronize(stream_) == ncclSuccess) return Status();
  return MakeStatus(Code::kRemoteError, "rank %d in the barrier before a repetition: %s", rank_,
                    ncclGetLastError(comm_));
}

Status RankRun::WaitForSent() {
  for (auto& [channel, sending] : sending_) {
    if (axcclStreamSynchronize(sending.stream) != ncclSuccess)
      return MakeStatus(Code::kRemoteError, "rank %d, in a send: %s", rank_, ncclGetLastError(comm_));
    sending.values.clear();
  }
  return Status();
}

Result<RankRun::Values> RankRun::Execute(const Function& function, Values arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) values_[function.arguments[i].id] = std::move(arguments[i]);
  arguments.clear();
  Drop(liveness_.DroppedAtOnce(function));
  for (const Operation& operation : function.operations) {
    AXCCL_ASSIGN_OR_RETURN(Values results, ExecuteWithoutExceptions(operation));
    for (size_t i = 0; i < results.size(); ++i) {
      if (observer_) observer_(rank_, operation, i, *results[i]);
      values_[operation.results[i].id] = std::move(results[i]);
    }
    Drop(liveness_.DroppedAfter(operation));
  }
  Values results = Get(function.results);
  Drop(liveness_.DroppedAtEnd(function));
  return results;
}

// Memory may run out.
Result<RankRun::Values> RankRun::ExecuteWithoutExceptions(const Operation& operation) {
  try {
    return Execute(operation);
  } catch (const std::exception&) {
    const std::string call = "rank " + std::to_string(rank_) + " in %" + std::to_string(operation.id) + " " +
                             std::string(program::InfoOf(operation.kind).name);
    return StatusOfException(call.c_str());
  }
}

Result<RankRun::Values> RankRun::Execute(const Operation& operation) {
  Values operands = operation.kind == OpKind::kFree ? Values() : Get(operation.operands);
  switch (operation.kind) {
    case OpKind::kAllGather:
    case OpKind::kAllReduce:
    case OpKind::kAllToAll:
    case OpKind::kCollectiveBroadcast:
    case OpKind::kCollectivePermute:
    case OpKind::kReduceScatter:
      return Collect(operation, operands);
    case OpKind::kSend:
      AXCCL_RETURN_IF_ERROR(Send(operation, operands[0]));
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
      return Values{Keep(options_.local(operation, tensors))};
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

// Every rank of a group creates its channel when it first comes to a call on it. Ranks go through the collectives of a
// group in one order, whatever the numbers, so one channel has them all: a rank cannot have more than a few thousand.
Result<axcclChannel_t> RankRun::ChannelOf(const Ints& ranks, int64_t number) {
  axcclChannel_t& channel = channels_[{number, ranks}];
  if (channel != nullptr) return channel;
  uint64_t id = Mix(kHashSeed, static_cast<uint64_t>(number));
  for (const int64_t rank : ranks) id = Mix(id, static_cast<uint64_t>(rank));
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.num_partitions = program_.ranks;
  spec.ids = ranks.data();
  spec.num_groups = 1;
  spec.group_size = ranks.size();
  axcclGroups_t groups = nullptr;
  ncclResult_t made = axcclGroupsCreate(&groups, &spec);
  if (made == ncclSuccess) {
    made = axcclChannelCreate(&channel, comm_, groups, static_cast<int64_t>(id >> 1), axcclGroupOrder);
    (void)axcclGroupsDestroy(groups);
  }
  if (made == ncclSuccess) return channel;
  channels_.erase({number, ranks});
  return MakeStatus(Code::kRemoteError, "rank %d: %s", rank_, ncclGetLastError(comm_));
}

Status RankRun::Call(const Operation& operation, const Ints& ranks, std::span<const axcclView_t> in,
                     std::span<const axcclView_t> out, axcclChannel_t channel) {
  const int count = static_cast<int>(in.size());
  const cudaStream_t stream = axcclStreamToCuda(stream_);
  const auto op = [&] { return OpOf(program::Get<Combine>(operation, Attr::kFold)); };
  switch (operation.kind) {
    case OpKind::kAllGather:
      return Check(
          axcclAllGather(count, in.data(), out.data(), Number(operation, Attr::kDim), channel, nullptr, stream),
          operation);
    case OpKind::kAllReduce:
      return Check(axcclAllReduce(count, in.data(), out.data(), op(), channel, nullptr, stream), operation);
    case OpKind::kReduceScatter:
      return Check(axcclReduceScatter(count, in.data(), out.data(), Number(operation, Attr::kDim), op(), channel,
                                      nullptr, stream),
                   operation);
    case OpKind::kAllToAll:
      return Check(axcclAllToAll(count, in.data(), out.data(), Number(operation, Attr::kSplitDim),
                                 Number(operation, Attr::kConcatDim), channel, nullptr, stream),
                   operation);
    case OpKind::kCollectivePermute: {
      const Ints pairs = Positions(operation, ranks);
      return Check(axcclCollectivePermute(count, in.data(), out.data(), pairs.data(),
                                          static_cast<int>(pairs.size() / 2), channel, nullptr, stream),
                   operation);
    }
    default:
      return Check(axcclBroadcast(count, in.data(), out.data(), 0, channel, nullptr, stream), operation);
  }
}

Result<RankRun::Values> RankRun::Collect(const Operation& operation, const Values& operands) {
  const Ints ranks = program::GroupOf(operation, rank_);
  Tensors results;
  for (const program::Value& result : operation.results) results.push_back(Tensor::Zeros(result.type));
  if (!ranks.empty()) {
    std::vector<axcclView_t> in, out;
    for (const Shared& operand : operands) in.push_back(ViewOf(*operand));
    for (const Tensor& result : results) out.push_back(ViewOf(result));
    AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel, ChannelOf(ranks, kCollectives));
    AXCCL_RETURN_IF_ERROR(Call(operation, ranks, in, out, channel));
    AXCCL_RETURN_IF_ERROR(Check(axcclStreamSynchronize(stream_), operation));
  }
  Values values;
  for (Tensor& result : results) values.push_back(Keep(std::move(result)));
  return values;
}

// Those of a channel go one after the other, so what is sent is known when all of them are.
Status RankRun::DropSent() {
  for (auto& [channel, sending] : sending_) {
    if (sending.values.empty()) continue;
    const ncclResult_t state = axcclStreamQuery(sending.stream);
    if (state == ncclInProgress) continue;
    if (state != ncclSuccess)
      return MakeStatus(Code::kRemoteError, "rank %d, in a send: %s", rank_, ncclGetLastError(comm_));
    sending.values.clear();
  }
  return Status();
}

// A send does not wait for its recv, so each channel of messages has a stream.
Status RankRun::Send(const Operation& operation, const Shared& value) {
  AXCCL_RETURN_IF_ERROR(DropSent());
  const auto number = program::Get<int64_t>(operation, Attr::kChannel);
  for (const Ints& pair : program::Get<Groups>(operation, Attr::kPairs)) {
    if (pair[0] != rank_) continue;
    if (pair[1] == rank_) {
      to_itself_[number].push_back(Uncounted(value));
      continue;
    }
    AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel, ChannelOf(pair, number));
    Sending& sending = sending_[channel];
    if (sending.stream == nullptr)
      AXCCL_RETURN_IF_ERROR(Check(axcclStreamCreate(&sending.stream, axcclStreamNonBlocking), operation));
    const axcclView_t view = ViewOf(*value);
    sending.values.push_back(Uncounted(value));
    AXCCL_RETURN_IF_ERROR(
        Check(axcclSend(1, &view, 1, channel, nullptr, axcclStreamToCuda(sending.stream)), operation));
  }
  return Status();
}

Result<RankRun::Values> RankRun::Receive(const Operation& operation) {
  AXCCL_RETURN_IF_ERROR(DropSent());
  const auto number = program::Get<int64_t>(operation, Attr::kChannel);
  Tensor result = Tensor::Zeros(operation.results[0].type);
  for (const Ints& pair : program::Get<Groups>(operation, Attr::kPairs)) {
    if (pair[1] != rank_) continue;
    if (pair[0] == rank_) {
      std::deque<Shared>& sent = to_itself_[number];
      Shared value = std::move(sent.front());
      sent.pop_front();
      return Values{Count(std::move(value))};
    }
    AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel, ChannelOf(pair, number));
    const axcclView_t view = ViewOf(result);
    AXCCL_RETURN_IF_ERROR(Check(axcclRecv(1, &view, 0, channel, nullptr, axcclStreamToCuda(stream_)), operation));
    AXCCL_RETURN_IF_ERROR(Check(axcclStreamSynchronize(stream_), operation));
  }
  return Values{Keep(std::move(result))};
}

// ---- the whole rank ----

void PassOn(const std::vector<RankReport>& reports, std::vector<uint64_t>* peaks, std::vector<double>* steps) {
  if (peaks != nullptr) peaks->clear();
  if (steps != nullptr) steps->assign(reports[0].seconds.size(), 0);
  for (const RankReport& report : reports) {
    if (peaks != nullptr) peaks->push_back(report.peak_bytes);
    for (size_t i = 0; steps != nullptr && i < steps->size(); ++i)
      (*steps)[i] = std::max((*steps)[i], report.seconds[i]);
  }
}

Result<Tensors> RunRank(const program::Program& program, const program::Liveness& liveness, int rank,
                        const ncclUniqueId& id, const Tensors& inputs, const RunOptions& options,
                        const program::Observer& observer, const std::function<void(const Status&)>& failed,
                        RankReport* report) {
  ncclComm_t comm = nullptr;
  axcclStream_t stream = nullptr;
  Result<Tensors> outputs = Tensors();
  if (axcclHostSetDevice(rank % 1024) != ncclSuccess) {
    outputs = ErrorOf(rank, "axcclHostSetDevice");
  } else if (ncclCommInitRank(&comm, program.ranks, id, rank) != ncclSuccess) {
    comm = nullptr;
    outputs = ErrorOf(rank, "ncclCommInitRank");
  } else if (axcclStreamCreate(&stream, axcclStreamNonBlocking) != ncclSuccess) {
    outputs = ErrorOf(rank, "axcclStreamCreate");
  }
  if (outputs.ok()) {
    RankRun run(program, liveness, rank, comm, stream, options, observer);
    outputs = run.Run(inputs);
    *report = {run.peak_bytes(), run.seconds()};
    if (!outputs.ok()) {
      failed(outputs.status());
      (void)ncclCommAbort(comm);
      comm = nullptr;
    }
  } else {
    failed(outputs.status());
    if (comm != nullptr) (void)ncclCommAbort(comm);
    comm = nullptr;
  }
  if (stream != nullptr) (void)axcclStreamDestroy(stream);
  if (comm != nullptr && ncclCommDestroy(comm) != ncclSuccess) {
    outputs = ErrorOf(rank, "ncclCommDestroy");
    failed(outputs.status());
  }
  return outputs;
}

}  // namespace axccl::tools
