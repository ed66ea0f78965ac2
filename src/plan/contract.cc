#include "src/plan/contract.h"

namespace axccl::plan {

namespace {

constexpr const char* kKindNames[kNumKinds] = {"all_reduce", "broadcast", "reduce",  "all_gather", "reduce_scatter",
                                               "all_to_all", "gather",    "scatter", "send_recv",  "barrier"};

}  // namespace

const char* KindName(Kind kind) {
  const int i = static_cast<int>(kind);
  return i < kNumKinds ? kKindNames[i] : "unknown";
}

bool FindKind(std::string_view name, Kind* kind) {
  for (int i = 0; i < kNumKinds; ++i) {
    if (name != kKindNames[i]) continue;
    *kind = static_cast<Kind>(i);
    return true;
  }
  return false;
}

bool Reduces(Kind kind) { return kind == Kind::kAllReduce || kind == Kind::kReduce || kind == Kind::kReduceScatter; }

bool HasRoot(Kind kind) {
  return kind == Kind::kBroadcast || kind == Kind::kReduce || kind == Kind::kGather || kind == Kind::kScatter;
}

int InputBlocks(const Contract& contract, int rank) {
  switch (contract.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
    case Kind::kAllGather:
    case Kind::kGather:
      return 1;
    case Kind::kReduceScatter:
    case Kind::kAllToAll:
      return contract.ranks;
    case Kind::kBroadcast:
      return rank == contract.root ? 1 : 0;
    case Kind::kScatter:
      return rank == contract.root ? contract.ranks : 0;
    case Kind::kSendRecv:
      return rank == 0 ? 1 : 0;
    case Kind::kBarrier:
      return 0;
  }
  return 0;
}

int OutputBlocks(const Contract& contract, int rank) {
  switch (contract.kind) {
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
    case Kind::kBroadcast:
    case Kind::kScatter:
      return 1;
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return contract.ranks;
    case Kind::kReduce:
      return rank == contract.root ? 1 : 0;
    case Kind::kGather:
      return rank == contract.root ? contract.ranks : 0;
    case Kind::kSendRecv:
      return rank == 1 ? 1 : 0;
    case Kind::kBarrier:
      return 0;
  }
  return 0;
}

bool SourceBlock(const Contract& contract, int rank, int block, int source, int* input_block) {
  *input_block = 0;
  switch (contract.kind) {
    case Kind::kAllReduce:
    case Kind::kReduce:
      return true;
    case Kind::kReduceScatter:
      *input_block = rank;
      return true;
    case Kind::kBroadcast:
    case Kind::kSendRecv:
      return source == contract.root;
    case Kind::kScatter:
      *input_block = rank;
      return source == contract.root;
    case Kind::kAllGather:
    case Kind::kGather:
      return source == block;
    case Kind::kAllToAll:
      *input_block = rank;
      return source == block;
    case Kind::kBarrier:
      return false;
  }
  return false;
}

bool InPlaceBlocks(const Contract& contract, int rank, int* input_block, int* output_block) {
  *input_block = 0;
  *output_block = 0;
  switch (contract.kind) {
    case Kind::kAllReduce:
      return true;
    case Kind::kReduce:
    case Kind::kBroadcast:
      return rank == contract.root;
    case Kind::kAllGather:
      *output_block = rank;
      return true;
    case Kind::kGather:
      *output_block = rank;
      return rank == contract.root;
    case Kind::kReduceScatter:
      *input_block = rank;
      return true;
    case Kind::kScatter:
      *input_block = rank;
      return rank == contract.root;
    case Kind::kAllToAll:
    case Kind::kSendRecv:
    case Kind::kBarrier:
      return false;
  }
  return false;
}

}  // namespace axccl::plan
