// Barriers of a block.
#include <algorithm>

#include "tools/softgpu/engine/execution.h"
#include "tools/softgpu/engine/machine.h"

namespace softgpu::engine {

// Like the hardware, counts warps of 32, so missing lanes of the last warp count as well.
uint32_t Block::Count(const Barrier& barrier) const {
  std::vector<uint32_t> arrived(warps.size());
  for (const Arrival& arrival : barrier.arrivals) arrived[arrival.warp->index] |= arrival.lanes;
  uint32_t count = 0;
  for (const Warp& warp : warps) {
    const bool whole = arrived[warp.index] != 0 && (arrived[warp.index] | ~warp.live()) == kAllLanes;
    count += whole ? kWarpLanes : static_cast<uint32_t>(std::popcount(arrived[warp.index]));
  }
  return count;
}

void Block::Arrive(uint32_t index, const Arrival& arrival, uint32_t expected, uint32_t true_count, bool wait) {
  Barrier& barrier = barriers[index];
  barrier.arrivals.push_back(arrival);
  barrier.expected = expected;
  barrier.true_count += true_count;
  if (wait) arrival.warp->BlockLanes(arrival.lanes, arrival.warp->pc);
  ReleaseIfComplete(index);
}

void Block::ReleaseIfComplete(uint32_t index) {
  Barrier& barrier = barriers[index];
  if (barrier.arrivals.empty()) return;
  if (barrier.expected == 0) {
    uint32_t arrived = 0;
    for (const Arrival& arrival : barrier.arrivals)
      arrived += static_cast<uint32_t>(std::popcount(arrival.lanes & arrival.warp->live()));
    if (arrived < live_threads) return;
  } else if (Count(barrier) < barrier.expected) {
    return;
  }
  uint32_t trips = 0;
  for (const Arrival& arrival : barrier.arrivals) {
    if (arrival.warp->trace != nullptr) trips = std::max(trips, arrival.warp->trace->trips());
  }
  for (const Arrival& arrival : barrier.arrivals) {
    if (arrival.warp->trace != nullptr) arrival.warp->trace->PassBarrier(trips);
    if (arrival.instr->flag) arrival.warp->Unblock(arrival.lanes);
    if (arrival.instr->kind != 0) WriteReduction(arrival, barrier);
  }
  barrier = {};
}

// bar.red: 1 popc, 2 and, 3 or.
void Block::WriteReduction(const Arrival& arrival, const Barrier& barrier) {
  uint32_t arrived = 0;
  for (const Arrival& other : barrier.arrivals) arrived += static_cast<uint32_t>(std::popcount(other.lanes));
  if (arrival.instr->kind == 1) {
    uint64_t* const column = arrival.warp->Out(arrival.instr->d);
    ForLanes(arrival.lanes, [&](uint32_t lane) { column[lane] = barrier.true_count; });
    return;
  }
  const bool result = arrival.instr->kind == 2 ? barrier.true_count == arrived : barrier.true_count != 0;
  arrival.warp->SetPredicate(arrival.instr->pd, arrival.lanes, result ? kAllLanes : 0);
}

void Block::RecheckBarriers() {
  for (uint32_t index = 0; index < kBarriers; ++index) ReleaseIfComplete(index);
  ReleaseClusterIfComplete();
}

void Block::ArriveCluster(const Arrival& arrival) {
  arrival.warp->cluster_pending |= arrival.lanes;
  cluster_arrived += static_cast<uint32_t>(std::popcount(arrival.lanes));
  ReleaseClusterIfComplete();
}

void Block::WaitCluster(const Arrival& arrival) {
  const uint32_t early = arrival.lanes & arrival.warp->cluster_pending;
  if (early == 0) return;
  cluster_waiting.push_back({arrival.warp, arrival.instr, early});
  arrival.warp->BlockLanes(early, arrival.warp->pc);
}

void Block::ReleaseClusterIfComplete() {
  if (cluster_arrived == 0 || cluster_arrived < live_threads) return;
  cluster_arrived = 0;
  for (Warp& warp : warps) warp.cluster_pending = 0;
  for (const Arrival& arrival : cluster_waiting) arrival.warp->Unblock(arrival.lanes);
  cluster_waiting.clear();
}

}  // namespace softgpu::engine
