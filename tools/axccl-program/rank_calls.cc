#include "tools/axccl-program/rank_calls.h"

#include <time.h>

#include <algorithm>
#include <string>

#include "src/base/hash.h"
#include "src/program/facts.h"
#include "src/program/kinds.h"

namespace axccl::tools {

using program::Attr;
using program::Groups;
using program::Ints;
using program::Operation;
using program::OpKind;
using program::Tensor;

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

constexpr int64_t kCollectives = -1;  // not the number of a channel

int Number(const Operation& operation, Attr attr) { return static_cast<int>(program::Get<int64_t>(operation, attr)); }

void SetEndOf(void* event) { static_cast<RankEvent*>(event)->end = MonotonicNanoseconds(); }

}  // namespace

uint64_t MonotonicNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool TakesPart(const Operation& operation, int64_t rank) {
  if (!program::IsMessage(operation.kind)) return !program::GroupOf(operation, rank).empty();
  const size_t side = operation.kind == OpKind::kSend ? 0 : 1;
  const Groups& pairs = program::Get<Groups>(operation, Attr::kPairs);
  return std::any_of(pairs.begin(), pairs.end(), [&](const Ints& pair) { return pair[side] == rank; });
}

RankCalls::RankCalls(int ranks, int rank, ncclComm_t comm, axcclStream_t stream)
    : ranks_(ranks), rank_(rank), comm_(comm), stream_(stream) {}

RankCalls::~RankCalls() {
  for (const auto& [channel, sending] : sending_) {
    if (sending.stream == nullptr) continue;
    (void)axcclStreamSynchronize(sending.stream);  // it may still write the end of an event
    (void)axcclStreamDestroy(sending.stream);
  }
  for (const auto& [key, channel] : channels_) (void)axcclChannelDestroy(channel);
}

Status RankCalls::Check(ncclResult_t result, const Operation& operation) const {
  if (result == ncclSuccess) return Status();
  return MakeStatus(Code::kRemoteError, "rank %d in %%%u %s: %s", rank_, operation.id,
                    std::string(program::InfoOf(operation.kind).name).c_str(), ncclGetLastError(comm_));
}

// Every rank of a group creates its channel when it first comes to a call on it. Ranks go through the collectives of a
// group in one order, whatever the numbers, so one channel has them all: a rank cannot have more than a few thousand.
Result<axcclChannel_t> RankCalls::ChannelOf(const Ints& ranks, int64_t number) {
  axcclChannel_t& channel = channels_[{number, ranks}];
  if (channel != nullptr) return channel;
  uint64_t id = Mix(kHashSeed, static_cast<uint64_t>(number));
  for (const int64_t rank : ranks) id = Mix(id, static_cast<uint64_t>(rank));
  axcclGroupSpec_t spec = AXCCL_GROUP_SPEC_INITIALIZER;
  spec.num_partitions = ranks_;
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

Status RankCalls::Call(const Operation& operation, const Ints& ranks, std::span<const axcclView_t> in,
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

Status RankCalls::Collect(const Operation& operation, const std::vector<Shared>& operands,
                          std::vector<Tensor>* results) {
  const Ints ranks = program::GroupOf(operation, rank_);
  if (ranks.empty()) return Status();
  std::vector<axcclView_t> in, out;
  for (const Shared& operand : operands) in.push_back(ViewOf(*operand));
  for (const Tensor& result : *results) out.push_back(ViewOf(result));
  AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel, ChannelOf(ranks, kCollectives));
  AXCCL_RETURN_IF_ERROR(Call(operation, ranks, in, out, channel));
  return Check(axcclStreamSynchronize(stream_), operation);
}

// Those of a channel go one after the other, so what is sent is known when all of them are.
Status RankCalls::DropSent() {
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
Status RankCalls::Send(const Operation& operation, const Shared& value, RankEvent* event) {
  AXCCL_RETURN_IF_ERROR(DropSent());
  const auto number = program::Get<int64_t>(operation, Attr::kChannel);
  for (const Ints& pair : program::Get<Groups>(operation, Attr::kPairs)) {
    if (pair[0] != rank_) continue;
    if (pair[1] == rank_) {
      to_itself_[number].push_back(value);
      if (event != nullptr) SetEndOf(event);
      continue;
    }
    AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel, ChannelOf(pair, number));
    Sending& sending = sending_[channel];
    if (sending.stream == nullptr)
      AXCCL_RETURN_IF_ERROR(Check(axcclStreamCreate(&sending.stream, axcclStreamNonBlocking), operation));
    const axcclView_t view = ViewOf(*value);
    sending.values.push_back(value);
    AXCCL_RETURN_IF_ERROR(
        Check(axcclSend(1, &view, 1, channel, nullptr, axcclStreamToCuda(sending.stream)), operation));
    if (event != nullptr) AXCCL_RETURN_IF_ERROR(Check(axcclLaunchHostFunc(sending.stream, SetEndOf, event), operation));
  }
  return Status();
}

Result<RankCalls::Shared> RankCalls::Receive(const Operation& operation, Tensor* result) {
  AXCCL_RETURN_IF_ERROR(DropSent());
  const auto number = program::Get<int64_t>(operation, Attr::kChannel);
  for (const Ints& pair : program::Get<Groups>(operation, Attr::kPairs)) {
    if (pair[1] != rank_) continue;
    if (pair[0] == rank_) {
      std::deque<Shared>& sent = to_itself_[number];
      Shared value = std::move(sent.front());
      sent.pop_front();
      return value;
    }
    AXCCL_ASSIGN_OR_RETURN(axcclChannel_t const channel, ChannelOf(pair, number));
    const axcclView_t view = ViewOf(*result);
    AXCCL_RETURN_IF_ERROR(Check(axcclRecv(1, &view, 0, channel, nullptr, axcclStreamToCuda(stream_)), operation));
    AXCCL_RETURN_IF_ERROR(Check(axcclStreamSynchronize(stream_), operation));
  }
  return Shared();
}

Status RankCalls::Finish() {
  for (auto& [channel, sending] : sending_) {
    if (axcclStreamSynchronize(sending.stream) != ncclSuccess)
      return MakeStatus(Code::kRemoteError, "rank %d, in a send: %s", rank_, ncclGetLastError(comm_));
    sending.values.clear();
  }
  return Status();
}

Status RankCalls::Meet() {
  int32_t in = 0, out = 0;
  if (ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comm_, axcclStreamToCuda(stream_)) == ncclSuccess &&
      axcclStreamSynchronize(stream_) == ncclSuccess)
    return Status();
  return MakeStatus(Code::kRemoteError, "rank %d between rounds: %s", rank_, ncclGetLastError(comm_));
}

}  // namespace axccl::tools
