// Random calls for worlds of ranks.
#pragma once

#include <algorithm>

#include "src/algo/algo.h"
#include "tests/algo/cases.h"
#include "tests/harness/random.h"
#include "tests/kernels/cuda/world.h"

namespace axccl::kernels::cuda {

// Adapts the call's other properties to its kind and type.
inline void Legalize(CallSpec* call) {
  if (!plan::Reduces(call->kind)) {
    call->combine = Combine::kSum;
    call->scaling = Scaling::kNone;
  }
  if (call->combine != Combine::kSum) call->scaling = Scaling::kNone;
  if (!plan::HasRoot(call->kind)) call->root = 0;
  if (!plan::Reduces(call->kind) || call->combine != Combine::kSum) call->scale = 0;
  if (call->kind == plan::Kind::kBarrier) {
    call->count = 0;
    call->views.clear();
  }
  if (call->count == 0) call->in_place = 0;
  const auto& algorithms = algo::Algorithms(call->kind);
  const auto has = [&](std::string_view name) {
    return std::find(algorithms.begin(), algorithms.end(), name) != algorithms.end();
  };
  if (!algo::UsesBuffers(call->algorithm) || !has(call->staged)) call->staged = {};
  if (call->staged.empty() || !has(call->grown)) call->grown = {};
}

// Puts the call on views.
inline void PutOnViews(CallSpec* call, harness::Random* random) {
  if (call->kind == plan::Kind::kBarrier) return;
  const uint64_t element = ElementSize(call->type);
  uint64_t bytes = 0;
  for (uint64_t n = 1 + random->Below(3); n != 0; --n) {
    call->views.push_back(random->OneIn(8) ? 0 : 1 + random->Below(call->count + 1));
    if (random->OneIn(4)) call->views.back() = kTiledCount;
    bytes = (bytes + 63) / 64 * 64 + call->views.back() * element;
  }
  call->count = bytes / element;
  call->in_place = 0;
  const bool scales = plan::Reduces(call->kind) && call->scaling == Scaling::kNone && call->combine == Combine::kSum &&
                      IsFloat(call->type);
  call->scale = scales && random->OneIn(2) ? 2 : 0;
}

// Between processes: adds a program for the case that buffers are out of reach.
inline void OfferStaged(int ranks, int lanes, CallSpec* call, harness::Random* random) {
  if (!algo::UsesBuffers(call->algorithm) || !call->views.empty()) return;
  const auto& algorithms = algo::Algorithms(call->kind);
  do {
    call->staged = algorithms[random->Below(algorithms.size())];
  } while (algo::UsesBuffers(call->staged));
  call->staged_lanes = 1 + static_cast<int>(random->Below(static_cast<uint64_t>(lanes)));
  call->unmapped = random->OneIn(2) ? 0 : static_cast<uint32_t>(random->Below(1u << ranks));
  call->grown = {};
  if (random->OneIn(3)) return;
  do {
    call->grown = algorithms[random->Below(algorithms.size())];
  } while (algo::UsesBuffers(call->grown));
  call->grown_lanes = 1 + static_cast<int>(random->Below(static_cast<uint64_t>(lanes)));
  call->cramped = random->OneIn(2) ? 0 : static_cast<uint32_t>(random->Below(1u << ranks));
}

inline CallSpec RandomCall(int ranks, int lanes, harness::Random* random) {
  constexpr DataType kTypes[] = {DataType::kInt8,    DataType::kInt32,   DataType::kUint64,
                                 DataType::kFloat32, DataType::kFloat64, DataType::kBfloat16};
  CallSpec call;
  do {
    call.kind = static_cast<plan::Kind>(random->Below(plan::kNumKinds));
  } while (call.kind == plan::Kind::kSendRecv && ranks != 2);
  const auto& algorithms = algo::Algorithms(call.kind);
  call.algorithm = algorithms[random->Below(algorithms.size())];
  call.lanes = 1 + static_cast<int>(random->Below(static_cast<uint64_t>(lanes)));
  call.root = static_cast<int>(random->Below(static_cast<uint64_t>(ranks)));
  call.count = random->OneIn(3) ? random->Below(8) : random->Below(400);
  call.tile = random->OneIn(2) ? 1 + random->Below(100) : 0;
  call.type = kTypes[random->Below(std::size(kTypes))];
  call.combine = random->OneIn(4) ? Combine::kMax : Combine::kSum;
  call.scaling = static_cast<Scaling>(random->Below(3));
  call.in_place = static_cast<uint32_t>(random->Below(16));
  call.packs = random->OneIn(2);
  // Counts around the capacity of a packed slot.
  if (call.packs && random->OneIn(4)) call.count = kPackedBytes / ElementSize(call.type) + random->Below(7) - 5;
  Legalize(&call);
  if (random->OneIn(3)) PutOnViews(&call, random);
  if (random->OneIn(2)) OfferStaged(ranks, lanes, &call, random);
  return call;
}

}  // namespace axccl::kernels::cuda
