// Finds accesses of different blocks of a launch to the same global memory that no synchronisation orders.
//
// Happens-before is kept by vector clocks, one per block: a releasing write stores the block's clock with the address,
// an acquiring read joins it. For every byte, the last write and the last reads by block are kept.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace softgpu::engine {

class RaceDetector {
 public:
  enum class Access : uint8_t { kRead, kWrite };

  // Records a weak access. Returns the other block if there is a race, else -1.
  int64_t Weak(uint32_t block, uint64_t address, uint32_t bytes, Access access);
  // Records a strong access (volatile, relaxed, atomic and so on). Those do not race with each other.
  int64_t Strong(uint32_t block, uint64_t address, uint32_t bytes, Access access, bool acquire, bool release);
  // Records fence or membar: earlier strong reads acquire, later strong writes release.
  void Fence(uint32_t block);

 private:
  using Clock = std::unordered_map<uint32_t, uint64_t>;
  struct Event {
    uint32_t block;
    uint64_t time;
    bool strong;
    uint8_t bytes;  // of the cell, a bit each
  };
  // The accesses to 4 bytes.
  struct Cell {
    std::vector<Event> writes, reads;
  };
  struct BlockState {
    Clock clock;
    uint64_t time = 1;
    Clock fence;  // what a strong write after a fence releases
    bool fenced = false;
    Clock pending;  // what strong reads saw, acquired by the next fence
  };

  bool Ordered(const Event& event, uint32_t block);
  int64_t Unordered(const std::vector<Event>& events, const Event& access);
  static void Forget(std::vector<Event>* events, uint8_t bytes);
  static void Join(Clock* into, const Clock& from);
  int64_t Check(uint32_t block, uint64_t address, uint32_t bytes, Access access, bool strong);
  Clock Snapshot(uint32_t block);

  std::unordered_map<uint64_t, Cell> cells_;      // by address / 4
  std::unordered_map<uint64_t, Clock> releases_;  // by address / 4
  std::unordered_map<uint32_t, BlockState> blocks_;
};

}  // namespace softgpu::engine
