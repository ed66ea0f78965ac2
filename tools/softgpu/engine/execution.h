// One launch: which blocks are resident, which warp runs next, and which addresses are valid.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/softgpu/engine/engine.h"
#include "tools/softgpu/engine/machine.h"
#include "tools/softgpu/engine/race.h"

namespace softgpu::engine {

struct AddressRange {
  uint64_t begin = 0, end = 0;
  bool Holds(uint64_t address, uint64_t bytes) const {
    return address >= begin && address < end && bytes <= end - address;
  }
};

// The addresses that the launch may access; remembers the ranges that it has found.
class KnownRanges {
 public:
  KnownRanges(const AddressMap* map, std::vector<AddressRange> own) : map_(map), own_(std::move(own)) {
    if (map_ == nullptr) recent_.fill({0, ~0ull});
  }

  // `hint` distinguishes accesses that stay within one range each.
  bool Holds(uint64_t address, uint32_t bytes, uint32_t hint) {
    const AddressRange& recent = recent_[hint % kRecent];
    return recent.Holds(address, bytes) || Find(address, bytes, hint);
  }
  void ForgetIfStale();
  bool FindMulticast(uint64_t address, MulticastWindow* window) const {
    return map_ != nullptr && map_->FindMulticast(address, window);
  }

 private:
  static constexpr uint32_t kRecent = 16;
  bool Find(uint64_t address, uint32_t bytes, uint32_t hint);

  const AddressMap* const map_;
  const std::vector<AddressRange> own_;  // the module's variables, the launch's parameters
  std::array<AddressRange, kRecent> recent_ = {};
  uint64_t generation_ = 0;
};

class ExecutionState : public Execution {
 public:
  ExecutionState(LaunchConfig config, const Options& options, const AddressMap* map, const Program* program,
                 std::vector<AddressRange> own);
  ~ExecutionState() override;

  State Run(uint64_t instructions) override;
  const std::string& error() const override { return error_; }

  const LaunchConfig& config() const { return config_; }
  const Program& program() const { return *program_; }
  KnownRanges& ranges() { return ranges_; }
  RaceDetector* races() { return races_.get(); }
  bool traces() const { return options_.trace; }
  // The instructions that warps ran before the present burst.
  uint64_t clock() const { return instructions_; }
  uint64_t burst_position(const Warp& warp) const {
    return static_cast<uint64_t>(warp.burst_length - warp.budget - warp.forfeited);
  }
  uint64_t id() const { return id_; }
  // Whether there is a seed; and its next random number, 0 without one.
  bool shuffles() const { return options_.seed != 0; }
  uint64_t Draw(uint64_t below) { return shuffles() ? Random(below) : 0; }
  bool failed() const { return !error_.empty(); }
  void Fail(const std::string& error) {
    if (error_.empty()) error_ = error;
  }
  uint32_t shared_bytes() const { return program_->shared_bytes + config_.dynamic_shared_bytes; }

 private:
  void FillResidents();
  std::unique_ptr<Block> NewBlock();
  void StartBlock(Block* block, uint64_t linear);
  Warp* NextInOrder();
  Warp* NextBySeed();
  uint64_t BurstLength();
  // Applies the burst of `warp` to waiting, barriers and the end of its block.
  void Account(Warp& warp);
  void ReportDeadlock(const Block& block);
  bool EverybodyWaits() const;
  // Completes copies that no thread waits for any more. Returns false if there are none.
  bool FinishBulkCopies();
  uint64_t Random(uint64_t below);

  const LaunchConfig config_;
  const Options options_;
  const Program* const program_;
  KnownRanges ranges_;
  std::unique_ptr<RaceDetector> races_;
  const uint64_t id_;
  std::string error_;

  uint64_t total_blocks_ = 0, next_block_ = 0;
  std::vector<uint32_t> order_;  // of the blocks; empty: 0, 1, ...
  std::vector<std::unique_ptr<Block>> resident_, spare_;
  size_t block_turn_ = 0, warp_turn_ = 0;
  size_t favourite_ = 0, favourite_bursts_ = 0;
  uint64_t random_ = 0;
  uint64_t instructions_ = 0;
  uint64_t epoch_ = 1;  // grows whenever a warp makes progress
  bool polled_in_epoch_ = false;
  uint64_t bursts_since_check_ = 0, warps_resident_ = 0;
};

}  // namespace softgpu::engine
