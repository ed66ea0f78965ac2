#include "src/algo/chunked.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace axccl::algo {

using plan::Kind;
using plan::Op;
using plan::OpKind;

namespace {

ChunkOrder Resolved(ChunkOrder order, Kind kind) {
  if (order != ChunkOrder::kDefault || ChunkOrders(kind).empty()) return order;
  return plan::Reduces(kind) ? ChunkOrder::kOwnLast : ChunkOrder::kOwnFirst;
}

}  // namespace

const char* ChunkOrderName(ChunkOrder order) {
  constexpr const char* kNames[kNumChunkOrders] = {"default", "own_first", "own_last", "by_rank"};
  const int i = static_cast<int>(order);
  return i < kNumChunkOrders ? kNames[i] : "unknown";
}

std::span<const ChunkOrder> ChunkOrders(Kind kind) {
  static constexpr ChunkOrder kOrders[] = {ChunkOrder::kOwnFirst, ChunkOrder::kOwnLast, ChunkOrder::kByRank};
  const bool has_blocks = kind == Kind::kAllGather || kind == Kind::kAllToAll || kind == Kind::kReduceScatter;
  return has_blocks ? std::span<const ChunkOrder>(kOrders) : std::span<const ChunkOrder>();
}

int PositionOf(ChunkOrder order, int block, int rank, int ranks) {
  if (order == ChunkOrder::kByRank) return block;
  const int first = order == ChunkOrder::kOwnFirst ? rank : rank + 1;
  return (block - first + ranks) % ranks;
}

std::vector<int> BlockOrder(ChunkOrder order, Kind kind, int rank, int ranks) {
  if (ChunkOrders(kind).empty()) return {0};
  std::vector<int> blocks(static_cast<size_t>(ranks));
  for (int block = 0; block < ranks; ++block)
    blocks[static_cast<size_t>(PositionOf(Resolved(order, kind), block, rank, ranks))] = block;
  return blocks;
}

ChunkedWriter::ChunkedWriter(const plan::Contract& contract, std::string_view algorithm, int parts,
                             const Chunking& chunking)
    : contract_(contract), order_(Resolved(chunking.order, contract.kind)) {
  schedule_.algorithm = algorithm;
  schedule_.contract = contract;
  schedule_.slices = static_cast<uint16_t>(chunking.slices);
  schedule_.parts = static_cast<uint16_t>(chunking.slices * parts);
  schedule_.produced = chunking.produced;
}

void ChunkedWriter::SetLanes(int lanes) {
  schedule_.lanes = static_cast<uint16_t>(lanes);
  schedule_.program.assign(static_cast<size_t>(ranks()), std::vector<plan::Lane>(schedule_.lanes));
}

Op& ChunkedWriter::Add(OpKind kind) {
  std::vector<Op>& ops = schedule_.program[static_cast<size_t>(rank_)][static_cast<size_t>(lane_)].ops;
  ops.emplace_back().kind = kind;
  return ops.back();
}

void ChunkedWriter::Signal(int peer, int endpoint) {
  Op& op = Add(OpKind::kSignal);
  op.peer = static_cast<int16_t>(peer), op.endpoint = static_cast<uint16_t>(endpoint);
}

void ChunkedWriter::Wait(int source, int lane, int endpoint, int value) {
  Op& op = Add(OpKind::kWait);
  op.peer = static_cast<int16_t>(source), op.from_lane = static_cast<uint16_t>(lane);
  op.endpoint = static_cast<uint16_t>(endpoint), op.value = static_cast<uint16_t>(value);
}

void ChunkedWriter::Copy(plan::Operand to, plan::Operand from) {
  Op& op = Add(OpKind::kCopy);
  op.dst = {to}, op.src = {from};
}

void ChunkedWriter::Await(int chunk) {
  if (produced()) Add(OpKind::kAwait).chunk = static_cast<uint16_t>(chunk);
}

void ChunkedWriter::Notify(int chunk) {
  Op& op = Add(OpKind::kNotify);
  op.peer = static_cast<int16_t>(rank_), op.chunk = static_cast<uint16_t>(chunk);
}

plan::Schedule ChunkedWriter::Seal() {
  uint32_t id = 0;
  int endpoints = 0;
  for (auto& lanes : schedule_.program) {
    for (plan::Lane& lane : lanes) {
      for (Op& op : lane.ops) {
        op.id = id++;
        if (op.kind == OpKind::kSignal) endpoints = std::max(endpoints, op.endpoint + 1);
      }
    }
  }
  schedule_.endpoints = static_cast<uint16_t>(endpoints);
  return std::move(schedule_);
}

}  // namespace axccl::algo
