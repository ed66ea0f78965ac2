#include "tools/softgpu/engine/race.h"

#include <algorithm>

namespace softgpu::engine {

void RaceDetector::Join(Clock* into, const Clock& from) {
  for (const auto& [block, time] : from) {
    uint64_t& mine = (*into)[block];
    mine = std::max(mine, time);
  }
}

bool RaceDetector::Ordered(const Event& event, uint32_t block) {
  if (event.time == 0 || event.block == block) return true;
  const Clock& clock = blocks_[block].clock;
  const auto seen = clock.find(event.block);
  return seen != clock.end() && seen->second >= event.time;
}

int64_t RaceDetector::Check(uint32_t block, uint64_t address, uint32_t bytes, Access access, bool strong) {
  const uint64_t time = blocks_[block].time;
  int64_t other = -1;
  for (uint64_t at = address / 4; at <= (address + bytes - 1) / 4; ++at) {
    Cell& cell = cells_[at];
    if (!Ordered(cell.write, block) && !(strong && cell.write.strong)) other = cell.write.block;
    if (access == Access::kWrite) {
      for (const Event& read : cell.reads) {
        if (!Ordered(read, block) && !(strong && read.strong)) other = read.block;
      }
      cell.write = {block, time, strong};
      cell.reads.clear();
      continue;
    }
    const auto mine = std::find_if(cell.reads.begin(), cell.reads.end(),
                                   [&](const Event& read) { return read.block == block && read.strong == strong; });
    if (mine == cell.reads.end()) {
      cell.reads.push_back({block, time, strong});
    } else {
      mine->time = time;
    }
  }
  return other;
}

RaceDetector::Clock RaceDetector::Snapshot(uint32_t block) {
  BlockState& state = blocks_[block];
  Clock clock = state.clock;
  clock[block] = state.time++;
  return clock;
}

int64_t RaceDetector::Weak(uint32_t block, uint64_t address, uint32_t bytes, Access access) {
  return Check(block, address, bytes, access, false);
}

int64_t RaceDetector::Strong(uint32_t block, uint64_t address, uint32_t bytes, Access access, bool acquire,
                             bool release) {
  const int64_t other = Check(block, address, bytes, access, true);
  BlockState& state = blocks_[block];
  Clock& left = releases_[address / 4];
  if (acquire) {
    Join(&state.clock, left);
  } else {
    Join(&state.pending, left);
  }
  if (access == Access::kWrite) {
    if (release) {
      Join(&left, Snapshot(block));
    } else if (state.fenced) {
      Join(&left, state.fence);
    }
  }
  return other;
}

void RaceDetector::Fence(uint32_t block) {
  BlockState& state = blocks_[block];
  Join(&state.clock, state.pending);
  state.pending.clear();
  state.fence = Snapshot(block);
  state.fenced = true;
}

}  // namespace softgpu::engine
