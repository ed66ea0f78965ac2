#include "src/comm/block.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <mutex>
#include <utility>

#include "src/base/log.h"
#include "src/base/service.h"
#include "src/base/sizes.h"
#include "src/topo/machine.h"
#include "src/topo/memory.h"
#include "transports/shm/heap.h"

namespace axccl::comm {
namespace {

constexpr std::chrono::milliseconds kInterval(10);  // between the service thread's looks

struct Released {
  std::unique_ptr<Block> block;
  std::vector<Holder> holders;
};

struct Limbo {
  std::mutex mutex;
  std::list<Released> blocks;
  bool watched = false;  // by the service thread
};

Limbo& TheLimbo() {
  static Limbo* limbo = new Limbo;
  return *limbo;
}

// It should go as soon as it can, and not at the next occasion.
bool IsUrgent(const Released& released) {
  return released.block->has_companion() ||
         std::any_of(released.holders.begin(), released.holders.end(),
                     [](const Holder& holder) { return holder.reach != nullptr && holder.reach->sending(); });
}

bool MayGo(const Released& released) {
  const Block& block = *released.block;
  for (size_t rank = 0; rank < released.holders.size(); ++rank) {
    const bool let_go =
        block.layout().ReleasedBy(block.data(), static_cast<int>(rank))->load(std::memory_order_acquire) != 0;
    if (!let_go && !released.holders[rank].Gone()) return false;
  }
  return true;
}

void LookAgain(service::Loop* loop) {
  loop->CallAt(service::Clock::now() + kInterval, [loop] {
    Block::SweepLimbo();
    Limbo& limbo = TheLimbo();
    std::lock_guard lock(limbo.mutex);
    limbo.watched = std::any_of(limbo.blocks.begin(), limbo.blocks.end(), IsUrgent);
    if (limbo.watched) LookAgain(loop);
  });
}

}  // namespace

bool Holder::Gone() const {
  if (reach != nullptr) return !reach->InUse();
  return pid == 0 || (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH);
}

Result<std::unique_ptr<Block>> Block::Create(int rank, int ranks, const exec::BlockLayout& layout, int node) {
  SweepLimbo();
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  std::unique_ptr<Block> block(new Block);
  AXCCL_ASSIGN_OR_RETURN(void* memory, heap->Allocate(layout.bytes, kPage));
  block->data_ = static_cast<std::byte*>(memory);
  block->layout_ = layout;
  if (node != topo::kNowhere) {
    block->node_ = topo::PreferNode(memory, layout.bytes, node) ? node : topo::kNowhere;
    AXCCL_INFO(kInit, "placement: scratch memory of rank %d %s node %d", rank,
               block->node_ == node ? "comes from" : "comes from where it is touched: the system does not give it from",
               node);
  }
  if (!heap->Contains(memory, layout.bytes, &block->heap_offset_))
    return MakeStatus(Code::kInternalError, "the heap does not know a block it has just given out");
  exec::BlockHeader* header = block->header();
  header->rank = static_cast<uint32_t>(rank);
  header->ranks = static_cast<uint32_t>(ranks);
  header->magic = exec::BlockHeader::kMagic;
  return block;
}

Block::~Block() {
  if (data_ == nullptr) return;
  auto heap = shm::Heap::Get();
  if (!heap.ok()) return;
  // The ranges will belong to other code.
  const auto forget = [this](std::byte* memory, uint64_t bytes) {
    if (node_ != topo::kNowhere) (void)topo::PreferNode(memory, bytes, topo::kNowhere);
  };
  forget(data_, layout_.bytes);
  (void)heap.value()->Free(data_).ok();
  for (const auto& [memory, bytes] : taken_) {
    forget(memory, bytes);
    (void)heap.value()->Free(memory).ok();
  }
  for (void* memory : kept_) (void)heap.value()->Free(memory).ok();
}

Result<std::byte*> Block::Take(uint64_t bytes, uint64_t* heap_offset) {
  AXCCL_ASSIGN_OR_RETURN(shm::Heap * heap, shm::Heap::Get());
  std::lock_guard lock(mutex_);
  taken_.reserve(taken_.size() + 1);
  AXCCL_ASSIGN_OR_RETURN(void* const memory, heap->Allocate(bytes, kPage));
  auto* const taken = static_cast<std::byte*>(memory);
  if (node_ != topo::kNowhere) (void)topo::PreferNode(memory, bytes, node_);
  *heap_offset = static_cast<uint64_t>(taken - heap->base());
  taken_.emplace_back(taken, bytes);
  return taken;
}

uint64_t Block::resident_bytes() const {
  uint64_t resident = ResidentBytes(data_, layout_.bytes);
  std::lock_guard lock(mutex_);
  for (const auto& [memory, bytes] : taken_) resident += ResidentBytes(memory, bytes);
  return resident;
}

uint64_t ResidentBytes(const std::byte* memory, uint64_t bytes) {
  std::vector<unsigned char> pages(bytes / kPage);
  if (mincore(const_cast<std::byte*>(memory), bytes, pages.data()) != 0) return 0;
  return kPage *
         static_cast<uint64_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return p & 1; }));
}

void Block::Release(std::unique_ptr<Block>&& block, std::vector<Holder> holders) {
  std::list<Released> released(1);  // allocated before the block leaves the caller's hands
  block->header()->closed.store(1, std::memory_order_seq_cst);
  Limbo& limbo = TheLimbo();
  released.front() = {std::move(block), std::move(holders)};
  bool watch = IsUrgent(released.front());
  {
    std::lock_guard lock(limbo.mutex);
    limbo.blocks.splice(limbo.blocks.end(), released);
    watch = watch && !std::exchange(limbo.watched, limbo.watched || watch);
  }
  SweepLimbo();
  if (!watch) return;
  const Status watched = CatchAll("giving memory back", [] {
    AXCCL_ASSIGN_OR_RETURN(service::Loop * loop, service::Loop::Get());
    return loop->Run([loop] { LookAgain(loop); });
  });
  if (watched.ok()) return;
  // Without the service thread, the next creation or release sweeps.
  std::lock_guard lock(limbo.mutex);
  limbo.watched = false;
}

void Block::SweepLimbo() {
  std::list<Released> free;  // outlives the lock
  Limbo& limbo = TheLimbo();
  std::lock_guard lock(limbo.mutex);
  for (auto it = limbo.blocks.begin(); it != limbo.blocks.end();) {
    const auto next = std::next(it);
    if (MayGo(*it)) free.splice(free.end(), limbo.blocks, it);
    it = next;
  }
}

void PartFromPeers(exec::BlockHeader* header, std::span<const std::shared_ptr<transport::Reach>> reaches,
                   std::chrono::milliseconds patience) {
  header->closed.store(1, std::memory_order_seq_cst);
  for (const auto& reach : reaches) {
    reach->PublishState({}, offsetof(exec::BlockHeader, closed));
    if (patience.count() > 0) reach->BeginFlush();
  }
  const auto limit = std::chrono::steady_clock::now() + patience;
  for (const auto& reach : reaches) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    if (left.count() > 0) reach->AwaitFlush(left);
  }
  for (const auto& reach : reaches) reach->Detach();
}

}  // namespace axccl::comm
