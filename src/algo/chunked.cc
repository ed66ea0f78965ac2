#include "src/algo/chunked.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/algo/builder.h"

namespace axccl::algo {

using plan::Kind;
using plan::Op;
using plan::OpKind;

namespace {

// Of all ranks together; the verifier takes no more.
constexpr int kMostLanes = 8192;

bool HasBlocks(Kind kind) {
  return kind == Kind::kAllGather || kind == Kind::kAllToAll || kind == Kind::kReduceScatter;
}

ChunkOrder Resolved(ChunkOrder order, Kind kind) {
  if (order != ChunkOrder::kDefault || !HasBlocks(kind)) return order;
  return plan::Reduces(kind) ? ChunkOrder::kOwnLast : ChunkOrder::kOwnFirst;
}

}  // namespace

const char* ChunkOrderName(ChunkOrder order) {
  constexpr const char* kNames[kNumChunkOrders] = {"default", "own_first", "own_last", "by_rank"};
  const int i = static_cast<int>(order);
  return i < kNumChunkOrders ? kNames[i] : "unknown";
}

std::span<const ChunkOrder> ChunkOrders(Kind kind, std::string_view algorithm) {
  static constexpr ChunkOrder kOrders[] = {ChunkOrder::kOwnFirst, ChunkOrder::kOwnLast, ChunkOrder::kByRank};
  const std::span<const ChunkOrder> all(kOrders);
  if (!HasBlocks(kind)) return {};
  if (algorithm != kChunkedRing) return all;
  return all.subspan(plan::Reduces(kind) ? 1 : 0, 1);
}

int PositionOf(ChunkOrder order, int block, int rank, int ranks) {
  if (order == ChunkOrder::kByRank) return block;
  const int first = order == ChunkOrder::kOwnFirst ? rank : rank + 1;
  return (block - first + ranks) % ranks;
}

std::vector<int> BlockOrder(ChunkOrder order, Kind kind, int rank, int ranks) {
  if (!HasBlocks(kind)) return {0};
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

Status ChunkedWriter::SetLanes(int lanes) {
  if (int64_t{lanes} * ranks() > kMostLanes)
    return MakeStatus(Code::kInvalidArgument,
                      "GenerateChunked(%s): %s has %d lanes for each of %d ranks; must be up to %d together",
                      plan::KindName(kind()), schedule_.algorithm.c_str(), lanes, ranks(), kMostLanes);
  schedule_.lanes = static_cast<uint16_t>(lanes);
  schedule_.program.assign(static_cast<size_t>(ranks()), std::vector<plan::Lane>(schedule_.lanes));
  return Status();
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
  int endpoints = 0, slots = 0;
  for (auto& lanes : schedule_.program) {
    for (plan::Lane& lane : lanes) {
      for (Op& op : lane.ops) {
        op.id = id++;
        if (op.kind == OpKind::kSignal) endpoints = std::max(endpoints, op.endpoint + 1);
        for (const plan::Operand& o : op.dst) {
          if (o.buffer == plan::Buffer::kScratch) slots = std::max(slots, o.part + o.parts);
        }
      }
    }
  }
  schedule_.endpoints = static_cast<uint16_t>(endpoints);
  schedule_.slots = static_cast<uint16_t>(slots);
  schedule_.inline_endpoint.assign(schedule_.slots, -1);
  return std::move(schedule_);
}

Result<plan::Schedule> ChunkedWriter::Alone() {
  AXCCL_RETURN_IF_ERROR(SetLanes(1));
  for (int i = 0; i < slices(); ++i) {
    Await(i);
    Copy(Out(0, 0, i), In(0, 0, i));
    schedule_.program[0][0].ops.back().finish = plan::Reduces(kind());
    Notify(i);
  }
  return Seal();
}

}  // namespace axccl::algo
