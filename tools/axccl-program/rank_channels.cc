#include "tools/axccl-program/rank_channels.h"

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

// Source and target of each pair, as positions in the group.
Ints Positions(const Operation& operation, const Ints& ranks) {
  Ints positions;
  for (const Ints& pair : program::Get<Groups>(operation, Attr::kPairs)) {
    for (const int64_t rank : pair) positions.push_back(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }
  return positions;
}

int Number(const Operation& operation, Attr attr) { return static_cast<int>(program::Get<int64_t>(operation, attr)); }

}  // namespace

axcclView_t ViewOf(const program::TensorType& type, const void* data) {
  axcclView_t view = AXCCL_VIEW_INITIALIZER;
  view.data = const_cast<void*>(data);  // the library only reads inputs
  view.datatype = TypeOf(type.data_type);
  view.num_dims = static_cast<int>(type.dims.size());
  view.sizes = type.dims.data();
  return view;
}

bool TakesPart(const Operation& operation, int64_t rank) {
  if (!program::IsMessage(operation.kind)) return !program::GroupOf(operation, rank).empty();
  const size_t side = operation.kind == OpKind::kSend ? 0 : 1;
  const Groups& pairs = program::Get<Groups>(operation, Attr::kPairs);
  return std::any_of(pairs.begin(), pairs.end(), [&](const Ints& pair) { return pair[side] == rank; });
}

RankChannels::~RankChannels() {
  for (const auto& [key, channel] : channels_) (void)axcclChannelDestroy(channel);
}

Status RankChannels::Check(ncclResult_t result, const Operation& operation) const {
  if (result == ncclSuccess) return Status();
  return MakeStatus(Code::kRemoteError, "rank %d in %%%u %s: %s", rank_, operation.id,
                    std::string(program::InfoOf(operation.kind).name).c_str(), ncclGetLastError(comm_));
}

// Every rank of a group creates its channel when it first comes to a call on it. Ranks go through the collectives of a
// group in one order, whatever the numbers, so one channel has them all: a rank cannot have more than a few thousand.
Result<axcclChannel_t> RankChannels::ChannelOf(const Ints& ranks, int64_t number) {
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

Status RankChannels::Call(const Operation& operation, const Ints& ranks, std::span<const axcclView_t> in,
                          std::span<const axcclView_t> out, axcclChannel_t channel, cudaStream_t stream) {
  const int count = static_cast<int>(in.size());
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
    // Its roots are the last operand.
    case OpKind::kCollectiveBroadcastFrom:
      return Check(axcclBroadcastFrom(count - 1, in.data(), out.data(), static_cast<const int32_t*>(in.back().data),
                                      channel, nullptr, stream),
                   operation);
    case OpKind::kCollectiveReduce:
      return Check(axcclReduce(count, in.data(), out.data(), op(), 0, channel, nullptr, stream), operation);
    case OpKind::kCollectiveReduceTo:
      return Check(axcclReduceTo(count - 1, in.data(), out.data(), op(), static_cast<const int32_t*>(in.back().data),
                                 channel, nullptr, stream),
                   operation);
    default:
      return Check(axcclBroadcast(count, in.data(), out.data(), 0, channel, nullptr, stream), operation);
  }
}

}  // namespace axccl::tools
