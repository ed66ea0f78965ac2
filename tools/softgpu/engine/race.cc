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
  if (event.block == block) return true;
  const Clock& clock = blocks_[block].clock;
  const auto seen = clock.find(event.block);
  return seen != clock.end() && seen->second >= event.time;
}

// Returns the other block of one of `events` that is not ordered with this access, else -1.
int64_t RaceDetector::Unordered(const std::vector<Event>& events, const Event& access) {
  for (const Event& event : events) {
    if ((event.bytes & access.bytes) != 0 && !(event.strong && access.strong) && !Ordered(event, access.block))
      return event.block;
  }
  return -1;
}

// Removes what is known of these bytes, and events without remaining bytes.
void RaceDetector::Forget(std::vector<Event>* events, uint8_t bytes) {
  for (Event& event : *events) event.bytes &= static_cast<uint8_t>(~bytes);
  events->erase(std::remove_if(events->begin(), events->end(), [](const Event& event) { return event.bytes == 0; }),
                events->end());
}

int64_t RaceDetector::Check(uint32_t block, uint64_t address, uint32_t bytes, Access access, bool strong) {
  const uint64_t time = blocks_[block].time, end = address + bytes;
  int64_t other = -1;
  for (uint64_t at = address; at < end; at = (at / 4 + 1) * 4) {
    Cell& cell = cells_[at / 4];
    const uint64_t first = at % 4, last = std::min<uint64_t>(4, end - at / 4 * 4);
    const Event event{block, time, strong, static_cast<uint8_t>((1u << last) - (1u << first))};
    if (const int64_t writer = Unordered(cell.writes, event); writer >= 0) other = writer;
    if (access == Access::kWrite) {
      if (const int64_t reader = Unordered(cell.reads, event); reader >= 0) other = reader;
      Forget(&cell.writes, event.bytes);
      Forget(&cell.reads, event.bytes);
      cell.writes.push_back(event);
      continue;
    }
    // The last read of a kind replaces those before it.
    for (Event& read : cell.reads) {
      if (read.block == block && read.strong == strong) read.bytes &= static_cast<uint8_t>(~event.bytes);
    }
    Forget(&cell.reads, 0);
    cell.reads.push_back(event);
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
