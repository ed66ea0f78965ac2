#include "tools/softgpu/engine/execution.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>

namespace softgpu::engine {
namespace {

// Shared memory begins where an offset into it and a pointer to that byte have the same alignment.
constexpr uint64_t kSharedAlignment = 1024;
// Longer grids keep their order, because the table would be too large.
constexpr uint64_t kMostShuffledBlocks = 1 << 20;

std::byte* Align(std::byte* at, uint64_t alignment) {
  const uint64_t address = reinterpret_cast<uintptr_t>(at);
  return at + ((alignment - address % alignment) % alignment);
}

uint64_t NextId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool KnownRanges::Find(uint64_t address, uint32_t bytes, uint32_t hint) {
  AddressRange& slot = recent_[hint % kRecent];
  for (const AddressRange& range : own_) {
    if (!range.Holds(address, bytes)) continue;
    slot = range;
    return true;
  }
  if (map_ == nullptr) return true;
  AddressRange range;
  if (!map_->Find(address, &range.begin, &range.end) || !range.Holds(address, bytes)) return false;
  slot = range;
  return true;
}

void KnownRanges::ForgetIfStale() {
  if (map_ == nullptr || map_->generation() == generation_) return;
  generation_ = map_->generation();
  recent_.fill({});
}

ExecutionState::ExecutionState(LaunchConfig config, const Options& options, const AddressMap* map,
                               const Program* program, std::vector<AddressRange> own)
    : config_(std::move(config)),
      options_(options),
      program_(program),
      ranges_(map, std::move(own)),
      id_(NextId()),
      total_blocks_(uint64_t{config_.grid.x} * config_.grid.y * config_.grid.z),
      random_(options.seed) {
  if (options.detect_races) races_ = std::make_unique<RaceDetector>();
  if (options.seed == 0 || total_blocks_ > kMostShuffledBlocks) return;
  order_.resize(total_blocks_);
  std::iota(order_.begin(), order_.end(), 0);
  for (uint64_t i = total_blocks_; i > 1; --i) std::swap(order_[i - 1], order_[Random(i)]);
}

// splitmix64
uint64_t ExecutionState::Random(uint64_t below) {
  uint64_t value = (random_ += 0x9e3779b97f4a7c15);
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return (value ^ (value >> 31)) % below;
}

std::unique_ptr<Block> ExecutionState::NewBlock() {
  auto block = std::make_unique<Block>();
  const Dim3& shape = config_.block;
  block->execution = this;
  block->threads = shape.x * shape.y * shape.z;
  const uint32_t warps = (block->threads + kWarpLanes - 1) / kWarpLanes;
  block->warps.resize(warps);
  block->local_stride = (program_->local_bytes + kLocalAlignment - 1) / kLocalAlignment * kLocalAlignment;
  block->local_bytes = uint64_t{block->threads} * block->local_stride;
  const uint64_t values = uint64_t{warps} * program_->values;
  block->storage = program_->spare.Take(values + (block->local_bytes + kLocalAlignment) / sizeof(uint64_t));
  block->local = Align(reinterpret_cast<std::byte*>(block->storage.words.get() + values), kLocalAlignment);
  block->predicate_storage.resize(uint64_t{warps} * program_->predicates);
  for (uint32_t i = 0; i < warps; ++i) {
    block->warps[i].values = block->storage.words.get() + uint64_t{i} * program_->values;
    block->warps[i].predicates = block->predicate_storage.data() + uint64_t{i} * program_->predicates;
  }
  block->shared_bytes = shared_bytes();
  block->shared_storage = std::make_unique<std::byte[]>(block->shared_bytes + kSharedAlignment);
  block->shared = Align(block->shared_storage.get(), kSharedAlignment);
  return block;
}

ExecutionState::~ExecutionState() {
  for (auto* const blocks : {&resident_, &spare_}) {
    for (const auto& block : *blocks) program_->spare.Put(std::move(block->storage));
  }
}

SpareMemory::Piece SpareMemory::Take(uint64_t count) {
  {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(pieces_.rbegin(), pieces_.rend(), [&](const Piece& p) { return p.count == count; });
    if (found != pieces_.rend()) {
      Piece piece = std::move(*found);
      pieces_.erase(std::next(found).base());
      return piece;
    }
  }
  return {MakeRaw<uint64_t>(count), count};
}

void SpareMemory::Put(Piece piece) {
  std::lock_guard lock(mutex_);
  if (pieces_.size() < kMost) pieces_.push_back(std::move(piece));
}

void ExecutionState::StartBlock(Block* block, uint64_t linear) {
  block->linear = linear;
  block->id[0] = static_cast<uint32_t>(linear % config_.grid.x);
  block->id[1] = static_cast<uint32_t>(linear / config_.grid.x % config_.grid.y);
  block->id[2] = static_cast<uint32_t>(linear / (uint64_t{config_.grid.x} * config_.grid.y));
  block->live_threads = block->threads;
  for (Barrier& barrier : block->barriers) barrier = {};
  block->cluster_arrived = 0;
  block->cluster_waiting.clear();
  block->bulk.Start(block->shared_bytes, block->threads, program_->reads_shared_in_bulk);
  for (uint32_t i = 0; i < block->warps.size(); ++i) block->warps[i].Start(block, i);
}

void ExecutionState::FillResidents() {
  while (resident_.size() < std::max(options_.resident_blocks, 1u) && next_block_ < total_blocks_) {
    std::unique_ptr<Block> block;
    if (spare_.empty()) {
      block = NewBlock();
    } else {
      block = std::move(spare_.back());
      spare_.pop_back();
    }
    StartBlock(block.get(), order_.empty() ? next_block_ : order_[next_block_]);
    ++next_block_;
    warps_resident_ += block->warps.size();
    resident_.push_back(std::move(block));
  }
}

// The next warp that can run, block by block. Null after the last one, so that the caller can check what changed.
Warp* ExecutionState::NextInOrder() {
  for (; block_turn_ < resident_.size(); ++block_turn_, warp_turn_ = 0) {
    std::vector<Warp>& warps = resident_[block_turn_]->warps;
    while (warp_turn_ < warps.size()) {
      Warp& warp = warps[warp_turn_++];
      if (warp.runnable() != 0) return &warp;
    }
  }
  block_turn_ = warp_turn_ = 0;
  return nullptr;
}

// Any warp; sometimes only the warps of one block for a while, so that the others fall far behind.
Warp* ExecutionState::NextBySeed() {
  if (++bursts_since_check_ > 2 * warps_resident_) {
    bursts_since_check_ = 0;
    return nullptr;
  }
  if (favourite_bursts_ == 0 && Random(16) == 0) {
    favourite_ = Random(resident_.size());
    favourite_bursts_ = 1 + Random(64 * resident_[favourite_]->warps.size());
  }
  size_t chosen = Random(resident_.size());
  if (favourite_bursts_ > 0) {
    --favourite_bursts_;
    chosen = favourite_ % resident_.size();
  }
  std::vector<Warp>& warps = resident_[chosen]->warps;
  size_t at = Random(warps.size());
  for (size_t i = 0; i < warps.size(); ++i, at = (at + 1) % warps.size()) {
    if (warps[at].runnable() == 0) continue;
    block_turn_ = chosen;
    return &warps[at];
  }
  return nullptr;
}

uint64_t ExecutionState::BurstLength() {
  const uint64_t burst = std::max(options_.burst, 1u);
  if (options_.seed == 0) return burst;
  return Random(4) == 0 ? 1 + Random(8) : 1 + Random(2 * burst);
}

void ExecutionState::ReportDeadlock(const Block& block) {
  for (const Warp& warp : block.warps) {
    const uint32_t stuck = warp.live();
    if (stuck == 0) continue;
    const uint32_t lane = static_cast<uint32_t>(std::countr_zero(stuck));
    // Lanes in a barrier wait behind it; lanes that wait for other lanes wait at it.
    const uint32_t at = (warp.waiting >> lane & 1) != 0 ? warp.lane_pc[lane] : warp.lane_pc[lane] - 1;
    const_cast<Warp&>(warp).Fail(program_->At(at), lane,
                                 "all threads of the block wait in barriers, and none of them can go on");
    return;
  }
}

void ExecutionState::Account(Warp& warp) {
  Block& block = *warp.block;
  const bool stuck = warp.runnable() == 0;
  const bool waits = !warp.progressed && (warp.slept || (warp.looped && warp.repeats > 0));
  if (waits || (stuck && !warp.progressed)) {
    warp.idle_epoch = epoch_;
    polled_in_epoch_ |= waits;
    favourite_bursts_ = 0;
  } else {
    ++epoch_;
    polled_in_epoch_ = false;
  }
  if (shuffles() && !block.bulk.idle() && Random(4) == 0) block.bulk.Advance();
  if (block.live_threads == 0) {
    block.bulk.End();
    if (options_.trace) NoteEffort(block);
    const auto found = std::find_if(resident_.begin(), resident_.end(),
                                    [&](const std::unique_ptr<Block>& other) { return other.get() == &block; });
    warps_resident_ -= block.warps.size();
    spare_.push_back(std::move(*found));
    const size_t at = static_cast<size_t>(found - resident_.begin());
    resident_.erase(found);
    if (at == block_turn_) warp_turn_ = 0;
    FillResidents();
    return;
  }
  if (!stuck) return;
  for (const Warp& other : block.warps) {
    if (other.runnable() != 0) return;
  }
  ReportDeadlock(block);
}

bool ExecutionState::EverybodyWaits() const {
  if (!polled_in_epoch_) return false;
  for (const auto& block : resident_) {
    for (const Warp& warp : block->warps) {
      if (warp.runnable() != 0 && warp.idle_epoch != epoch_) return false;
    }
  }
  return true;
}

bool ExecutionState::FinishBulkCopies() {
  bool any = false;
  for (const auto& block : resident_) {
    any |= !block->bulk.idle();
    block->bulk.Finish();
  }
  if (any) ++epoch_;
  return any;
}

State ExecutionState::Run(uint64_t instructions) {
  ranges_.ForgetIfStale();
  FillResidents();
  const uint64_t end = instructions_ + instructions;
  while (!failed() && !resident_.empty() && instructions_ < end) {
    Warp* const warp = options_.seed == 0 ? NextInOrder() : NextBySeed();
    if (warp == nullptr) {
      if (!EverybodyWaits() || FinishBulkCopies()) continue;
      ++epoch_;  // consider all warps again next time
      polled_in_epoch_ = false;
      return State::kWaiting;
    }
    instructions_ += std::max<uint64_t>(warp->Burst(BurstLength()), 1);
    Account(*warp);
  }
  if (failed()) return State::kFailed;
  return resident_.empty() ? State::kDone : State::kRunning;
}

}  // namespace softgpu::engine
